
// ==== The text: its losses, and what is expected at the chosen place

const EVEN_LOSS = Math.log(V), PAUSE = 400;     // nats; milliseconds without a key before idle work
const strip = listbox(byId("letters"), 0, (i) => {
  update({ at: start + i, column: Math.max(0, i - 1) });
  if (state.at) say(`${byId("prediction-title").textContent}: ${byId("expected").textContent}`);
});

const on = (id, event, act) => byId(id).addEventListener(event, act);
function button(words, act) {
  const element = make("button", { type: "button" }, words);
  element.addEventListener("click", act);
  return element;
}
const sumOf = (numbers) => numbers.reduce((a, b) => a + b, 0);
const nats = (x, digits = 3) => `${fixed(x, digits)} nats`;
const share = (p) => p < 5e-5 ? "<\u00a00.01\u00a0%" : `${(100 * p).toFixed(2)}\u00a0%`;
const codeOf = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
const nameOf = (i) => idOf.has(characters[i]) ? named(ids[i]) : `unknown ${codeOf(characters[i])}`;

/** A shade for a number from -1 to 1, and for a weight of attention. */
const shadeOf = (x) => (x < 0 ? blue : orange)[Math.round(255 * Math.min(1, Math.abs(x)))];
const shadeOfWeight = (x) => blue[Math.round(255 * Math.sqrt(x))];

/** The character in row i of the window, as an option of a list, and what is told of it. */
function letter(i, words, colour) {
  const character = characters[start + i], known = idOf.has(character);
  const element = option("", known ? glyph(seen[i])
    : make("span", { class: "code" }, codeOf(character)));
  element.classList.toggle("unknown", !known);
  return tell(element, i, words, colour);
}
function tell(element, i, words, colour) {
  element.title = words;
  element.setAttribute("aria-label", `character ${start + i + 1}, ${nameOf(start + i)}, ${words}`);
  if (colour) tint(element, colour);
  return element;
}

/** Show the state: what is seen first before the rest, and what can wait when nobody types. */
function* show() {
  fillStrip();
  yield* reading(state.at - start);
  showPrediction();
  yield 1;                      // so that all this is seen
  yield* reading(seen.length);
  showCost();
  showSliders();
  yield* drawMaps();
  showRival();
  yield PAUSE;
  yield* once(rankHeads, seen.join());
  if (state.at > start) yield* once(explain, [state.at - start, ids[state.at], ...seen].join());
}

/** Do some work whose result stands on the page, unless it stands there. */
const stands = new Map();
function* once(some, key) {
  if (stands.get(some) === key) return;
  stands.delete(some);
  yield* some();
  stands.set(some, key);
}

/** Read the first T characters of the window, and colour what is read. */
function* reading(T) {
  for (let more = true; more;) {
    more = [model.read(plain, seen, null, T), edit && model.read(edited, seen, edit, T)]
      .some(Boolean);
    tintStrip();
    if (more) yield;
  }
}

/** The window's characters, in the colours that they had until their losses are known. */
function fillStrip() {
  const before = strip.options, longer = before.length - seen.length - 1;
  strip.fill([...seen.map((_, i) => letter(i, i ? "not read yet" : "not predicted")),
    option("what comes after", "▸")], seen);
  strip.options.forEach((element, i) => {
    element.style.cssText = i && before[i + longer]?.style.cssText || "";
  });
  strip.choose(state.at - start);
  strip.coloured = 0;
  byId("loss-legend").querySelector(".ramp").style.background = gradient(
    edit ? [...blue].reverse().concat(orange) : orange);
  byId("least").textContent = edit ? "better by 2 nats" : "0 nats: certain";
  byId("most").textContent = edit ? "worse by 2 nats" : `${nats(EVEN_LOSS, 2)}: a blind guess`;
  const unknown = [...new Set(characters.filter((character) => !idOf.has(character)))];
  const names = unknown.map((c) => `‘${c}’ (${codeOf(c)})`);
  byId("unknown").textContent = unknown.length ? `The model does not know ${
    names.slice(0, 8).join(", ")}${names[8] ? ", …" : ""}, and reads it as ${
    named(facts.neutral[0])}.` : "";
}

/** Colour what was read since the last time by its loss, or by how much that got worse. */
function tintStrip() {
  const read = Math.min(plain.ids.length, shown().ids.length, seen.length - 1);
  for (; strip.coloured < read; strip.coloured++) {
    const i = strip.coloured + 1, [loss, before] = [shown(), plain].map((cache) =>
      lossOf(cache.logitsOf(i - 1), seen[i])), worse = loss - before;
    if (edit) tell(strip.options[i], i, `worse by ${nats(worse)}`, shadeOf(worse / 2));
    else tell(strip.options[i], i, `loss ${nats(loss)}`, shadeOf(loss / EVEN_LOSS));
  }
}

/** What is expected at the chosen place, by the whole model and after each block. */
function showPrediction() {
  const row = state.at - 1 - start, came = ids[state.at], C = facts.config.n_embd;
  byId("prediction-title").textContent = row < 0
    ? "Nothing comes before the first character, so nothing is predicted"
    : came === undefined ? "After the text the model expects"
      : `In place ${state.at + 1} the model expects`;
  chart("expected", [], 0);
  byId("blocks").replaceChildren();
  if (row < 0) return;
  const [p, before] = [shown(), plain].map((cache) => softmax(cache.logitsOf(row).slice()));
  chart("expected", p, 8, came, (id) => edit ? ` (${share(before[id])} unchanged)` : "");
  byId("blocks").append(...shown().stream.map((x, depth) => {
    const q = softmax(model.output(x.slice(row * C, (row + 1) * C)));
    return make("tr", {}, make("th", { scope: "row" }, depth ? `after block ${depth}` : "at first"),
      ...likeliest(q, 3).map((id) => make("td", {}, `${quoted(id)} ${share(q[id])}`)),
      make("td", {}, came === undefined ? "" : share(q[came])));
  }));
}

/** The likeliest ids, and one more that is shown in any case. */
function likeliest(p, count, also) {
  const top = [...p.keys()].sort((a, b) => p[b] - p[a]).slice(0, count);
  return also === undefined || top.includes(also) ? top : [...top.slice(0, -1), also];
}

/** Bars of the likeliest characters and of the one that came; a click may take one. */
function chart(list, p, count, came, words = () => "", take = null) {
  byId(list).replaceChildren(...likeliest(p, count, came).map((id) => {
    const mark = take ? button(symbol(id), () => take(id))
      : make("span", { class: "symbol", role: "img" }, symbol(id));
    mark.setAttribute("aria-label", take ? `take ${named(id)}` : named(id));
    const row = bar(mark, p[id], share(p[id]) + words(id));
    row.classList.toggle("came", id === came);
    return row;
  }));
}

/** What the text costs, and what changes of the model cost it. */
function showCost() {
  const [before, now] = [plain, shown()].map((cache) => sumOf(cache.losses(seen)));
  const count = seen.length - 1, some = counted(count, "character"), cost = now - before;
  byId("mean").textContent = count > 0 ? `${nats(now / count)} a character on ${some}` : "";
  byId("cost").textContent = edit
    ? `These changes cost ${nats(cost)} on the ${some} above, ${nats(cost / count)} each.`
    : "Nothing is changed: this is the model as it was trained.";
}
