
// ==== The text: a field to type into, its losses, and what is expected at the chosen place

const strip = listbox(byId("letters"), 0, (at) => choosePlace(at));
const nats = (x, digits = 3) => `${fixed(x, digits)} nats`;
const share = (p) => p < 5e-5 ? "<\u00a00.01\u00a0%" : `${(100 * p).toFixed(2)}\u00a0%`;
const nameOf = (i) => idOf.has(characters[i]) ? named(ids[i]) : `unknown ${codeOf(characters[i])}`;
const codeOf = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase()
  .padStart(4, "0")}`;
const fixed = (x, digits) => x.toFixed(digits).replace(/^-(?=[0.]+$)/, "").replace("-", "−");

/** Draw the text again after a key press: what is seen first is computed first. */
function typed() {
  const start = startOf(state.at), window = windowAt(start), key = changeKey();
  const lost = unknown();
  byId("unknown").hidden = !lost.length;
  byId("unknown").textContent = `The model does not know ${lost.slice(0, 8).map((character) =>
    `‘${character}’ (${codeOf(character)})`).join(", ")}${lost.length > 8 ? ", …" : ""}.  It reads `
    + `${lost.length === 1 ? "it" : "them"} as ${named(facts.neutral[0])}.`;
  work("text", (function* () {
    yield* plain.read(window);
    if (change()) yield* edited.read(window, change(), key);
  })(), () => {
    fillStrip(start, window);
    showPrediction();
    showChange(window);
    work("maps", drawMaps());
  });
  turn(60);
  later();
}

const changeKey = () => JSON.stringify([[...state.off].sort(), state.drag]);

/** Fill the strip with the window's characters, tinted by loss, or by what got worse. */
function fillStrip(start, window) {
  const before = plain.losses(window), now = shown().losses(window);
  const values = change() ? now.map((loss, i) => loss - before[i]) : now;
  strip.fill([...window.map((id, i) => {
    const at = start + i, known = idOf.has(characters[at]);
    const words = i ? `, ${change() ? "worse by" : "loss"} ${nats(values[i - 1])}` : "";
    const element = option(`character ${at + 1}, ${nameOf(at)}${words}`,
      known ? glyph(id) : make("span", { class: "code" }, codeOf(characters[at])));
    if (!known) element.classList.add("unknown");
    if (i) tint(element, shadeOf(values[i - 1]));
    return element;
  }), option("what comes after", "▸")], window);
  strip.start = start;
  strip.choose(state.at - start);
  byId("loss-legend").querySelector(".ramp").style.background = change()
    ? gradient([...blue].reverse().concat(orange)) : gradient(orange);
  byId("least").textContent = change() ? "better by 2 nats" : "0 nats: certain";
  byId("most").textContent = change() ? "worse by 2 nats"
    : `${EVEN_LOSS.toFixed(2)} nats: a blind guess`;
  const sum = now.reduce((a, b) => a + b, 0);
  byId("mean").textContent = now.length
    ? `${nats(sum / now.length)} a character on ${counted(now.length, "character")}` : "";
}

const shadeOf = (x) => change() ? (x < 0 ? blue : orange)[Math.round(
  255 * bounded(Math.abs(x) / 2, 0, 1))] : orange[Math.round(255 * bounded(x / EVEN_LOSS, 0, 1))];

function choosePlace(i, quiet = false) {
  state.at = strip.start + i;
  state.column = Math.max(0, i - 1);
  strip.choose(i);
  if (startOf(state.at) !== strip.start) typed();
  else {
    showPrediction();
    work("maps", drawMaps());
    later();
  }
  if (!quiet) remember();
  if (state.at) say(byId("prediction-title").textContent + ": " + byId("expected").textContent);
}

/** What is expected at the chosen place, by the whole model, after each block, and by counts. */
function showPrediction() {
  const row = state.at - 1 - startOf(state.at), after = state.at === ids.length;
  byId("prediction-title").textContent = row < 0
    ? "Nothing comes before the first character, so nothing is predicted"
    : after ? "After the text the model expects" : `In place ${state.at + 1} the model expects`;
  for (const id of ["expected", "blocks", "rival"]) byId(id).replaceChildren();
  if (row < 0) return;
  const p = softmax(shown().logits(row)), before = change() && softmax(plain.logits(row));
  const came = after ? null : ids[state.at];
  byId("expected").replaceChildren(...likeliest(p, 8, came).map((id) => characterBar(id, p[id],
    came, before && ` (${share(before[id])} unchanged)`)));
  const C = facts.config.n_embd, stream = shown().cache.stream;
  byId("blocks").replaceChildren(...stream.map(({ data }, depth) => {
    const q = softmax(model.output(data.subarray(row * C, (row + 1) * C)));
    return make("tr", {}, make("th", { scope: "row" }, depth ? `after block ${depth}` : "at first"),
      ...likeliest(q, 3).map((id) => make("td", {}, `${quoted(id)} ${share(q[id])}`)),
      make("td", {}, came === null ? "" : share(q[came])));
  }));
  showRival(came);
}

/** The likeliest ids, and one more that is shown in any case. */
function likeliest(p, count, also = null) {
  const ranked = [...p.keys()].sort((a, b) => p[b] - p[a]), top = ranked.slice(0, count);
  return also === null || top.includes(also) ? top : [...top.slice(0, -1), also];
}

function characterBar(id, p, came, words) {
  const mark = make("span", { class: "symbol", role: "img", "aria-label": named(id) }, symbol(id));
  const row = bar(mark, p, share(p) + (words || ""));
  row.classList.toggle("came", id === came);
  return row;
}


// ---- The counted rival: 5-grams of the training text, interpolated (Witten & Bell 1991, method C)

let grams;              // five ids and a count a row; column after column

async function loadCounts() {
  const bytes = new Uint8Array(await inflated("grams")), n = facts.grams.kept;
  grams = Array.from({ length: 6 }, (_, column) => Uint32Array.from({ length: n }, (_, row) =>
    [0, 1, 2, 3].reduce((sum, byte) => sum + bytes[(4 * column + byte) * n + row] * 256 ** byte, 0)));
}

/** What counts expect after some ids, (V): rows that share the last ids lie together. */
function counts(before) {
  let p = new Float64Array(V).fill(1 / V), [low, high] = [0, facts.grams.kept];
  for (let depth = 0; depth < 5; depth++) {
    if (depth) {
      const id = before.at(-depth), column = grams[4 - depth];
      if (id === undefined) break;
      [low, high] = [low, high].map((_, k) => firstAtLeast(column, id + k, low, high));
    }
    const seen = new Float64Array(V);
    let total = 0;
    for (let row = low; row < high; row++) {
      seen[grams[4][row]] += grams[5][row];
      total += grams[5][row];
    }
    const kinds = seen.filter((count) => count).length;
    if (!kinds) break;
    p = p.map((below, id) => (seen[id] + kinds * below) / (total + kinds));
  }
  return p;
}

/** The first row from `low` on whose number is at least x. */
function firstAtLeast(column, x, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

function showRival(came) {
  if (!facts.grams.kept) return;
  const p = counts(ids.slice(Math.max(0, state.at - 4), state.at));
  byId("rival").replaceChildren(...likeliest(p, 4, came).map((id) => characterBar(id, p[id], came)));
}
