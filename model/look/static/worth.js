// ==== Trials while nobody types: what each head is worth, and which letters helped

let worths = { key: null, found: new Map() };       // of heads, in nats, by their names
let reasons = { key: null, found: new Map() };      // of places in the window

/** Find what each trial [name, window, change, sign] adds to the loss of the model as it is. */
function* tryEach(trials, found, loss, show) {
  const before = loss(cacheOf(true));
  yield;
  for (const [name, window, change, sign] of trials.filter(([name]) => !found.has(name))) {
    while (model.read(tried, window, change)) yield;
    const after = loss(tried);
    yield;
    found.set(name, sign * (after - before));
    show(name);
    yield;
  }
}

const hasLoss = () => seen.some((_, row) => row && isKnown(start + row));

/** What is read, and with which changes: what was measured then holds as long as this. */
const measuredKey = () => [edit?.key, ...seen].join();

/** The head switched off if it is on, and on if it is off, while all else stays as it is. */
function trialOf({ name }) {
  const isOut = state.off.includes(name), others = state.off.filter((other) => other !== name);
  const off = isOut ? others : [...others, name];
  return [name, seen, changeFrom(start, { ...state, off }), isOut ? -1 : 1];
}

/** Measure what the window loses without each head, in the model as it is changed now. */
function* measureHeads() {
  const key = measuredKey();
  if (worths.key !== key) worths = { key, found: new Map() };
  const isIn = ({ layer }) => !state.off.includes(`${layer}.attention`);
  const trials = hasLoss() ? tiles.filter(isIn).map(trialOf) : [];
  const loss = (cache) => sumOf(seen.map((_, row) => lossAt(row, cache) ?? 0));
  showWorths(trials.length);
  yield;
  yield* tryEach(trials, worths.found, loss, () => showWorths(trials.length));
}

/** Below each head what it is worth; `count` are to be measured. */
function showWorths(count = tiles.length) {
  const found = worths.key === measuredKey() ? worths.found : new Map();
  const most = Math.max(...[...found.values()].map(Math.abs), 1e-9);
  for (const { name, worth, track } of tiles) {
    const nats = found.get(name), digits = Math.abs(nats) < 9.95 ? 1 : 0;
    const harms = nats < 0 && fixed(nats, digits) !== fixed(0, digits);
    const said = nats === undefined ? "" : `${harms ? "harms" : "worth"} ${
      fixed(Math.abs(nats), digits)}\u00a0nats`;
    if (worth.textContent !== said) worth.textContent = said;           // or it is laid out anew
    track.hidden = nats === undefined;
    track.firstChild.style.width = `${100 * Math.abs(nats ?? 0) / most}%`;
    track.firstChild.classList.toggle("below", harms);
  }
  const part = ids.length > block ? live ? " coloured part of the" : " first part of the" : "";
  const as = edit ? `, with ${changesInWords({ off: state.off, drag: edit.drag })}` : "";
  const without = `Below each head: how much likelier the${part} text is with it than without it${
    as}.  One nat is 2.7 times.`;
  const waiting = !live ? "" : `  Measuring: ${found.size} of ${counted(count, "head")} so far.`;
  byId("worth-words").textContent = !hasLoss() ? `Type two ${unit}s or more, to see what each head `
    + "is worth." : !live && !found.size ? "" : without + (found.size < count ? waiting : "");
}

/** Measure how much less likely the next letter gets if one before it is replaced. */
function* explain() {
  const row = queryRow(), window = seen.slice(0, row + 1);
  if (row < 0) return;
  const key = [state.at - start, ids[state.at], measuredKey()].join();
  if (reasons.key !== key) {
    reasons = { key, found: new Map() };
    colourLetters();            // no letter keeps the reason of another place
    yield;
  }
  const came = ids[state.at] ?? likeliest(cacheOf(true).logitsOf(row), 1)[0];
  const other = (s) => window.with(s, facts.neutral[window[s] === facts.neutral[0] ? 1 : 0]);
  const trials = [...window.keys()].reverse().map((s) => [s, other(s), edit, 1]);
  const loss = (cache) => lossOf(cache.logitsOf(row), came);
  yield* tryEach(trials, reasons.found, loss, showReason);
  colourLetters();
}

const shadeOfReason = (row) => reasons.found.has(row) ? shadeOf(reasons.found.get(row) / 2) : null;

function showReason(row) {
  tint(spans[row], shadeOfReason(row));
  const copy = glance.children[row];    // in the card, while that shows the letters
  if (copy) tint(copy, shadeOfReason(row));
  showTried();
}

function showTried() {
  const { found } = reasons, count = queryRow() + 1;
  tell("tried", state.colours === "reasons" && found.size < count
    && `Replaced so far: ${found.size} of ${counted(count, unit)}, from the cursor back.`);
}
