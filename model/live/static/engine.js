// The transformer of model/transformer.py in JavaScript, with its names and in its order.
//
// A matrix is an array of floats, row after row: (T, C) are T characters of C channels.  A model
// reads a window of text into a Cache, which keeps what later characters need of earlier ones, so
// that a character more costs one character.  Shapes: T characters that are read now, S all that
// were read, H heads of queries, G of keys and values, D channels of a head, V vocabulary.

const FNV_BASIS = 0xcbf29ce484222325n, FNV_PRIME = 0x100000001b3n;
const SINUSOID_SIZE = 0.08, SINUSOID_BASE = 10000, QK_NORM_EPS = 1e-5;

/** x @ weight.T + bias + residual: (T, inputs) -> (T, outputs).  Two outputs of four characters at
    a time, so that each number that is loaded serves several products. */
function linear(x, { weight, bias, shape: [outputs, inputs] }, residual) {
  const T = x.length / inputs, y = new Float32Array(T * outputs);
  for (let t = 0; t < T; t += 4) {
    const a = t * inputs, last = (T - 1) * inputs;      // rows after the last are the last again
    const b = Math.min(a + inputs, last), c = Math.min(b + inputs, last);
    const d = Math.min(c + inputs, last);
    for (let o = 0; o < outputs; o += 2) {
      const one = o * inputs, two = Math.min(o + 1, outputs - 1) * inputs;
      let a1 = 0, b1 = 0, c1 = 0, d1 = 0, a2 = 0, b2 = 0, c2 = 0, d2 = 0;
      for (let i = 0; i < inputs; i++) {
        const w1 = weight[one + i], w2 = weight[two + i];
        const xa = x[a + i], xb = x[b + i], xc = x[c + i], xd = x[d + i];
        a1 += w1 * xa; b1 += w1 * xb; c1 += w1 * xc; d1 += w1 * xd;
        a2 += w2 * xa; b2 += w2 * xb; c2 += w2 * xc; d2 += w2 * xd;
      }
      const sums = [a1, b1, c1, d1, a2, b2, c2, d2];
      for (let k = 0; k < 8; k++) {
        const row = t + k % 4, column = o + (k >> 2);
        if (row >= T || column >= outputs) continue;
        y[row * outputs + column] = sums[k] + (bias?.[column] ?? 0);
      }
    }
  }
  return residual ? add(y, residual) : y;
}

function add(x, y) {
  return x.map((value, i) => value + y[i]);
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
      y[row + i] = (x[row + i] - mean) * rstd * (weight?.[i] ?? 1) + (bias?.[i] ?? 0);
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
  relu2: (x) => Math.max(x, 0) ** 2,
  swiglu: (gate, up) => gate / (1 + Math.exp(-gate)) * up,
};

