// The transformer of model/transformer.py in JavaScript, with its names and in its order.  A model
// reads a window of text into a Cache, which keeps what later characters need of earlier ones, so
// that a character more costs one character.  A matrix is a Float32Array, row after row.  Shapes: T
// characters that are read now, S all that were read, C channels, H heads of queries, G of keys and
// values, D channels of a head, V vocabulary.

const FNV_BASIS = 0xcbf29ce484222325n, FNV_PRIME = 0x100000001b3n;
const SINUSOID_SIZE = 0.08, SINUSOID_BASE = 10000;
const AT_ONCE = 32;         // characters that are read together at most,
const PIECE = 12;           // and the milliseconds that this may take, so that no key waits

/** x @ y.T: (T, K) and (N, K) -> (T, N).  The rows of y begin `stride` numbers apart.  Four rows
    of x meet three of y at a time, so that each number that is loaded serves several products;
    their twelve sums fit into registers.  What is after the last row is the last row again. */
function product(x, y, [N, K], stride = K) {
  const T = x.length / K, z = new Float32Array(T * N);
  for (let one = 0; one < N; one += 3) {
    const two = Math.min(one + 1, N - 1), three = Math.min(one + 2, N - 1);
    const y1 = one * stride, y2 = two * stride, y3 = three * stride;
    for (let a = 0; a < T; a += 4) {
      const b = Math.min(a + 1, T - 1), c = Math.min(a + 2, T - 1), d = Math.min(a + 3, T - 1);
      const xa = a * K, xb = b * K, xc = c * K, xd = d * K;
      let a1 = 0, a2 = 0, a3 = 0, b1 = 0, b2 = 0, b3 = 0;
      let c1 = 0, c2 = 0, c3 = 0, d1 = 0, d2 = 0, d3 = 0;
      for (let k = 0; k < K; k++) {
        const w1 = y[y1 + k], w2 = y[y2 + k], w3 = y[y3 + k];
        const va = x[xa + k], vb = x[xb + k], vc = x[xc + k], vd = x[xd + k];
        a1 += va * w1; b1 += vb * w1; c1 += vc * w1; d1 += vd * w1;
        a2 += va * w2; b2 += vb * w2; c2 += vc * w2; d2 += vd * w2;
        a3 += va * w3; b3 += vb * w3; c3 += vc * w3; d3 += vd * w3;
      }
      const za = a * N, zb = b * N, zc = c * N, zd = d * N;
      z[za + one] = a1; z[zb + one] = b1; z[zc + one] = c1; z[zd + one] = d1;
      z[za + two] = a2; z[zb + two] = b2; z[zc + two] = c2; z[zd + two] = d2;
      z[za + three] = a3; z[zb + three] = b3; z[zc + three] = c3; z[zd + three] = d3;
    }
  }
  return z;
}

/** x @ weight.T + bias: (T, inputs) -> (T, outputs). */
function linear(x, { weight, bias, shape }) {
  const y = product(x, weight, shape), [outputs] = shape;
  for (let i = 0; bias && i < y.length; i++) y[i] += bias[i % outputs];
  return y;
}

/** x + y, into a new array. */
function added(x, y) {
  return x.map((number, i) => number + y[i]);
}

/** (x - mean) / std * weight + bias, row by row; an RMS norm is not centred. */
function normed(x, C, eps, centred, weight, bias) {
  const y = new Float32Array(x.length);
  for (let row = 0; row < x.length; row += C) {
    let mean = 0, squares = 0;
    for (let i = 0; centred && i < C; i++) mean += x[row + i] / C;
    for (let i = 0; i < C; i++) squares += (x[row + i] - mean) ** 2;
    const rstd = 1 / Math.sqrt(squares / C + eps);
    for (let i = 0; i < C; i++) {
      y[row + i] = (x[row + i] - mean) * rstd * (weight ? weight[i] : 1) + (bias ? bias[i] : 0);
    }
  }
  return y;
}

/** The error function, to 1.5e-7  (Abramowitz & Stegun 1964, formula 7.1.26). */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t
    + 0.254829592) * t;
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

