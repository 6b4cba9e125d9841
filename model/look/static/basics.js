
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

const symbol = (id) => facts.vocabulary[id][0];
const quoted = (id) => `‘${symbol(id)}’`;
const named = (id) => facts.vocabulary[id][1];
const percent = (units) => units === null ? "–" : `${(units / 100).toFixed(2)}\u00a0%`;
const probability = (units) => units === 0 ? "<\u00a00.01\u00a0%" : percent(units);

/** The symbol of a character or token, smaller where it is a code. */
function glyph(id) {
  return make("span", symbol(id).startsWith("U+") ? { class: "code" } : {}, symbol(id));
}

/** A row of a list of bars: a name, a share of the full width, a number. */
function bar(name, share, value) {
  const fill = make("span", { class: "fill" });
  fill.style.width = `${100 * share}%`;
  return make("li", {}, name, make("span", { class: "track", "aria-hidden": "true" }, fill),
    make("span", { class: "value" }, value));
}

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
  const packed = Uint8Array.from(atob(byId("weights").textContent), (c) => c.charCodeAt(0));
  const inflated = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(inflated).arrayBuffer());
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
const shadeOfWeight = (units) => blue[Math.round(
  255 * (byRoot() ? Math.sqrt(units / 1e4) : units / 1e4))];

// ---- Lists of characters, of which one is chosen by pointer or keyboard

function option(label, ...children) {
  return make("span", {
    role: "option", "aria-selected": "false", "aria-label": label, tabindex: "-1",
  }, ...children);
}

/** A listbox of options, of which those from `first` on can be chosen; pick(i) hears the choice. */
function listbox(box, first, pick) {
  const list = { options: [], chosen: first };
  const go = (i) => {
    const to = bounded(i, first, list.options.length - 1);
    pick(to);
    list.options[to].focus();
  };
  box.addEventListener("click", (event) => {
    const i = list.options.indexOf(event.target.closest("[role=option]"));
    if (i >= first) go(i);
  });
  box.addEventListener("keydown", (event) => {
    const { options } = list, at = options.indexOf(document.activeElement);
    const to = {
      ArrowLeft: () => at - 1, ArrowRight: () => at + 1,
      ArrowUp: () => lineAway(options, at, -1), ArrowDown: () => lineAway(options, at, 1),
      Home: () => first, End: () => options.length - 1,
    }[event.key];
    if (!to) return;
    event.preventDefault();
    go(to());
  });
  /** Take new options, one for each id and perhaps one more: words whole, lines as in the text. */
  list.fill = (options, ofIds) => {
    let word = make("span", { class: "word" });
    box.replaceChildren(word);
    options.forEach((element, i) => {
      const shown = i < ofIds.length ? symbol(ofIds[i]) : "";
      if (/^␣./u.test(shown)) box.append(word = make("span", { class: "word" }));
      word.append(element);
      if (shown.endsWith("⏎")) box.append(make("br"));
      if (/[␣⇥⏎]$/.test(shown)) box.append(word = make("span", { class: "word" }));
    });
    list.options = options;
    list.choose(null);
  };
  /** Mark an option as chosen, or none; the keyboard enters the list where the last one was. */
  list.choose = (i) => {
    const before = list.options[list.chosen];
    before?.setAttribute("aria-selected", "false");
    before?.setAttribute("tabindex", "-1");
    list.chosen = bounded(i ?? list.chosen, first, list.options.length - 1);
    list.options[list.chosen].setAttribute("aria-selected", i !== null);
    list.options[list.chosen].setAttribute("tabindex", "0");
  };
  return list;
}

/** The option nearest to one, on the line above (-1) or below (1). */
function lineAway(options, at, direction) {
  const boxes = options.map((element) => element.getBoundingClientRect());
  const beyond = (box, top) => direction * (box.top - top) > boxes[at].height / 2;
  const line = boxes.filter((box) => beyond(box, boxes[at].top))
    .reduce((a, b) => direction * (b.top - a) < 0 ? b.top : a, direction * Infinity);
  const away = (box) => Math.abs(box.top - line) > boxes[at].height / 2 ? Infinity
    : Math.abs(box.left - boxes[at].left);
  return boxes.reduce((best, box, i) => away(box) < away(boxes[best]) ? i : best, at);
}
