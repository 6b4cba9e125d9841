// ==== The flow: every part as a box that can be switched

const tiles = [];               // of all heads, layer by layer: { layer, head, name, canvas, tile ... }
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
  const { name: called, does } = facts.heads[layer][head], canvas = make("canvas");
  const worth = make("span"), track = make("span", { class: "track", hidden: "" },
    make("span", { class: "fill" }));
  const tile = button(() => update({ layer, head, column: null }), canvas,
    make("span", { class: "called" }, called), worth, track,
    unseen(`, ${headName(layer, head)} ${does}`));
  tile.className = "head";
  const name = `${layer}.${head}`, power = toggle(name, headName(layer, head));
  return { layer, head, name, canvas, tile, power, worth, track };
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
    element.replaceChildren(...depth && depths[depth] ? [depth > 1 ? "then says " : "says ",
      make("b", {}, quoted(depths[depth][0])), ` ${share(depths[depth][1])}`] : []);
  });
}

/** Draw what has the theme's colours: a print takes its picture before `show` has come so far. */
function drawAtOnce() {
  while (source.read(seen.length));
  colourLetters();
  showLegend();
  showHead();
  for (const _ of drawHeads());
  for (const _ of showPair());
}