const ACTIVATIONS = {
  gelu: (x) => x / 2 * (1 + erf(x * Math.SQRT1_2)),
  gelu_tanh: (x) => x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  relu2: (x) => x > 0 ? x * x : 0,
  swiglu: (gate, up) => gate / (1 + Math.exp(-gate)) * up,
};

/** exp(x) / sum(exp(x)) of the first `n` numbers, in their place; those after them become 0. */
function softmax(x, n = x.length) {
  let top = -Infinity, total = 0;
  for (let i = 0; i < n; i++) if (x[i] > top) top = x[i];
  for (let i = 0; i < n; i++) total += x[i] = Math.exp(x[i] - top);
  for (let i = 0; i < n; i++) x[i] /= total;
  return x.fill(0, n);
}

/** The rows of the n-grams that end at a character, from pairs on: a hash gives each its row. */
function ngramRows(ids, t, n, count) {
  const rows = [];
  let state = FNV_BASIS;
  for (let back = 0; back < n; back++) {
    const id = t >= back ? BigInt(ids[t - back] + 1) : 0n;      // 0 before the window
    state = BigInt.asUintN(64, (state ^ id) * FNV_PRIME);
    if (back) rows.push(Number((state ^ state >> 32n) % BigInt(count)));
  }
  return rows;
}

/** -log p of an id, which is finite where p itself would be 0. */
function lossOf(logits, id) {
  const top = logits.reduce((a, b) => Math.max(a, b));
  return top - logits[id] + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - top), 0));
}

/** What a window of text has left behind: its ids, and for each block what it read and made. */
class Cache {
  constructor({ n_layer, n_head, kv_heads, n_embd, d_head, block_size, vocab_size }) {
    const some = (count, make) => Array.from({ length: count }, make);
    const matrix = (width) => () => new Float32Array(block_size * width);
    [this.ids, this.key] = [[], ""];                                    // (S), and of the change
    this.stream = some(n_layer + 1, matrix(n_embd));                    // (S, C) each
    this.queries = some(n_layer, () => some(n_head, matrix(d_head)));   // (S, D) each
    this.keys = some(n_layer, () => some(kv_heads, matrix(d_head)));    // (S, D) each
    this.values = some(n_layer, matrix(kv_heads * d_head));             // (G D, S) each
    this.logits = matrix(vocab_size)();                                 // (S, V)
    this.logitsOf = (row) => this.logits.subarray(row * vocab_size, (row + 1) * vocab_size);
  }
}

/** Attention of H heads, then an output projection.  `change` may switch heads off, or set a
    weight: { key, off(layer, head), drag: { layer, head, row, column, weight } }. */
class MultiHeadAttention {
  constructor(config, layer, parameters) {
    Object.assign(this, { config, layer, ...parameters });
    const { n_head: H, kv_heads: G, d_head: D, block_size, position, rotary_base: base } = config;
    this.shared = H / G;                // heads of queries for each of keys and values
    this.angles = Float64Array.from({ length: position === "rotary" ? block_size * D / 2 : 0 },
      (_, i) => Math.floor(2 * i / D) * base ** (-(2 * i % D) / D));
    [this.cos, this.sin] = [this.angles.map(Math.cos), this.angles.map(Math.sin)];
  }

  /** Queries, keys and values, normalised and rotated, into the cache: (T, C). */
  project(x, cache, first) {
    const { n_head: H, kv_heads: G, d_head: D, block_size, qk_norm, norm_eps } = this.config;
    const qkv = linear(x, this.qkv), width = (H + 2 * G) * D, values = cache.values[this.layer];
    const heads = qk_norm ? normed(qkv, D, norm_eps, false) : qkv.slice();
    const kept = [...cache.queries[this.layer], ...cache.keys[this.layer]];
    for (let row = 0, t = first; row < qkv.length; row += width, t++) {
      this.rotate(heads, row, t);
      kept.forEach((rows, head) => {
        for (let i = 0; i < D; i++) rows[t * D + i] = heads[row + head * D + i];
      });
      for (let i = 0; i < G * D; i++) values[i * block_size + t] = qkv[row + (H + G) * D + i];
    }
  }

