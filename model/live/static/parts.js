
// ==== Take it apart: every head as a map and a switch, one row to drag, and which heads matter

const maps = Array.from({ length: layers * heads }, (_, i) => {
  const [layer, head] = [Math.floor(i / heads), i % heads], canvas = make("canvas");
  const choice = button(canvas, () => update({ layer, head }));
  choice.className = "head";
  choice.setAttribute("aria-label", `map of layer ${layer + 1}, head ${head + 1}`);
  return { layer, head, name: `${layer}.${head}`, canvas, choice };
});
const keys = listbox(byId("keys"), 0, (column) => {
  state.column = column;
  showKeys();
  remember();
});

function fillParts() {
  byId("heads").style.gridTemplateColumns = `auto repeat(${heads}, minmax(0, 1fr))`;
  byId("heads").append(...maps.flatMap(({ layer, head, name, choice }) => {
    const words = `layer ${layer + 1}`;
    const parts = make("div", { class: "axis" }, words, toggle(`${layer}.attention`,
      `attention of ${words}`, "attention"), toggle(`${layer}.mlp`, `MLP of ${words}`, "MLP"));
    return [...head ? [] : [parts],
      make("div", {}, choice, toggle(name, `head ${head + 1} of ${words}`))];
  }));
  if (facts.config.ngrams > 1) byId("switches").append(toggle("ngrams", "n-grams", "n-grams"));
}

/** A switch of one part of the model. */
function toggle(part, name, words = "") {
  const box = make("input", { type: "checkbox", "data-part": part, "aria-label": name });
  return make("label", { class: "switch" }, box, make("span", {}, words));
}

function setOff(part, off) {
  update({ off: [...state.off.filter((other) => other !== part), ...off ? [part] : []] });
}

/** The row of the query: the character before the chosen place. */
const queryRow = () => Math.max(0, state.at - 1 - start);

/** How much some queries of a head look at each key, (T, S). */
const weightsOf = (layer, head, first, T) => model.blocks[layer].attention.weights(
  shown(), head, first, T, edit);
const lookedAt = () => weightsOf(state.layer, state.head, queryRow(), 1);

/** The switches, the chosen head and its row first, then all heads. */
function* drawMaps() {
  for (const box of document.querySelectorAll("[data-part]")) {
    box.checked = !state.off.includes(box.dataset.part);
  }
  byId("reset").disabled = !edit;
  byId("head-title").textContent = `Layer ${state.layer + 1}, head ${state.head + 1}`;
  showKeys();
  drawHead(byId("map"), state);
  for (const map of maps) {
    const { layer, head, name } = map, off = state.off.includes(name);
    map.choice.setAttribute("aria-pressed", layer === state.layer && head === state.head);
    map.choice.classList.toggle("off", off || state.off.includes(`${layer}.attention`));
    drawHead(map.canvas, map);
    yield;
  }
}

function drawHead(canvas, { layer, head }) {
  const T = seen.length, shares = weightsOf(layer, head, 0, T);
  paint(canvas, T, (row, column) => Math.sqrt(shares[row * T + column]));
}

/** The chosen row: what its query looks at, and the weight that can be dragged. */
function showKeys() {
  const row = queryRow(), column = Math.min(state.column, row);
  const shares = seen.length ? [...lookedAt()] : [];
  keys.fill(shares.map((p, s) => letter(s, share(p), shadeOfWeight(p))), seen.slice(0, row + 1));
  byId("weight").disabled = row === 0;
  byId("weight").value = shares[column] ?? 0;
  byId("weight-words").textContent = "";
  if (!shares.length) return;
  keys.choose(column);
  const place = (i) => `character ${start + i + 1}, ${nameOf(start + i)},`;
  byId("weight-words").textContent = `${capital(place(row))} looks at ${place(column)} with ${
    share(shares[column])}.`;
}

/** Try the text without each head in turn. */
function* rankHeads() {
  const before = sumOf(plain.losses(seen)), found = [];
  for (const { layer, head, name } of maps) {
    const without = { key: name, off: (l, h) => l === layer && h === head };
    while (model.read(tried, seen, without)) yield;
    found.push([sumOf(tried.losses(seen)) - before, `${layer + 1}.${head + 1}`]);
  }
  const most = Math.max(...found.map(([worth]) => Math.abs(worth)), 1e-9);
  byId("ranking").replaceChildren(...found.sort(([a], [b]) => b - a).map(([worth, name]) =>
    bar(make("span", {}, name), Math.abs(worth) / most, nats(worth, 2))));
}

function listenToParts() {
  on("alone", "click", () => {
    const chosen = `${state.layer}.${state.head}`, all = maps.map(({ name }) => name);
    update({ off: [...new Set([...state.off, ...all])].filter((name) => name !== chosen) });
  });
  on("parts", "change", ({ target: { dataset, checked } }) => {
    if (dataset.part) setOff(dataset.part, !checked);
  });
  on("reset", "click", () => update({ off: [], drag: null }));
  on("weight", "input", ({ target }) => {
    const { layer, head } = state, row = queryRow(), column = Math.min(state.column, row);
    update({ drag: { layer, head, row, column, weight: Number(target.value) } });
  });
  on("map", "click", ({ offsetX, offsetY, target }) => {
    const cell = target.clientWidth / seen.length, row = Math.floor(offsetY / cell);
    update({ at: start + row + 1, column: Math.min(row, Math.floor(offsetX / cell)) });
  });
}
