
// ==== Why this letter: the prediction with each earlier character replaced in turn

const FAR = 64;         // characters back, at most

function* explain(window, came) {
  const row = window.length - 1, before = -lossOf(plain.logits(row), came), reader = new Reader();
  const losses = new Array(row + 1).fill(null);
  for (let s = row; s >= Math.max(0, row - FAR); s--) {
    const other = window.slice();
    other[s] = facts.neutral[other[s] === facts.neutral[0] ? 1 : 0];
    yield* reader.read(other);
    losses[s] = before + lossOf(reader.logits(row), came);
    if (s % 8 === 0 || s === row) showReasons(window, losses);
  }
  showReasons(window, losses);
}

/** Each character, tinted by what the prediction loses without it. */
function showReasons(window, losses) {
  const start = startOf(state.at);
  byId("reasons").replaceChildren(...window.map((id, s) => {
    const words = losses[s] === null ? "not tried" : nats(losses[s], 2);
    const element = make("span", {
      role: "listitem", title: words, "aria-label": `${nameOf(start + s)}: ${words}`,
    }, glyph(id));
    if (losses[s] !== null) {
      tint(element, (losses[s] < 0 ? blue : orange)[Math.round(
        255 * bounded(Math.abs(losses[s]) / 2, 0, 1))]);
    }
    return element;
  }));
}

/** Start the work that can wait, when nobody has typed for a moment. */
let waiting;
function later() {
  clearTimeout(waiting);
  for (const name of ["rest", "heads", "why"]) jobs.delete(name);
  waiting = setTimeout(() => {
    const start = startOf(state.at), window = windowAt(start), row = state.at - 1 - start;
    work("rest", wholeText());
    if (window.length > 1) work("heads", rankHeads(window));
    byId("reasons").replaceChildren();
    if (row < 0) return;
    const came = ids[state.at] ?? likeliest(plain.logits(row), 1)[0];
    byId("why-title").textContent = `Why ${quoted(came)} in place ${state.at + 1}?`;
    work("why", explain(window.slice(0, row + 1), came));
  }, 400);
}

/** The mean loss of a text of several windows, each with half of it new. */
function* wholeText() {
  byId("whole-mean").textContent = "";
  if (ids.length <= block) return;
  let sum = 0, from = 1;
  for (let start = 0; from < ids.length; start += block - Math.floor(block / 2)) {
    const reader = new Reader(), window = windowAt(start);
    yield* reader.read(window);
    const losses = reader.losses(window);
    for (; from < start + window.length; from++) sum += losses[from - start - 1];
    byId("whole-mean").textContent = `The first ${counted(from, "character")} of the text have `
      + `${nats(sum / (from - 1))} each.`;
  }
}
