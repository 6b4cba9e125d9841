// ==== Write: a line from 0 to 1, a number that is drawn

let last = null;                // what was written last: { before, after, drawn, u, probabilities }
const written = [];             // texts to go back to

/** What would be drawn from after a text. */
function drawAfter(text, u) {
  const known = Array.from(text, (character) => idOf.get(character) ?? facts.neutral[0]);
  const window = known.slice(windowStart(known.length, block));
  const isElsewhere = edit && windowStart(known.length, block) !== start, cache = cacheOf(true);
  const change = isElsewhere ? { ...edit, key: `${edit.key} `, drag: null } : edit;
  while (model.read(cache, window, change));
  const { temperature, top_k, top_p } = state;
  return { before: text, u, ...draw(cache.logitsOf(window.length - 1), u, temperature, top_k,
    top_p) };
}

/** Write some letters, each at the place of a number that is drawn. */
function write(count) {
  let text = state.text;
  written.push(text);
  for (let n = 0; n < count; n++) {
    last = drawAfter(text, Math.random());
    last.after = text += facts.characters[last.drawn];
  }
  setText(text);
}

/** Take another letter in place of the one that was drawn, or after the text. */
function takeInstead(id) {
  const { before, ...found } = last?.after === state.text ? last : drawAfter(state.text, null);
  written.push(state.text);
  last = { ...found, before, taken: id, after: before + facts.characters[id] };
  setText(last.after);
}

/** The line that the last letter was drawn from, or the one for the next. */
function showWrite() {
  if (!live) return;
  byId("one").disabled = byId("many").disabled = !ids.length;
  byId("back").disabled = !written.length;
  for (const id of ["temperature", "top_k", "top_p"]) {
    byId(id).value = state[id];
    byId(`${id}-now`).textContent = state[id];
  }
  const line = byId("line"), isLast = last?.after === state.text;
  line.replaceChildren();
  if (!ids.length) {
    byId("drawn-words").textContent = "";
    return fillBars("drawn", []);
  }
  const { probabilities, drawn, u, taken } = isLast ? last : drawAfter(state.text, 0);
  let low = 0, from;
  probabilities.forEach((p, id) => {
    if (!p) return;
    const piece = make("span", { title: `${named(id)} ${share(p)}`,
      style: `left: ${100 * low}%; width: ${100 * p}%` }, p > 0.02 ? symbol(id) : "");
    piece.classList.toggle("drawn", isLast && id === (taken ?? drawn));
    piece.addEventListener("click", () => takeInstead(id));
    line.append(piece);
    if (id === drawn) from = low;
    low += p;
  });
  const hasNeedle = isLast && u !== null;
  if (hasNeedle) line.append(make("i", { class: "needle", style: `left: ${100 * u}%` }));
  byId("drawn-words").textContent = !hasNeedle ? `This is the line for the next ${unit}.`
    : `The number ${fixed(u, 3)} was drawn.  It falls on ${quoted(drawn)}, which has ${
      fixed(from, 3)} to ${fixed(from + probabilities[drawn], 3)}.${
      taken === undefined ? "" : `  You took ${quoted(taken)} instead.`}`;
  byId("drawn-title").textContent = isLast ? "Take another one instead" : "Choose one yourself";
  fillBars("drawn", likeliest(probabilities, 8, isLast ? taken ?? drawn : undefined)
    .filter((id) => probabilities[id]).map((id) => [id, probabilities[id]]),
  isLast ? taken ?? drawn : undefined, takeInstead);
  return null;
}

byId("top_k").max = V;
for (const id of ["temperature", "top_k", "top_p"]) {
  on(id, "input", ({ target }) => update({ [id]: Number(target.value) }, null));
  on(id, "change", ({ target }) => update({ [id]: Number(target.value) }));
}
on("one", "click", () => write(1));
on("many", "click", () => write(50));
on("back", "click", () => {
  setText(written.pop());
  if (!written.length) byId("one").focus();
});