  /** Turn the channels (2 i, 2 i + 1) of each head at position t by the angle t base^(-2 i / D). */
  rotate(heads, row, t) {
    const { n_head: H, kv_heads: G, d_head: D, position } = this.config;
    for (let i = row; position === "rotary" && i < row + (H + G) * D; i += 2) {
      const pair = t * D / 2 + (i - row) % D / 2, cos = this.cos[pair], sin = this.sin[pair];
      const a = heads[i], b = heads[i + 1];
      heads[i] = a * cos - b * sin;
      heads[i + 1] = b * cos + a * sin;
    }
  }

  /** softmax(q k^T / sqrt(D)), (T, S): how much a query looks at each key; the future gets 0. */
  weights(cache, head, first, T, change) {
    const D = this.config.d_head, S = first + T, drag = change?.drag;
    const query = cache.queries[this.layer][head].subarray(first * D, S * D);
    const key = cache.keys[this.layer][Math.floor(head / this.shared)];
    const shares = product(query, key, [S, D]);
    for (let t = first; t < S; t++) {
      const row = shares.subarray((t - first) * S, (t - first + 1) * S);
      for (let s = 0; s <= t; s++) row[s] /= Math.sqrt(D);
      softmax(row, t + 1);
      if (drag?.layer === this.layer && drag.head === head && drag.row === t) {
        shareOut(row.subarray(0, t + 1), drag.column, drag.weight);
      }
    }
    return shares;
  }

  /** The output for the characters from `first` on: (T, C) -> (T, C). */
  call(x, cache, first, change) {
    const { n_embd: C, n_head: H, d_head: D, block_size } = this.config, T = x.length / C;
    const mixed = new Float32Array(T * H * D);
    this.project(x, cache, first);
    for (let head = 0; head < H; head++) {
      if (change?.off(this.layer, head)) continue;
      const shares = this.weights(cache, head, first, T, change);
      const group = Math.floor(head / this.shared) * D * block_size;
      const values = cache.values[this.layer].subarray(group);
      const sums = product(shares, values, [D, first + T], block_size);
      for (let i = 0; i < sums.length; i++) {
        mixed[(Math.floor(i / D) * H + head) * D + i % D] = sums[i];
      }
    }
    return linear(mixed, this.out);
  }
}

/** Set one share, and share the rest out as before, or evenly if nothing was left. */
function shareOut(shares, column, weight) {
  const rest = 1 - shares[column], others = shares.length - 1;
  if (!others) return;
  shares.forEach((share, s) => {
    shares[s] = s === column ? weight : (1 - weight) * (rest > 0 ? share / rest : 1 / others);
  });
}

class MLP {
  constructor(config, parameters) {
    Object.assign(this, parameters);
    this.activation = ACTIVATIONS[config.activation];
  }

  /** down(activation(up(x))): (T, C) -> (T, C). */
  call(x) {
    const hidden = linear(x, this.up), gate = this.gate ? linear(x, this.gate) : hidden;
    for (let i = 0; i < hidden.length; i++) hidden[i] = this.activation(gate[i], hidden[i]);
    return linear(hidden, this.down);
  }
}

/** x + attention(norm(x)), then x + mlp(norm(x)): (T, C) -> (T, C). */
class Block {
  constructor(config, layer, { norm1, norm2, attention, mlp }) {
    Object.assign(this, { layer, norm1, norm2 });
    this.attention = new MultiHeadAttention(config, layer, attention);
    this.mlp = new MLP(config, mlp);
  }

  call(x, cache, first, change) {
    const found = this.attention.call(this.norm1(x), cache, first, change);
    if (!change?.off(this.layer, "attention")) x = added(x, found);
    if (!change?.off(this.layer, "mlp")) x = added(x, this.mlp.call(this.norm2(x)));
    return x;
  }
}

