
// ==== What the page holds, and small helpers to show it.  Shares and probabilities are whole
// numbers of 0.01 %; places count from 0 in the code, and from 1 where a reader sees them.

const { ids, windows, unit } = facts;
const layers = facts.heads.length, heads = facts.heads[0].length;

// What is looked at.  Row and column are places in the window, null where nothing is followed.
const state = {
  character: 1, window: 0, layer: 0, head: 0, row: null, column: null, follow: "query",
};

/** Where the window begins in the text, and how many ids it has. */
const start = () => windows[state.window].start;
const length = () => windows[state.window].length;

/** What the model expected of a character; the first has nothing before it, and no prediction. */
const expected = (character) => facts.characters[character - 1];


// ---- Elements and words

const percent = (units) => units === null ? "–" : `${(units / 100).toFixed(2)}\u00a0%`;
const probability = (units) => units === 0 ? "<\u00a00.01\u00a0%" : percent(units);

/** The same for a character. */
function characterBar(id, units, value) {
  const mark = make("span", { class: "symbol", role: "img", "aria-label": named(id) }, symbol(id));
  return bar(mark, units / 1e4, value);
}

/** A name, a number, and what it means. */
function entry(name, number, meaning) {
  return make("div", {}, make("dt", {}, name),
    make("dd", {}, make("b", {}, number), make("small", {}, meaning)));
}


// ---- Attention weights: deflated, low bytes before high bytes, lower triangles row by row

let weights;                // of all windows, layers and heads, one after another
const offsets = [];         // where each window's begin

async function unpackWeights() {
  const bytes = new Uint8Array(await inflated("weights"));
  const count = bytes.length / 2;
  weights = Uint16Array.from({ length: count }, (_, i) => bytes[i] | bytes[count + i] << 8);
  let at = 0;
  for (const { length } of windows) {
    offsets.push(at);
    at += layers * heads * length * (length + 1) / 2;
  }
}

/** The weights of a head in the window. */
function triangle(layer, head) {
  const size = length() * (length() + 1) / 2;
  const from = offsets[state.window] + (layer * heads + head) * size;
  return weights.subarray(from, from + size);
}

/** How much a query (row) looks at a key (column), in units. */
const weight = (map, row, column) => map[row * (row + 1) / 2 + column];


const byRoot = () => document.querySelector("[name=shade]:checked").value === "root";
const shadeOfLoss = (loss) => orange[Math.round(255 * bounded(loss / facts.even_loss, 0, 1))];
const rooted = (units, root) => root ? Math.sqrt(units / 1e4) : units / 1e4;
const shadeOfWeight = (units) => blue[Math.round(255 * rooted(units, byRoot()))];
