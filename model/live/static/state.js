
// ==== What the page holds: the model, the text, what is changed in the model, and work to do

const { block_size: block, n_layer: layers, n_head: heads, vocab_size: V } = facts.config;
const idOf = new Map(facts.characters.map((character, id) => [character, id]));

// What an address keeps.  `at` is the place whose character is predicted, from 0; `off` names what
// is switched off: "ngrams", "0.attention", "0.mlp", or a layer and a head, "0.3".
const state = {
  text: facts.text, at: Infinity, layer: 0, head: 0, column: 0, off: [], drag: null,
  temperature: 0.8, top_k: V, top_p: 1,
};
// What follows from it: the text, and the window that predicts the chosen place; what is changed in
// the model, as engine.js asks it, or null.
let model, characters, ids, start, seen, edit;

/** Change the state and show it; what is chosen is a step in the history, a key press is not. */
function update(news, step = true) {
  Object.assign(state, news);
  const { text, off, drag } = state;
  characters = Array.from(text);
  ids = idsOf(text);
  state.at = bounded(state.at, 0, ids.length);
  start = windowStart(state.at, block);
  seen = ids.slice(start, start + block);
  edit = off.length || drag ? { key: JSON.stringify([off, drag]), drag,
    off: (...names) => off.includes(names.join(".")) } : null;
  if (byId("input").value !== text) byId("input").value = text;
  work(show());
  remember(step);
}

/** What the model does not know is read as `neutral`. */
const idsOf = (text) => Array.from(text, (character) => idOf.get(character) ?? facts.neutral[0]);

/** Unpack what model/live/weights.py packed, and nest it as the modules are. */
async function loadModel() {
  const buffer = await inflated("weights"), parameters = {};
  let at = 0;
  for (const { name, shape, exact } of facts.tensors) {
    const size = shape.reduce((a, b) => a * b), floats = exact ? size : shape[0];
    let numbers = new Float32Array(buffer, at, floats);
    at += 4 * floats;
    if (!exact) {
      const scales = numbers, whole = new Int8Array(buffer, at, size);
      numbers = new Float32Array(size);
      for (let i = 0; i < size; i++) numbers[i] = whole[i] * scales[Math.floor(i / shape[1])];
      at += 4 * Math.ceil(size / 4);
    }
    const path = name.split("."), what = path.pop();
    const module = path.reduce((found, part) => found[part] ??= {}, parameters);
    Object.assign(module, what === "weight" ? { weight: numbers, shape } : { [what]: numbers });
  }
  model = new Transformer(facts.config, parameters);
}

// The model as it is, as it is changed, and as it is tried in idle time.
const [plain, edited, tried] = [0, 0, 0].map(() => new Cache(facts.config));
const shown = () => edit ? edited : plain;

let job;                // what is done: a generator, which yields how many milliseconds may pass

/** Do some work in place of earlier work, in pieces, so that no key press waits for long. */
async function work(generator) {
  job = generator;
  for (const pause of generator) {
    if (!pause && globalThis.scheduler?.yield) await scheduler.yield();
    else await new Promise((go) => setTimeout(go, pause));
    if (job !== generator) return;
  }
}
