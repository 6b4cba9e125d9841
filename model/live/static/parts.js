
// ==== Take it apart: every head as a map and a switch, one row to drag, and which heads matter

const buttons = Array.from({ length: layers }, () => []);   // the maps, by layer and head
const keys = listbox(byId("keys"), 0, (column) => {
  state.column = column;
  showKeys();
});
let worth = null;           // what each head is worth to the text, in nats

/** How much the character before the chosen place looks at each one so far: (row + 1). */
const rowOf = () => Math.max(0, state.at - 1 - startOf(state.at));
const lookedAt = (row = rowOf()) => model.blocks[state.layer].attention.weights(
  shown().cache, state.head, row, change());

function fillParts() {
  byId("heads").append(...buttons.flatMap((row, layer) => {
    row.push(...Array.from({ length: heads }, (_, head) => {
      const map = make("canvas", { width: 1, height: 1 });
      const button = make("button", { class: "head", type: "button" }, map, make("p"));
      button.addEventListener("click", () => chooseHead(layer, head));
      return button;
    }));
    return [make("div", { class: "axis" }, `layer ${layer + 1}`,
      toggle(`${layer}.attention`, "attention"), toggle(`${layer}.mlp`, "MLP")), ...row];
  }));
  byId("heads").style.gridTemplateColumns = `auto repeat(${heads}, minmax(0, 1fr))`;
  if (facts.config.ngrams > 1) byId("whole").append(toggle("ngrams", "n-grams"));
}

/** A switch of one part of the model. */
function toggle(name, words) {
  const box = make("input", { type: "checkbox", "data-part": name });
  box.addEventListener("change", () => setOff(name, !box.checked));
  return make("label", { class: "switch" }, box, words);
}

function setOff(name, off) {
  state.off[off ? "add" : "delete"](name);
  changed();
}

/** Take a new state of the model: the switches, the text and the address follow. */
function changed() {
  for (const box of document.querySelectorAll("[data-part]")) {
    box.checked = !state.off.has(box.dataset.part);
  }
  byId("reset").disabled = !change();
  typed();
  remember();
}

function chooseHead(layer, head) {
  Object.assign(state, { layer, head });
  work("maps", drawMaps());
  remember();
}

/** Draw the chosen head and its row first, then all heads, a few milliseconds at a time. */
function* drawMaps() {
  const { layer, head } = state;
  byId("head-title").textContent = `Layer ${layer + 1}, head ${head + 1}`;
  for (const [name, off] of [["head-on", `${layer}.${head}`]]) {
    byId(name).dataset.part = off;
    byId(name).checked = !state.off.has(off);
  }
  showKeys();
  yield* paint(byId("map"), layer, head);
  for (const [l, row] of buttons.entries()) {
    for (const [h, button] of row.entries()) {
      const off = state.off.has(`${l}.${h}`) || state.off.has(`${l}.attention`);
      button.setAttribute("aria-pressed", l === layer && h === head);
      button.classList.toggle("off", off);
      const words = off ? "off" : worth ? `${fixed(worth[l][h], 2)} nats` : "";
      button.querySelector("p").textContent = words;
      button.setAttribute("aria-label", `layer ${l + 1}, head ${h + 1} ${words}`);
      yield* paint(button.querySelector("canvas"), l, h);
    }
  }
}

/** A head's weights as a picture, a pixel for each; the future stays transparent. */
function* paint(canvas, layer, head) {
  const T = Math.max(1, shown().cache.ids.length), image = new ImageData(T, T);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = blue.map(([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0);
  for (let row = 0; row < shown().cache.ids.length; row++) {
    model.blocks[layer].attention.weights(shown().cache, head, row, change()).forEach((w, column) => {
      pixels[row * T + column] = colours[Math.round(255 * Math.sqrt(w))];
    });
    if (row % AT_ONCE === 0) yield;
  }
  canvas.width = canvas.height = T;
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** The chosen row: what its query looks at, and the weight that can be dragged. */
function showKeys() {
  const start = startOf(state.at), row = rowOf();
  if (row >= shown().cache.ids.length) return;
  const shares = lookedAt(), column = Math.min(state.column, row);
  keys.fill([...shares].map((share_, s) => {
    const element = option(`${nameOf(start + s)}, ${share(share_)}`, glyph(ids[start + s]));
    tint(element, blue[Math.round(255 * Math.sqrt(share_))]);
    return element;
  }), ids.slice(start, start + row + 1));
  keys.choose(column);
  byId("weight").value = shares[column];
  byId("weight").disabled = row === 0;
  byId("weight-words").textContent = `Character ${start + row + 1}, ${nameOf(start + row)}, looks at `
    + `character ${start + column + 1}, ${nameOf(start + column)}, with ${share(shares[column])}.`;
}

function dragWeight() {
  const { layer, head, column } = state;
  state.drag = { layer, head, row: rowOf(), column, weight: Number(byId("weight").value) };
  changed();
}

/** What the changes cost the text. */
function showChange(window) {
  const sum = (reader) => reader.losses(window).reduce((a, b) => a + b, 0);
  const cost = change() ? sum(edited) - sum(plain) : 0;
  byId("cost").textContent = change() ? `These changes cost ${nats(cost)} on the `
    + `${counted(window.length - 1, "character")} above, ${nats(cost / (window.length - 1))} each.`
    : "Nothing is changed: this is the model as it was trained.";
}

/** Try the text without each head in turn. */
function* rankHeads(window) {
  const sums = [], alone = new Reader();
  const before = plain.losses(window).reduce((a, b) => a + b, 0);
  for (let layer = 0; layer < layers; layer++) {
    sums.push([]);
    for (let head = 0; head < heads; head++) {
      const without = { off: (l, h) => l === layer && h === head };
      yield* alone.read(window, without, `${layer}.${head}`);
      sums[layer].push(alone.losses(window).reduce((a, b) => a + b, 0) - before);
    }
  }
  worth = sums;
  const ranked = sums.flatMap((row, layer) => row.map((x, head) => [x, layer, head]));
  const most = Math.max(...ranked.map(([x]) => Math.abs(x)), 1e-9);
  byId("ranking").replaceChildren(...ranked.sort((a, b) => b[0] - a[0]).map(([x, layer, head]) =>
    bar(make("span", {}, `${layer + 1}.${head + 1}`), Math.abs(x) / most, `${fixed(x, 2)} nats`)));
  work("maps", drawMaps());
}

function listenToParts() {
  byId("head-on").addEventListener("change", (event) =>
    setOff(event.target.dataset.part, !event.target.checked));
  byId("alone").addEventListener("click", () => {
    for (const [l, row] of buttons.entries()) {
      row.forEach((_, h) => state.off[l === state.layer && h === state.head ? "delete" : "add"](
        `${l}.${h}`));
    }
    changed();
  });
  byId("weight").addEventListener("input", dragWeight);
  byId("reset").addEventListener("click", () => {
    state.off.clear();
    state.drag = null;
    changed();
  });
  byId("map").addEventListener("click", (event) => {
    const box = byId("map").getBoundingClientRect(), T = shown().cache.ids.length;
    const [x, y] = [event.clientX - box.left, event.clientY - box.top]
      .map((along) => bounded(Math.floor(along / box.width * T), 0, T - 1));
    choosePlace(y + 1);
    state.column = Math.min(x, y);
    showKeys();
  });
}
