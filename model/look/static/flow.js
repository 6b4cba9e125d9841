// ==== The flow: every part as a box that can be switched, and what each head is worth

const tiles = [];               // of all heads, layer by layer: { layer, head, name, canvas, tile }
const stops = [];               // rows of what the arrow keys go through

/** A box that is on or off; in a page that does not compute, only its name. */
function toggle(part, words) {
  const element = make(live ? "button" : "span", { class: "part", ...live
    && { type: "button", role: "switch", "data-part": part, tabindex: "-1" } }, words);
  if (live) element.addEventListener("click", () => setOff(part, !state.off.includes(part)));
  return element;
}

function fillFlow() {
  const flow = byId("heads"), { ngrams } = facts.config;
  const level = (name, ...children) => make("div", { class: "level" }, make("p", { class: "axis" },
    name), make("div", { class: "boxes" }, ...children), make("p", { class: "depth" }));
  const input = [make("span", { class: "part" }, "embedding"),
    ...ngrams > 1 ? [toggle("ngrams", "n-grams")] : []];
  if (!live) byId("flow-title").textContent = "The parts of the model";
  flow.append(level(unit, ...input));
  if (live && ngrams > 1) stops.push([input[1]]);
  for (let layer = 0; layer < layers; layer++) {
    const attention = toggle(`${layer}.attention`, "attention");
    const mlp = toggle(`${layer}.mlp`, "MLP");
    const row = Array.from({ length: heads }, (_, head) => fillTile(layer, head));
    const box = make("div", { class: "tiles" },
      ...row.map(({ tile, power }) => make("div", {}, tile, power)));
    flow.append(level(`block ${layer + 1}`, attention, box, mlp));
    tiles.push(...row);
    stops.push([attention, ...row.map(({ tile }) => tile), mlp].filter((x) => x.matches("button")));
    if (live) stops.push([attention, ...row.map(({ power }) => power), mlp]);
  }
  flow.addEventListener("keydown", moveInFlow);
  flow.addEventListener("focusin", ({ target }) => enterFlowAt(target));
  enterFlowAt(tiles[0].tile);
}

function fillTile(layer, head) {
  const { label, does } = facts.heads[layer][head], canvas = make("canvas");
  const more = make("span", { class: "unseen" }, `, ${headName(layer, head)} ${does}`);
  const tile = button(() => update({ layer, head, column: null }), canvas,
    make("span", {}, label), more);
  tile.className = "head";
  const name = `${layer}.${head}`, power = toggle(name, headName(layer, head));
  return { layer, head, name, canvas, tile, power };
}

let line = 0;                   // the row of `stops` where the keyboard is

/** The keyboard enters the flow where it was. */
function enterFlowAt(element) {
  if (!stops[line].includes(element)) line = stops.findIndex((some) => some.includes(element));
  for (const stop of stops.flat()) stop.tabIndex = stop === element ? 0 : -1;
}

function moveInFlow(event) {
  const to = moved(event, line, stops[line].indexOf(event.target));
  if (!to) return;
  line = bounded(to[0], 0, stops.length - 1);
  stops[line][bounded(to[1], 0, stops[line].length - 1)].focus();
}

const isOff = (layer, head) => [`${layer}.${head}`, `${layer}.attention`]
  .some((part) => state.off.includes(part));

/** The switches, and what would be expected if the model stopped at each place. */
function showSwitches() {
  for (const box of document.querySelectorAll("[data-part]")) {
    box.setAttribute("aria-checked", !state.off.includes(box.dataset.part));
  }
  for (const { layer, head, tile } of tiles) {
    tile.setAttribute("aria-pressed", layer === state.layer && head === state.head);
    tile.classList.toggle("off", isOff(layer, head));
  }
  const depths = queryRow() < 0 ? [] : source.depths(queryRow());
  document.querySelectorAll(".depth").forEach((element, depth) => {
    element.replaceChildren(...depths[depth] ? [depth ? "then says " : "says ",
      make("b", {}, quoted(depths[depth][0])), ` ${share(depths[depth][1])}`] : []);
  });
}

function* drawHeads() {
  for (const { layer, head, canvas } of tiles) {
    paintHead(canvas, source.weights(layer, head, 0, seen.length));
    yield;
  }
}

/** Draw what has the theme's colours: a print takes its picture before `show` has come so far. */
function drawAtOnce() {
  while (source.read(seen.length));
  colourLetters();
  showHead();
  for (const _ of drawHeads());
}

// ---- What each head is worth: the window read without it

let worths = { key: null, found: new Map() };

/** Find what each trial [name, window, change] adds to the loss of a cache, until a time. */
function* tryEach(trials, found, loss, until) {
  const before = loss(plain);
  for (const [name, window, change] of trials.filter(([name]) => !found.has(name))) {
    for (let more = true; more;) {
      if (performance.now() > until) return;
      more = model.read(tried, window, change);
      yield;
    }
    found.set(name, loss(tried) - before);
    colourLetters();
  }
}

const hasLoss = () => seen.some((_, row) => source.loss(row, true) !== null);

function* rankHeads(until) {
  const key = seen.join();
  if (worths.key !== key) worths = { key, found: new Map() };
  const trials = !hasLoss() ? [] : tiles.map(({ layer, head, name }) => [name, seen,
    { key: name, off: (l, h) => l === layer && h === head }]);
  const loss = (cache) => sumOf(seen.map((_, row) => lossAt(row, cache) ?? 0));
  yield* tryEach(trials, worths.found, loss, until);
  showWorths();
}

function showWorths() {
  const list = byId("worth"), { found } = worths, missing = tiles.length - found.size;
  const most = Math.max(...[...found.values()].map(Math.abs), 1e-9);
  const ranked = tiles.filter(({ name }) => found.has(name))
    .sort((a, b) => found.get(b.name) - found.get(a.name));
  refill(list, () => ranked.forEach(({ layer, head, name }) => {
    const choice = button(() => update({ layer, head, column: null }),
      `${headName(layer, head)} `, small(facts.heads[layer][head].label));
    bar(list, choice, found.get(name) / most, nats(found.get(name), 2));
  }));
  const where = live ? "the coloured" : `its first ${whole(Math.min(block, ids.length))}`;
  byId("worth-words").textContent = found.size ? "To the right, in orange: the text gets less "
    + "likely without this head.  To the left, in blue: it gets likelier.  One nat is 2.7 times."
    + (ids.length > block ? `  Measured on ${where} ${unit}s.` : "")
    + (missing ? `  ${counted(missing, "head")} left out, to spare your battery.` : "")
    : hasLoss() ? "Not measured for this text." : `Type two ${unit}s or more, and wait a moment.`;
}
