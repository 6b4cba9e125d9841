// ==== Write at the cursor: a line from 0 to 1, a number that is drawn

let last = null;                // written last: { before, rest, drawn, u, probabilities, found }
const written = [];             // what to go back to, while the text is as it was written

/** What is drawn depends on this. */
const circumstances = () => JSON.stringify([state.text, state.at, state.off, state.drag,
  state.temperature, state.top_k, state.top_p]);
const isLast = () => last?.found === circumstances();

const drawFrom = (logits, u) => draw(logits, u, state.temperature, state.top_k, state.top_p);

/** What would be drawn after some characters, in a cache of its own. */
function drawAfter(before, u) {
  const known = before.map((character) => idOf.get(character) ?? facts.neutral[0]);
  const from = windowStart(known.length, block), window = known.slice(from);
  while (model.read(ahead, window, changeFrom(from)));
  return { before, u, ...drawFrom(ahead.logitsOf(window.length - 1), u) };
}

/** Write some letters, each at the place of a number that is drawn. */
function write(count) {
  let before = pieces.slice(0, state.at);
  const rest = pieces.slice(state.at);
  for (let n = 0; n < count; n++) {
    last = { ...drawAfter(before, Math.random()), rest };
    before = [...before, facts.characters[last.drawn]];
  }
  put(before);
}

/** Take another letter in place of the one that was drawn, or at the cursor. */
function takeInstead(id) {
  if (isLast() && id === (last.taken ?? last.drawn)) return;
  last = isLast() ? { ...last, taken: id } : { ...drawAfter(pieces.slice(0, state.at), null),
    rest: pieces.slice(state.at), taken: id };
  put([...last.before, facts.characters[id]]);
}

/** Put this before the rest of the text, and the cursor between them. */
function put(before) {
  const after = [...before, ...last.rest].join("");
  written.push({ text: state.text, index: indexOf(state.at), after });
  setText(after, before.join("").length);
  last.found = circumstances();
}

/** The line that the last letter was drawn from, or the one for the next. */
function showWrite() {
  if (!live) return;
  byId("one").disabled = byId("many").disabled = !state.at;
  enable("back", written.at(-1)?.after === state.text);
  for (const id of ["temperature", "top_k", "top_p"]) {
    byId(id).value = state[id];
    byId(`${id}-now`).textContent = state[id];
  }
  const line = byId("line"), wasWritten = isLast();
  const hadFocus = line.contains(document.activeElement);
  line.replaceChildren();
  if (!state.at) {
    byId("drawn-words").textContent = `Put the cursor behind a ${unit}, to write there.`;
    return;
  }
  const { probabilities, drawn, u, taken } = wasWritten ? last
    : drawFrom(cacheOf(true).logitsOf(queryRow()), 0);
  const chosen = wasWritten ? taken ?? drawn : undefined;
  const [best] = likeliest(probabilities, 1);
  let low = 0, from;
  probabilities.forEach((p, id) => {
    if (!p) return;
    const name = `${named(id)} ${share(p)}`, piece = button(() => takeInstead(id),
      p > 0.02 ? symbol(id) : "");
    Object.assign(piece, { title: name, ariaLabel: name, tabIndex: id === best ? 0 : -1,
      style: `left: ${100 * low}%; width: ${100 * p}%` });
    piece.classList.toggle("drawn", id === chosen);
    line.append(piece);
    if (id === drawn) from = low;
    low += p;
  });
  const hasNeedle = wasWritten && u !== null;
  if (hasNeedle) line.append(make("i", { class: "needle", style: `left: ${100 * u}%` }));
  byId("drawn-words").textContent = !wasWritten ? `This is the line for the ${unit} at the cursor.`
    : !hasNeedle ? `You took ${quoted(taken)} from this line.`
    : `The number ${fixed(u, 3)} was drawn.  It falls on ${quoted(drawn)}, which has ${
      fixed(from, 3)} to ${fixed(from + probabilities[drawn], 3)}.${
      taken === undefined ? "" : `  You took ${quoted(taken)} instead.`}`;
  if (hadFocus) line.querySelector("[tabindex='0']").focus({ preventScroll: true });
}

on("line", "keydown", (event) => {
  const parts = [...byId("line").querySelectorAll("button")];
  const to = moved(event, 0, parts.indexOf(event.target));
  if (to) parts[bounded(to[1], 0, parts.length - 1)].focus();
});

byId("top_k").max = V;
for (const id of ["temperature", "top_k", "top_p"]) {
  on(id, "input", ({ target }) => update({ [id]: Number(target.value) }, null));
  on(id, "change", ({ target }) => update({ [id]: Number(target.value) }));
}
on("one", "click", () => write(1));
on("many", "click", () => write(50));
on("back", "click", () => {
  const { text, index } = written.pop();
  setText(text, index);
});
