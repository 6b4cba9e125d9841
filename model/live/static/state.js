
// ==== What the page holds: the model, the text, what is changed in the model, and work to do

const { block_size: block, n_layer: layers, n_head: heads, vocab_size: V } = facts.config;
const idOf = new Map(facts.characters.map((character, id) => [character, id]));
const EVEN_LOSS = Math.log(V), AT_ONCE = 32, SLICE = 12;    // characters; milliseconds

// What an address keeps.  `at` is the place whose character is predicted, from 0; `off` names what
// is switched off: "ngrams", "0.attention", "0.mlp", or a layer and a head, "0.3".
const state = {
  text: facts.text, at: Infinity, layer: 0, head: 0, column: 0, off: new Set(), drag: null,
  temperature: 0.8, top_k: V, top_p: 1,
};
let model, characters, ids;     // of the text; what the model does not know is read as `neutral`

async function inflated(id) {
  const packed = Uint8Array.from(atob(byId(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  byId(id).remove();
  return new Response(stream).arrayBuffer();
}

/** Unpack what model/live/weights.py packed, and nest it as the modules are. */
async function loadModel() {
  const buffer = await inflated("weights"), parameters = {};
  const sizes = facts.tensors.map(({ shape }) => shape.reduce((a, b) => a * b, 1));
  const floats = facts.tensors.map(({ shape, exact }, i) => exact ? sizes[i] : shape[0]);
  let at = 0, byte = 4 * floats.reduce((a, b) => a + b, 0);
  facts.tensors.forEach(({ name, shape, exact }, i) => {
    let numbers = new Float32Array(buffer, at, floats[i]);
    at += 4 * floats[i];
    if (!exact) {
      const scales = numbers, whole = new Int8Array(buffer, byte, sizes[i]);
      numbers = new Float32Array(sizes[i]);
      for (let k = 0; k < sizes[i]; k++) numbers[k] = whole[k] * scales[Math.floor(k / shape[1])];
      byte += sizes[i];
    }
    const path = name.split("."), what = path.pop();
    const of = path.reduce((found, part, k) =>
      found[part] ??= /^\d+$/.test(path[k + 1]) ? [] : {}, parameters);
    of[what] = numbers;
    if (what === "weight") of.shape = shape;
  });
  model = new Transformer(facts.config, parameters);
}

function setText(text) {
  state.text = text;
  characters = Array.from(text);
  ids = characters.map((character) => idOf.get(character) ?? facts.neutral[0]);
  state.at = bounded(state.at, 0, ids.length);
}

const unknown = () => [...new Set(characters.filter((character) => !idOf.has(character)))];

/** Where the window begins that predicts the character at a place, and the ids that it reads. */
const startOf = (at) => at < 1 ? 0 : windowStart(at, block);
const windowAt = (start) => ids.slice(start, start + block);

/** What is changed in the model, as engine.js asks it; null if nothing is. */
function change({ off, drag } = state) {
  return off.size || drag ? { drag, off: (...names) => off.has(names.join(".")) } : null;
}

/** Reads a window into a cache, a few characters at a time, and only what is new in it. */
class Reader {
  cache = new Cache(facts.config);
  changed = "";

  *read(window, changed = null, key = "") {
    const { ids: known } = this.cache;
    let same = known.findIndex((id, i) => id !== window[i]);
    if (same < 0) same = known.length;
    this.cache.cut(key === this.changed ? same : 0);
    this.changed = key;
    while (known.length < window.length) {
      model.read(this.cache, window.slice(known.length, known.length + AT_ONCE), changed);
      yield;
    }
  }

  /** The logits after a row, (V). */
  logits(row) {
    return this.cache.logits.data.subarray(row * V, (row + 1) * V);
  }

  /** -log p of each character of a window but its first: (T - 1). */
  losses(window) {
    return window.slice(1).map((id, row) => lossOf(this.logits(row), id));
  }
}

function lossOf(logits, id) {
  let top = -Infinity, total = 0;
  for (const value of logits) top = Math.max(top, value);
  for (const value of logits) total += Math.exp(value - top);
  return top + Math.log(total) - logits[id];
}

const [plain, edited] = [new Reader(), new Reader()];   // the model as it is, and as it is changed
const shown = () => change() ? edited : plain;


// ---- Work in slices, the most urgent first, so that a key press never waits for long

const URGENCY = ["text", "maps", "rest", "heads", "why"];
const jobs = new Map(), turns = new MessageChannel();

/** Do the work of a generator, then `done`, instead of earlier work of that name. */
function work(name, generator, done = () => {}) {
  jobs.set(name, { generator, done });
  turns.port2.postMessage(null);
}

/** Work for some milliseconds; what is urgent may take `longer`. */
function turn(longer = SLICE) {
  const began = performance.now();
  for (const name of URGENCY) {
    while (jobs.has(name)) {
      const job = jobs.get(name);
      if (job.generator.next().done) {
        if (jobs.get(name) === job) jobs.delete(name);
        job.done();
      }
      if (performance.now() - began > (name === "text" ? longer : SLICE)) {
        turns.port2.postMessage(null);
        return;
      }
    }
  }
}

turns.port1.onmessage = () => turn();