class Transformer {
  /** `parameters` are nested as the modules are: parameters.blocks[0].mlp.up.weight. */
  constructor(config, parameters) {
    this.config = config;
    Object.assign(this, parameters);
    const { n_embd: C, norm_eps: eps, norm: kind } = config;
    const norm = (of) => (x) => normed(x, C, eps, kind === "layer", of?.weight, of?.bias);
    this.blocks = Object.values(parameters.blocks).map((block, layer) => new Block(config, layer, {
      ...block, norm1: norm(block.norm1), norm2: norm(block.norm2),
    }));
    this.norm = norm(parameters.norm);
    this.pace = AT_ONCE;        // characters that this machine reads in such a time
    this.output_weight = config.tied ? parameters.token_embedding : parameters.lm_head;
  }

  /** Read some more of the first T ids of a window into a cache, after those that are the same
      there and were read with the same change; return whether some are left. */
  read(cache, window, change = null, T = window.length) {
    const { config: { n_embd: C, vocab_size: V } } = this, { key } = change ?? { key: "" };
    const other = cache.ids.findIndex((id, i) => id !== window[i] || key !== cache.key);
    const first = other < 0 ? cache.ids.length : other, last = Math.min(T, first + this.pace);
    cache.key = key;
    cache.ids = window.slice(0, Math.max(first, last));
    if (first >= T) return false;
    const begun = performance.now();
    let x = this.embed(cache.ids, first, change);
    cache.stream[0].set(x, first * C);
    this.blocks.forEach((block, layer) => {
      x = block.call(x, cache, first, change);
      cache.stream[layer + 1].set(x, first * C);
    });
    cache.logits.set(this.output(x), first * V);
    const each = (performance.now() - begun) / (last - first);
    // Four rows share the work of a product.
    this.pace = Math.max(4, Math.min(AT_ONCE, 4 * Math.floor(PIECE / (4 * each))));
    return last < T;
  }

  /** The logits for the output of the last block: (T, C) -> (T, V). */
  output(x) {
    return linear(this.norm(x), this.output_weight);
  }

  /** The input of the first block, of the ids from `first` on: (T, C). */
  embed(ids, first, change) {
    const { n_embd: C, position, ngrams, ngram_rows } = this.config, T = ids.length - first;
    const x = new Float32Array(T * C);
    const sum = (t, { weight }, row) => {
      for (let i = 0; i < C; i++) x[(t - first) * C + i] += weight[row * C + i];
    };
    for (let t = first; t < ids.length; t++) {
      sum(t, this.token_embedding, ids[t]);
      if (ngrams > 1 && !change?.off("ngrams")) {
        ngramRows(ids, t, ngrams, ngram_rows).forEach((row) => sum(t, this.ngram_embedding, row));
      }
      if (position === "learned") sum(t, this.position_embedding, t);
      if (position === "sinusoidal") sum(t, { weight: sinusoids(t, C) }, 0);
    }
    return x;
  }
}

/** The position that is added to the embedding of character t, (C). */
function sinusoids(t, C) {
  return Float32Array.from({ length: C }, (_, i) => SINUSOID_SIZE * (i % 2 ? Math.cos : Math.sin)(
    t / SINUSOID_BASE ** ((i - i % 2) / C)));
}

/** Where the window of the character after n begins: a full one moves by half a block. */
function windowStart(n, block) {
  const step = block - Math.floor(block / 2);
  return Math.max(0, -Math.floor((block - n) / step)) * step;
}

/** The probabilities from which a character is drawn, and the one that u from [0, 1) draws; a
    temperature of 0 takes the likeliest  (top-p: Holtzman et al. 2020, section 3.1). */
function draw(logits, u, temperature, top_k, top_p) {
  const ranked = [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b)
    .slice(0, temperature ? top_k : 1);
  const p = softmax(Float64Array.from(ranked, (id) => logits[id] / (temperature || 1)));
  let sum = 0;
  const fewest = p.findIndex((x) => (sum += x) >= top_p) + 1 || p.length;
  const kept = p.fill(0, fewest).reduce((a, b) => a + b);
  const probabilities = new Float64Array(logits.length);
  ranked.forEach((id, i) => { probabilities[id] = p[i] / kept; });
  sum = 0;
  const drawn = probabilities.findIndex((x) => (sum += x) > u);
  return { probabilities, drawn: drawn < 0 ? probabilities.findLastIndex(Boolean) : drawn };
}
