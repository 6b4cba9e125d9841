// ==== The state of the page, and its numbers: computed here while one types, or once by Python

const { unit, live, config: { block_size: block, n_layer: layers, n_head: heads } } = facts;
const V = facts.config.vocab_size, EVEN_LOSS = Math.log(V);     // nats of a blind guess
const idOf = new Map(live ? facts.characters.map((character, id) => [character, id]) : []);
const symbol = (id) => facts.vocabulary[id][0];
const quoted = (id) => `‘${isolated(symbol(id))}’`;
const named = (id) => facts.vocabulary[id][1];

// What an address keeps.  Places count from 0; `at` is the one whose prediction is shown, `column`
// the one that is looked at, null for the one that is looked at most.  `off` names what is switched
// off: "ngrams", "0.attention", "0.mlp", or a layer and a head, "0.3".  `pin` is an earlier { off,
// drag } that all is compared with, in place of the whole model; or, with `beside`, the model that
// stands beside this one, with all its parts on.  `why` says that "Why this letter?" is open.
const fresh = {
  text: facts.text, at: Infinity, layer: facts.best[0], head: facts.best[1], column: null, off: [],
  drag: null, pin: facts.beside ? { off: [], drag: null, beside: true } : null,
  colours: "surprise", why: false, temperature: 0.8, top_k: V, top_p: 1,
};
const state = { ...fresh };
// What follows from it: characters or tokens as they are written, their ids, the window that
// predicts the chosen place, and what is changed there in the model, and in the pinned one.
let pieces, ids, start, seen, edit, pinned;

const isKnown = (place) => !live || idOf.has(pieces[place]);
const codeOf = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
const signOf = (place) => isKnown(place) ? symbol(ids[place]) : visible(pieces[place]);
const nameOf = (place) => isKnown(place) ? quoted(ids[place])
  : `${nameOfUnknown(pieces[place])}, unknown`;
/** The row of the window that looks back, and predicts the chosen place. */
const queryRow = () => state.at - 1 - start;

function settle() {
  if (live) {
    pieces = Array.from(state.text);
    ids = pieces.map((character) => idOf.get(character) ?? facts.neutral[0]);
  }
  state.at = bounded(state.at, 0, ids.length);
  start = windowStart(state.at, block);
  seen = ids.slice(start, start + block);
  edit = changeFrom(start);
  pinned = state.pin && changeFrom(start, state.pin);
}

const isBeside = () => state.pin?.beside;

/** Whether the model differs from the pinned one, or from the whole one if none is pinned. */
const isOther = () => isBeside() || edit?.key !== pinned?.key;

/** What is changed in a window that begins there, as engine.js asks it, or null. */
function changeFrom(start, { off, drag } = state) {
  const inside = drag && drag.column >= start && drag.row < start + block;
  const moved = inside && { ...drag, row: drag.row - start, column: drag.column - start };
  return off.length || inside ? { key: JSON.stringify([[...off].sort(), moved]), drag: moved,
    off: (...names) => off.includes(names.join(".")) } : null;
}

// ---- A living model, and perhaps one beside it.  Its caches: whole or pinned, as it is now, tried
// in idle time, and of what is saved

let model, other;
const [reference, edited, tried, kept] = [0, 0, 0, 0].map(() => live && new Cache(facts.config));
const besides = facts.beside && new Cache(facts.beside.config);
const cacheOf = (changed) => changed && isOther() ? edited : isBeside() ? besides : reference;

/** Whether the model beside this one has an id, too: it may know fewer characters. */
const isInBoth = (id) => id < facts.beside.config.vocab_size;
const readBeside = (T) => other.read(besides,
  seen.map((id) => isInBoth(id) ? id : facts.beside.neutral[0]), null, T);

const lossAt = (row, cache) => row && isKnown(start + row)
  ? lossOf(cache.logitsOf(row - 1), ids[start + row]) : null;

const computed = {
  /** Read the first T of the window, a piece at a time; return whether some are left. */
  read: (T) => [isBeside() ? readBeside(T) : model.read(reference, seen, pinned, T),
    isOther() && model.read(edited, seen, edit, T)].some(Boolean),
  rows: () => Math.min(cacheOf(false).ids.length, cacheOf(true).ids.length),
  /** -log p of what stands in a row of the window, or after its last; null if it is unknown, also
      to the model that this one is compared with. */
  loss: (row, changed) => isBeside() && !isInBoth(seen[row]) ? null
    : lossAt(row, cacheOf(changed)),
  /** The likeliest ids after a row and their probabilities, and of `also` in any case. */
  expected(row, count, also, changed = true) {
    const p = softmax(Float64Array.from(cacheOf(changed).logitsOf(row)));
    return likeliest(p, count, also).map((id) => [id, p[id]]);
  },
  /** The likeliest id, and its probability, if the model stopped before block 1, after it ... */
  depths: (row) => cacheOf(true).stream.map((x) => {
    const C = facts.config.n_embd, q = softmax(model.output(x.slice(row * C, (row + 1) * C)));
    const [id] = likeliest(q, 1);
    return [id, q[id]];
  }),
  /** How much T queries of a head look at each key, (T, first + T). */
  weights: (layer, head, first, T) => model.blocks[layer].attention.weights(cacheOf(true), head,
    first, T, edit),
};

