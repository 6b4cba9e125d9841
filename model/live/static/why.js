
// ==== Why this letter, and what counting expects

/** The prediction with each earlier character replaced in turn, from the last one on. */
function* explain() {
  const row = state.at - 1 - start, logits = plain.logits(row);
  const came = ids[state.at] ?? likeliest(logits, 1)[0], before = lossOf(logits, came);
  byId("why-title").textContent = `Why ${quoted(came)} in place ${state.at + 1}?`;
  const marks = seen.slice(0, row + 1).map((id, s) => make("span", { role: "listitem",
    "aria-label": `${nameOf(start + s)}: not tried yet` }, glyph(id)));
  byId("reasons").replaceChildren(...marks);
  for (let s = row; s >= 0; s--) {
    const other = seen.slice(0, row + 1);
    other[s] = facts.neutral[other[s] === facts.neutral[0] ? 1 : 0];
    while (tried.more(other)) yield;
    const lost = lossOf(tried.logits(row), came) - before;
    tint(marks[s], shadeOf(lost / 2));
    marks[s].title = nats(lost, 2);
    marks[s].setAttribute("aria-label", `${nameOf(start + s)}: ${nats(lost, 2)}`);
    yield;
  }
}


// ---- The counted rival: 5-grams of the training text, interpolated (Witten & Bell 1991, method C)

let grams;              // five ids and a count a row; column after column

async function loadCounts() {
  const bytes = new Uint8Array(await inflated("grams")), n = facts.grams.kept;
  grams = Array.from({ length: 6 }, (_, column) => Uint32Array.from({ length: n }, (_, row) =>
    [3, 2, 1, 0].reduce((sum, byte) => 256 * sum + bytes[(4 * column + byte) * n + row], 0)));
  byId("rival-words").textContent = n ? `Counted on the text it was trained on: ${whole(n)} `
    + `different 5-grams, ${(100 * facts.grams.share).toFixed(1)} % of it.`
    : `There are no counts beside it, because ${facts.grams.missing}.`;
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
  const before = ids.slice(Math.max(0, state.at - 4), state.at), came = ids[state.at];
  const p = facts.grams.kept && before.length ? counts(before) : [];
  byId("rival").replaceChildren(...likeliest(p, 4, p.length ? came : undefined).map((id) =>
    characterBar(id, p[id], came)));
}