function softmax(x) {
  const top = x.reduce((a, b) => Math.max(a, b), -Infinity);
  const e = Float64Array.from(x, (value) => Math.exp(value - top));
  const total = e.reduce((a, b) => a + b, 0);
  return e.map((value) => value / total);
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

/** What a window of text has left behind: its ids, and for each block what it read and made. */
class Cache {
  constructor({ n_layer }) {
    this.ids = [];
    this.stream = Array.from({ length: n_layer + 1 }, () => new Rows());    // (S, C) each
    this.queries = Array.from({ length: n_layer }, () => new Rows());       // (S, H D)
    this.keys = Array.from({ length: n_layer }, () => new Rows());          // (S, G D)
    this.values = Array.from({ length: n_layer }, () => new Rows());        // (S, G D)
    this.logits = new Rows();                                               // (S, V)
  }

  /** Forget all after the first S characters. */
  cut(S) {
    this.ids.length = Math.min(S, this.ids.length);
  }
}

/** A matrix that grows by rows. */
class Rows {
  data = new Float32Array(0);

  put(first, width, rows) {
    const end = first * width + rows.length;
    if (end > this.data.length) {
      const larger = new Float32Array(Math.max(end, 2 * this.data.length));
      larger.set(this.data);
      this.data = larger;
    }
    this.data.set(rows, first * width);
  }
}

/** Attention of H heads, then an output projection.  `change` may switch heads off, or set a
    weight: { off(layer, head), drag: { layer, head, row, column, weight } }. */
class MultiHeadAttention {
  constructor(config, layer, parameters) {
    Object.assign(this, { config, layer, ...parameters });
    const { n_head: H, kv_heads, d_head, position } = config;
    this.heads = H;
    this.shared = H / kv_heads;         // heads of queries for each of keys and values
    this.widths = [H * d_head, kv_heads * d_head];
    this.slopes = Array.from({ length: H }, (_, h) => position === "alibi"
      ? 2 ** (-8 * (h + 1) / H) : 0);
  }

  /** Queries, keys and values, normalised and rotated, into the cache: (T, C). */
  project(x, cache, first) {
    const qkv = linear(x, this.qkv), [q, kv] = this.widths, width = q + 2 * kv;
    for (let row = 0, t = first; row < qkv.length; row += width, t++) {
      const heads = qkv.subarray(row, row + q + kv);    // of the queries and of the keys
      if (this.config.qk_norm) heads.set(normed(heads, this.config.d_head, QK_NORM_EPS, false));
      if (this.config.position === "rotary") this.rotate(heads, t);
      cache.queries[this.layer].put(t, q, heads.subarray(0, q));
      cache.keys[this.layer].put(t, kv, heads.subarray(q));
      cache.values[this.layer].put(t, kv, qkv.subarray(row + q + kv, row + width));
    }
  }

  /** Turn the channels (2 i, 2 i + 1) of each head at position t by the angle t base^(-2 i / D). */
  rotate(heads, t) {
    const { d_head: D, rotary_base: base } = this.config;
    for (let pair = 0; pair < D; pair += 2) {
      const angle = t * base ** (-pair / D), cos = Math.cos(angle), sin = Math.sin(angle);
      for (let i = pair; i < heads.length; i += D) {
        const [a, b] = [heads[i], heads[i + 1]];
        heads[i] = a * cos - b * sin;
        heads[i + 1] = b * cos + a * sin;
      }
    }
  }

  /** softmax(q k^T / sqrt(D) - slope |t - s|): how much query t of a head looks at each key up to
      itself, (t + 1). */
  weights(cache, head, t, change) {
    const D = this.config.d_head, [wide, narrow] = this.widths, scores = new Float64Array(t + 1);
    const query = cache.queries[this.layer].data, key = cache.keys[this.layer].data;
    const from = t * wide + head * D, group = Math.floor(head / this.shared) * D;
    for (let s = 0; s <= t; s++) {
      let dot = 0;
      for (let i = 0; i < D; i++) dot += query[from + i] * key[s * narrow + group + i];
      scores[s] = dot / Math.sqrt(D) - this.slopes[head] * (t - s);
    }
    const shares = softmax(scores), drag = change?.drag;
    const dragged = drag?.layer === this.layer && drag.head === head && drag.row === t;
    return dragged ? sharedOut(shares, drag.column, drag.weight) : shares;
  }

  /** The output for the characters from `first` on: (T, C). */
  mix(cache, first, T, residual, change) {
    const D = this.config.d_head, [wide, narrow] = this.widths, mixed = new Float32Array(T * wide);
    const value = cache.values[this.layer].data, sum = new Float64Array(D);
    for (let head = 0; head < this.heads; head++) {
      if (change?.off(this.layer, head)) continue;
      const group = Math.floor(head / this.shared) * D;
      for (let t = first; t < first + T; t++) {
        const shares = this.weights(cache, head, t, change);
        sum.fill(0);
        for (let s = 0; s <= t; s++) {
          for (let i = 0; i < D; i++) sum[i] += shares[s] * value[s * narrow + group + i];
        }
        mixed.set(sum, (t - first) * wide + head * D);
      }
    }
    return linear(mixed, this.out, residual);
  }
}

/** Set one share, and share the rest out as before. */
function sharedOut(shares, column, weight) {
  const rest = 1 - shares[column], others = shares.length - 1;
  return shares.map((share, s) => s === column ? (others ? weight : 1)
    : (1 - weight) * (rest > 0 ? share / rest : 1 / others));
}

class MLP {
  constructor(config, parameters) {
    Object.assign(this, parameters);
    this.activation = ACTIVATIONS[config.activation];
  }

  /** down(activation(up(x))) + residual: (T, C) -> (T, C). */
  call(x, residual) {
    const up = linear(x, this.up), gate = this.gate && linear(x, this.gate);
    const hidden = gate ? gate.map((value, i) => this.activation(value, up[i]))
      : up.map((value) => this.activation(value));
    return linear(hidden, this.down, residual);
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
    const T = x.length / this.attention.config.n_embd;
    this.attention.project(this.norm1(x), cache, first);
    if (!change?.off(this.layer, "attention")) {
      x = this.attention.mix(cache, first, T, x, change);
    }
    return change?.off(this.layer, "mlp") ? x : this.mlp.call(this.norm2(x), x);
  }
}

class Transformer {
  /** `parameters` are nested as the modules are: parameters.blocks[0].mlp.up.weight. */
  constructor(config, parameters) {
    this.config = config;
    Object.assign(this, parameters);
    const { n_embd: C, norm_eps: eps, norm: kind } = config;
    const norm = (of) => (x) => normed(x, C, eps, kind === "layer", of?.weight, of?.bias);
    this.blocks = parameters.blocks.map((block, layer) => new Block(config, layer, {
      ...block, norm1: norm(block.norm1), norm2: norm(block.norm2),
    }));
    this.norm = norm(parameters.norm);
    this.output_weight = config.tied ? parameters.token_embedding : parameters.lm_head;
  }

  /** Read more ids after those in the cache; their logits go into it. */
  read(cache, ids, change) {
    const { config: { n_embd: C, vocab_size: V } } = this, first = cache.ids.length;
    cache.ids.push(...ids);
    let x = this.embed(cache.ids, first, change);
    cache.stream[0].put(first, C, x);
    this.blocks.forEach((block, layer) => {
      x = block.call(x, cache, first, change);
      cache.stream[layer + 1].put(first, C, x);
    });
    cache.logits.put(first, V, this.output(x));
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

/** Where the window begins from which the character after n others is predicted: a full one moves
    by half a block. */
function windowStart(n, block) {
  const step = block - Math.floor(block / 2);
  return Math.max(0, -Math.floor((block - n) / step)) * step;
}

/** The probabilities from which a character is drawn, and the one that u from [0, 1) draws; a
    temperature of 0 takes the likeliest  (top-p: Holtzman et al. 2020, section 3.1). */
function draw(logits, u, temperature, top_k, top_p) {
  let ranked = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b)
    .slice(0, temperature ? top_k : 1);
  let p = ranked.map((id) => Math.exp((logits[id] - logits[ranked[0]]) / (temperature || 1)));
  const reached = p.map(((sum) => (x) => sum += x)(0)), total = reached.at(-1);
  const fewest = reached.findIndex((sum) => sum >= top_p * total) + 1 || ranked.length;
  [ranked, p] = [ranked.slice(0, fewest), p.slice(0, fewest)];
  const probabilities = new Float64Array(logits.length), kept = p.reduce((a, b) => a + b, 0);
  ranked.forEach((id, i) => { probabilities[id] = p[i] / kept; });
  const likely = ranked.sort((a, b) => a - b);
  let sum = 0;
  const drawn = likely.find((id) => (sum += probabilities[id]) > u) ?? likely.at(-1);
  return { probabilities, drawn };
}