/** The likeliest ids, and one more that is shown in any case. */
function likeliest(p, count, also) {
  const top = [...p.keys()].sort((a, b) => p[b] - p[a]).slice(0, count);
  return also === undefined || top.includes(also) ? top : [...top.slice(0, -1), also];
}

/** Unpack what model/look/weights.py packed, and nest it as the modules are. */
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
  if (facts.beside) other = new Transformer(facts.beside.config, parameters.beside);
}

// ---- A table of numbers, for one text.  Shares are whole numbers of 0.01 %

let shares;                 // of attention: of all windows, layers and heads, triangle by triangle
const fact = (row) => facts.predictions[start + row];

const tabulated = {
  read: () => false,
  rows: () => seen.length,
  loss: (row) => row ? fact(row - 1).loss : null,
  expected(row, count, also) {
    const { top, came } = fact(row), some = top.slice(0, count);
    const shown = also === undefined || some.some(([id]) => id === also) ? some
      : [...some.slice(0, -1), [also, came]];
    return shown.map(([id, units]) => [id, units / 1e4]);
  },
  depths: (row) => fact(row).blocks.map(([id, units]) => [id, units / 1e4]),
  weights(layer, head, first, T) {
    const size = (n) => n * (n + 1) / 2, number = start / (block - Math.floor(block / 2));
    const S = first + T, all = new Float32Array(T * S);
    const from = number * layers * heads * size(block) + (layer * heads + head) * size(seen.length);
    for (let row = first; row < S; row++) {
      const at = from + size(row), to = (row - first) * S;
      for (let s = 0; s <= row; s++) all[to + s] = shares[at + s] / 1e4;
    }
    return all;
  },
};

async function loadTable() {
  const bytes = new Uint8Array(await inflated("weights")), count = bytes.length / 2;
  shares = Uint16Array.from({ length: count }, (_, i) => bytes[i] | bytes[count + i] << 8);
  ids = facts.ids;
  pieces = ids.map((id) => symbol(id).replaceAll("␣", " ").replaceAll("⏎", "\n")
    .replaceAll("⇥", "\t"));
  state.text = fresh.text = pieces.join("");
}

const source = live ? computed : tabulated;

// ---- Work in pieces, so that no key press waits for long

const PAUSE = 400;      // milliseconds without a key, before what can wait
let job;                // what is done: a generator, which yields how many milliseconds may pass
let untold = [];        // names of the elements that are told when they are shown

const { port1: going, port2: goOn } = new MessageChannel();
going.start();

/** Let the browser do other things, for some milliseconds.  A message waits its turn behind what is
    due, where scheduler.yield goes before timers, and comes at once, where setTimeout takes 4 ms. */
function rest(pause) {
  return new Promise((go) => {
    if (pause) {
      setTimeout(go, pause);
    } else {
      going.addEventListener("message", go, { once: true });
      goOn.postMessage("");
    }
  });
}

/** Do some work in place of earlier work. */
async function work(generator) {
  job = generator;
  for (const pause of generator) {
    await rest(pause);
    if (job !== generator) return;
  }
}

/** Change the state and show it; what is chosen is a step in the history, a key press is not.
    The elements named in `told` are told when they are shown. */
function update(news, step = true, told = untold) {
  if (isWriting() && ("text" in news || "at" in news)) pause();
  untold = told;
  Object.assign(state, news);
  settle();
  work(show());
  if (step !== null) remember(step);
}

/** Show the state, then write what is to be written, and do what can wait when nobody types. */
function* show() {
  yield* showAll();
  if (!live) return;
  if (isWriting()) yield* writeOn();
  yield PAUSE;
  if (byId("why").open) yield* measureParts();
  if (state.colours === "reasons") yield* explain();
  yield* measureHeads();
}

/** Show the state: what is seen first before the rest, in pieces. */
function* showAll() {
  fillLetters();
  yield;
  if (isWriting()) followCursor();
  showWindow();
  showLegend();
  yield;
  yield* reading(queryRow() + 1);
  yield;
  showNext();
  yield 1;                      // so that all this is seen
  yield* showWrite();
  yield;
  yield* reading(seen.length);
  showCost();
  yield;
  showChanges();
  showSwitches();
  yield;
  yield* showPair();
  yield;
  showHead();
  yield;
  showMap();
  yield;
  showWorths();
  yield;
  showTried();
  if (state.pin && untold.includes("cost")) untold = [...untold, "parting"];
  const news = untold.map((id) => byId(id).textContent).join("  ");
  if (news) byId("status").textContent = news;
  untold = [];
  yield;
  colourLetters();
  yield* drawHeads();
}

function* reading(T) {
  for (let more = true; more;) {
    more = source.read(T);
    if (state.colours === "surprise") colourLetters();
    if (more) yield;
  }
}
