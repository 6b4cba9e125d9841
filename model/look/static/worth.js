// ==== Trials while nobody types: what each head is worth, which letters and which parts helped

// What was found, in nats, by the names of the trials, and what it holds for.
const nothing = () => ({ found: new Map() });
const worths = nothing(), reasons = nothing(), effects = nothing();

/** Find what each trial [name, window, change, sign] adds to the loss of the model as it is; what
    was found before is kept if the key is the same. */
function* tryEach(kept, key, trials, loss, show) {
  if (kept.key !== key) Object.assign(kept, nothing(), { key });
  show();
  yield;
  const before = loss(cacheOf(true));
  yield;
  for (const [name, window, change, sign] of trials.filter(([name]) => !kept.found.has(name))) {
    while (model.read(tried, window, change)) yield;
    const after = loss(tried);
    yield;
    kept.found.set(name, sign * (after - before));
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
  const isIn = ({ layer }) => !state.off.includes(`${layer}.attention`);
  const trials = hasLoss() ? tiles.filter(isIn).map(trialOf) : [];
  const loss = (cache) => sumOf(seen.map((_, row) => lossAt(row, cache) ?? 0));
  yield* tryEach(worths, measuredKey(), trials, loss, () => showWorths(trials.length));
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
  const waiting = `  Measuring: ${found.size} of ${counted(count, "head")} so far.`;
  byId("worth-words").textContent = !hasLoss() ? `Type two ${unit}s or more, to see what each head `
    + "is worth." : !live && !found.size ? "" : without + (found.size < count ? waiting : "");
}

/** The letter at the cursor, or the likeliest one after the text. */
const foreseen = () => ids[state.at] ?? likeliest(cacheOf(true).logitsOf(queryRow()), 1)[0];

/** Try what may change how likely the letter at the cursor is. */
function tryAtCursor(kept, trials, show) {
  const row = queryRow(), came = foreseen();
  const key = [state.at - start, ids[state.at], measuredKey()].join();
  return tryEach(kept, key, trials, (cache) => lossOf(cache.logitsOf(row), came), show);
}

/** Measure how much less likely the next letter gets if one before it is replaced. */
function* explain() {
  const window = seen.slice(0, queryRow() + 1);
  if (!window.length) return;
  const other = (s) => window.with(s, facts.neutral[window[s] === facts.neutral[0] ? 1 : 0]);
  const trials = [...window.keys()].reverse().map((s) => [s, other(s), edit, 1]);
  yield* tryAtCursor(reasons, trials, showReason);
}

const shadeOfReason = (row) => reasons.found.has(row) ? shadeOf(reasons.found.get(row) / 2) : null;

/** Colour the letter of a row; without one, all of them. */
function showReason(row) {
  if (row === undefined) return colourLetters();
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

// ---- Why this letter: what each part adds to its log p

const MOST_BARS = 12;

/** Measure how much less likely the letter at the cursor gets without each part that is on, then
    without all of them: n-grams, heads and MLPs. */
function* measureParts() {
  const window = seen.slice(0, queryRow() + 1), words = byId("effects-words");
  if (!window.length) {
    words.textContent = `Nothing comes before the first ${unit}.`;
    showEffects([]);
    return;
  }
  const parts = Array.from(byId("heads").querySelectorAll(
    "[aria-checked=true]:not([data-part$=attention])"), (box) => box.dataset.part);
  const without = (name, some) => [name, window,
    changeFrom(start, { ...state, off: [...state.off, ...some] }), 1];
  const trials = [...parts.map((part) => without(partName(part), [part])), without("all", parts)];
  const said = `By how many nats each part makes ${quoted(foreseen())} likelier ${
    afterWhat(state.at)}: each is taken out alone, and all else stays.`;
  byId("effects").ariaBusy = "true";      // until then the bars are those of before, and pale
  yield* tryAtCursor(effects, trials, () => {
    words.textContent = `${said}  Measuring: ${effects.found.size} of ${trials.length} so far.`;
  });
  const { all, ...alone } = Object.fromEntries(effects.found);
  const sum = sumOf(Object.values(alone));
  words.textContent = `${said}  Their sum is ${signed(sum)}; all at once come to ${signed(all)}.  `
    + `The remainder, ${signed(all - sum)}, is what they do together: a later part reads what `
    + `earlier ones wrote, and where one is missing, others do some of its work.${
      parts.length > MOST_BARS ? `  Below are the ${MOST_BARS} largest.` : ""}`;
  showEffects(Object.entries(alone));
}

/** The largest effects as bars of either sign. */
function showEffects(effects) {
  byId("effects").ariaBusy = "false";
  byId("effects").replaceChildren();
  effects.sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  for (const [name, nats] of effects.slice(0, MOST_BARS)) {
    const size = nats / Math.abs(effects[0][1] || 1) / 2;
    const fill = bar(byId("effects"), name, Math.abs(size), signed(nats), 0.5)
      .querySelector(".fill");
    fill.style.left = `${50 + 100 * Math.min(0, size)}%`;
    fill.classList.toggle("below", nats < 0);
  }
}

on("why", "toggle", () => {
  const why = byId("why").open;
  if (why !== state.why) update({ why }, false);      // else the address has opened it
});
