
// ==== Why this letter, and what counting expects

const reasons = listbox(byId("reasons"), 0, (i) => {
  reasons.choose(i);
  byId("reason").textContent = capital(reasons.options[i].ariaLabel);
});

/** The prediction with each earlier character replaced in turn, from the last one on. */
function* explain() {
  const row = state.at - 1 - start, logits = plain.logitsOf(row), window = seen.slice(0, row + 1);
  const came = ids[state.at] ?? likeliest(logits, 1)[0], before = lossOf(logits, came);
  byId("why-title").textContent = `Why ${quoted(came)} in place ${state.at + 1}?`;
  reasons.fill(window.map((_, s) => letter(s, "not tried yet")), window);
  for (let s = row; s >= 0; s--) {
    const other = window.with(s, facts.neutral[window[s] === facts.neutral[0] ? 1 : 0]);
    while (model.read(tried, other)) yield;
    const lost = lossOf(tried.logitsOf(row), came) - before;
    tell(reasons.options[s], s, nats(lost, 2), shadeOf(lost / 2));
    yield;
  }
}

// ---- The counted rival: 5-grams of the training text, interpolated (Witten & Bell 1991, method C)

let grams;              // six columns: five ids and how often they occur

async function loadCounts() {
  const numbers = new Uint32Array(await inflated("grams")), { kept, share, missing } = facts.grams;
  grams = [0, 1, 2, 3, 4, 5].map((column) => numbers.subarray(column * kept, (column + 1) * kept));
  byId("rival-words").textContent = missing ? `There are no counts beside it, because ${missing}.`
    : `Counted on the text it was trained on: ${whole(kept)} different 5-grams, ${
      (100 * share).toFixed(1)} % of it.`;
}

/** What counts expect after some ids, (V): after none of them, the last one, the last two ... */
function counts(before) {
  let p = new Float64Array(V).fill(1 / V), rows = grams[0].map((_, row) => row);
  for (let depth = 0; depth < 5; depth++) {
    if (depth) rows = rows.filter((row) => grams[4 - depth][row] === before.at(-depth));
    if (!rows.length) break;
    const times = new Float64Array(V);
    for (const row of rows) times[grams[4][row]] += grams[5][row];
    const kinds = times.filter((count) => count).length, total = sumOf(times);
    p = p.map((below, id) => (times[id] + kinds * below) / (total + kinds));
  }
  return p;
}

function showRival() {
  const before = ids.slice(Math.max(0, state.at - 4), state.at);
  if (facts.grams.kept && before.length) chart("rival", counts(before), 4, ids[state.at]);
  else chart("rival", [], 0);
}
