// ==== Write at the cursor: a line from 0 to 1, a number that is drawn

let last = null;        // letter: { before, rest, drawn, u, probabilities, taken, found }
let writing = null;     // what is being written: { text, index, count, left, paused, after }
const isCalm = matchMedia("(prefers-reduced-motion: reduce)");

/** What is drawn depends on this. */
const circumstances = () => JSON.stringify([state.text, state.at, state.off, state.drag,
  state.temperature, state.top_k, state.top_p]);
const isLast = () => last?.found === circumstances();

const drawFrom = (logits, u) => draw(logits, u, state.temperature, state.top_k, state.top_p);

/** What is drawn at the cursor, when all before it is read. */
const drawAtCursor = (u) => ({ u, before: pieces.slice(0, state.at), rest: pieces.slice(state.at),
  ...drawFrom(cacheOf(true).logitsOf(queryRow()), u) });

/** Whether letters are still to come where the last one was written: a reader who types ends it. */
const isUnfinished = () => writing?.left > 0 && writing.after === textAndPlace();
const isWriting = () => isUnfinished() && !writing.paused;
const textAndPlace = () => JSON.stringify([state.text, state.at]);

/** Write some letters, each at the place of a number that is drawn. */
function write(count) {
  if (isUnfinished()) pause();
  writing = { count, left: count, paused: false, text: state.text, index: indexOf(state.at),
    after: textAndPlace() };
  work(show());
}

/** Go on after a pause.  Its text stays the one before the first letter, for the undo of all. */
function resume() {
  Object.assign(writing, { paused: false, index: indexOf(state.at) });
  work(show());
}

/** Milliseconds from a letter to the next: four a second at first, then faster and faster. */
const beat = (n) => Math.max(50, 250 * 0.92 ** Math.max(0, n - 4));

/** Write what is left, letter by letter before the reader's eyes, or at once without motion. */
function* writeOn() {
  while (writing.left) {
    while (source.read(queryRow() + 1)) yield;
    writeLetter();
    yield;
    if (!writing.left || isCalm.matches) continue;
    const due = performance.now() + beat(writing.count - writing.left);
    let isSeen = false;
    for (const pause of showAll()) {
      yield pause;
      isSeen ||= pause > 0;             // the letter, and what is expected after it
      if (isSeen && performance.now() > due) break;
    }
    yield Math.max(0, due - performance.now());
  }
  keepWritten();
}

/** Draw a letter, put it at the cursor, and the cursor behind it. */
function writeLetter() {
  last = drawAtCursor(Math.random());
  const before = [...last.before, facts.characters[last.drawn]], all = [...before, ...last.rest];
  const text = all.join(""), at = before.length;
  Object.assign(state, { text, at, column: null, ...keptDrags(pieces, all) });
  settle();
  last.found = circumstances();
  writing.left--;
  writing.after = textAndPlace();
}

/** Give the field, which has not changed meanwhile, all that was written as one step, which its undo
    knows, and say it.  What it got at a pause is taken back before. */
function keepWritten() {
  const { text, index } = writing, after = state.text, end = indexOf(state.at);
  if (input.value === after) return;
  setText(after, end, input.value !== text);
  byId("status").textContent = `Written: ${after.slice(index, end)}`;
}

/** Stop for now; whoever goes to the field finds there what was written. */
function pause() {
  writing.paused = true;
  keepWritten();
}

/** Take another letter in place of the one that was drawn, or at the cursor. */
function takeInstead(id) {
  if (isUnfinished()) pause();
  if (source.rows() <= queryRow() || isLast() && id === (last.taken ?? last.drawn)) return;
  last = { ...isLast() ? last : drawAtCursor(null), taken: id };
  const before = [...last.before, facts.characters[id]], after = [...before, ...last.rest].join("");
  setText(after, before.join("").length);
  last.found = circumstances();
}

/** The line that the last letter was drawn from, or the one for the next. */
function* showWrite() {
  if (!live) return;
  byId("one").disabled = byId("many").disabled = !state.at;
  byId("many").textContent = isWriting() ? "Pause" : isUnfinished() ? "Go on" : "Write 50";
  byId("drawn-words").ariaLive = isWriting() ? "off" : "polite";
  for (const id of ["temperature", "top_k", "top_p"]) {
    byId(id).value = state[id];
    byId(`${id}-now`).textContent = state[id];
  }
  const line = byId("line"), wasWritten = isLast(), shown = [];
  if (!state.at) {
    line.replaceChildren();
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
    shown.push(piece);
    if (id === drawn) from = low;
    low += p;
  });
  const hasNeedle = wasWritten && u !== null;
  if (hasNeedle) shown.push(make("i", { class: "needle", style: `left: ${100 * u}%` }));
  byId("drawn-words").textContent = !wasWritten ? `This is the line for the ${unit} at the cursor.`
    : !hasNeedle ? `You took ${quoted(taken)} from this line.`
    : `The number ${fixed(u, 3)} was drawn.  It falls on ${quoted(drawn)}, which has ${
      fixed(from, 3)} to ${fixed(from + probabilities[drawn], 3)}.${
      taken === undefined ? "" : `  You took ${quoted(taken)} instead.`}`;
  yield;
  const hadFocus = line.contains(document.activeElement);
  line.replaceChildren(...shown);
  if (hadFocus) line.querySelector("[tabindex='0']").focus({ preventScroll: true });
}

on("line", "keydown", (event) => {
  const parts = [...byId("line").querySelectorAll("button")];
  const to = moved(event, 0, parts.indexOf(event.target));
  if (to) parts[bounded(to[1], 0, parts.length - 1)].focus();
});

for (const event of ["keydown", "pointerdown"]) {
  input.addEventListener(event, () => { if (isWriting()) pause(); });
}

byId("top_k").max = V;
for (const id of ["temperature", "top_k", "top_p"]) {
  on(id, "input", ({ target }) => update({ [id]: Number(target.value) }, null));
  on(id, "change", ({ target }) => update({ [id]: Number(target.value) }));
}
on("one", "click", () => write(1));
on("many", "click", () => {
  if (isWriting()) return pause();
  if (!isUnfinished()) return write(50);
  resume();
});
