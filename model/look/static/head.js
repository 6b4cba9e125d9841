// ==== The chosen head: its map, what its row looks at, and a weight to drag

const canvas = byId("map").querySelector("canvas"), picture = make("canvas");
let plot;                       // where the map is drawn, in CSS pixels: left, top, cell

// ---- The shades of weights: by their square root, up to the largest after the first rows

const FIRST_ROWS = 20;          // look at few, each with much weight
let largest = 1;                // weight of all heads in the rows after these, as last drawn

const shadeStep = (weight) => Math.sqrt(bounded(weight / largest, 0, 1));
const shadeOfWeight = (weight) => blue[Math.round(255 * shadeStep(weight))];

/** What stands along the ramp of weights, at even steps of their square root. */
function weightMarks() {
  const marks = [0, 0.25, 0.5, 0.75, 1].map((root) => {
    const percent = 100 * largest * root * root;
    return `${fixed(percent, percent > 0 && percent < 9.95 ? 1 : 0)} %`;
  });
  if (largest < 1) marks.push(`${marks.pop()} or more`);
  return marks;
}

/** Draw the T T weights of a head on a canvas; the future has none. */
function paintHead(canvas, weights) {
  const T = seen.length;
  paint(canvas, T, T, (query, key) => key > query ? NaN : shadeStep(weights[query * T + key]));
}

/** The largest weight of a head after the first rows (half of them, in a short text). */
function largestIn(layer, head, weights) {
  const T = seen.length, drag = edit?.drag;
  const dragged = drag?.layer === layer && drag.head === head ? drag.row : -1;
  let most = 0;
  for (let row = Math.min(FIRST_ROWS, Math.floor(T / 2)); row < T; row++) {
    for (let i = row * T; row !== dragged && i <= row * T + row; i++) {
      if (weights[i] > most) most = weights[i];
    }
  }
  return most;
}

/** Draw all heads in one scale, which their weights give. */
function* drawHeads() {
  const before = largest, all = [];
  let most = 0;
  for (const { layer, head } of tiles) {
    all.push(source.weights(layer, head, 0, seen.length));
    most = Math.max(most, largestIn(layer, head, all.at(-1)));
    yield;
  }
  largest = most || 1;
  for (const { canvas } of tiles) {
    paintHead(canvas, all.shift());
    yield;
  }
  if (largest === before) return;
  fillLegend("shades", blue, weightMarks());
  showMap();
  showLegend();
  if (state.colours === "attention") colourLetters();
}

/** How much a row of the window looks at each key; the chosen key, or the one that gets most. */
const lookOf = (row) => [...source.weights(state.layer, state.head, row, 1)];
function lookedAt(look) {
  const { column } = state, row = queryRow();
  if (column !== null && column >= start && column - start <= row) return column - start;
  return look.reduce((best, x, s) => x > look[best] ? s : best, 0);
}

const chosenColumn = () => lookedAt(lookOf(queryRow()));

function showHead() {
  const { layer, head } = state, row = queryRow();
  const { does } = facts.heads[layer][head], list = byId("most"), slider = byId("weight");
  const look = row < 0 ? [] : lookOf(row), column = lookedAt(look);
  byId("head-title").textContent = `${capital(headName(layer, head))} ${does}`;
  const off = isOff(layer, head);
  slider.disabled = row < 1 || off;
  const away = row === column ? "which is itself" : `${row - column} back`;
  byId("look").textContent = row < 0 ? "There is no letter that looks back."
    : `At ${nameOf(start + row)}, in place ${whole(start + row + 1)}, it looks at ${
      nameOf(start + column)}, ${away}, with ${share(look[column])}.`;
  const most = likeliest(look, 6, row < 0 ? undefined : column);
  refill(list, () => most.forEach((s) => {
    const choice = button(() => update({ column: start + s }), isKnown(start + s) ? glyph(seen[s])
      : nameOf(start + s), " ", small(s === row ? "itself" : `${row - s} back`));
    choice.setAttribute("aria-pressed", s === column);
    bar(list, choice, look[s], share(look[s])).classList.toggle("came", s === column);
  }));
  slider.value = look[column] ?? 0;
  byId("weight-words").textContent = off ? "This head is off: its weights count for nothing."
    : row < 1 ? "There is no weight to drag."
      : `Drag the weight of ${nameOf(start + row)} on ${nameOf(start + column)}: ${
        share(look[column])}`;
  fillLegend("shades", blue, weightMarks());
}

function showMap() {
  const row = queryRow();
  paintHead(picture, source.weights(state.layer, state.head, 0, seen.length));
  drawMap(row, row < 0 ? 0 : chosenColumn());
}

/** The map, with letters along both axes (or places, where there is no room), and frames. */
function drawMap(row, column) {
  const width = canvas.clientWidth, scale = devicePixelRatio || 1, T = seen.length || 1;
  if (!width) return;
  const spelled = live && (width - 22) / T >= 7.5, margin = spelled ? 18 : 30;
  const side = width - margin - 12, cell = side / T, pen = canvas.getContext("2d");
  plot = { left: margin, top: 4, cell };
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round((side + margin + 8) * scale);
  canvas.style.height = `${side + margin + 8}px`;
  pen.scale(scale, scale);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture, margin, 4, side, side);
  const [ink, soft] = [document.body, byId("map-help")].map((x) => getComputedStyle(x).color);
  const every = spelled ? 1 : 16 * 2 ** Math.max(0, Math.ceil(Math.log2(22 / (16 * cell))));
  [pen.textAlign, pen.textBaseline] = ["center", "middle"];
  for (const [at, x, y] of [[row, 0, 1], [column, 1, 0]]) {
    for (let i = 0; i < seen.length; i++) {
      const marked = i === at, along = (i + 0.5) * cell;
      const crowded = !spelled && at >= 0 && Math.abs(i - at) * cell < 16;
      if (!marked && (crowded || (start + i + 1) % every)) continue;
      pen.fillStyle = marked ? ink : soft;
      const size = spelled ? bounded(1.15 * cell, 9, 13) : 10;
      pen.font = `${marked ? "bold " : ""}${size}px monospace`;
      pen.fillText(spelled ? symbol(seen[i]) : whole(start + i + 1),
        x ? margin + along : margin / 2, y ? 4 + along : side + 8 + margin / 2, margin);
    }
  }
  pen.fillStyle = soft;
  pen.font = "13px system-ui, sans-serif";
  if (side > 250 && T > 1) pen.fillText("the future, not yet read", margin + side / 1.5, side / 5);
  if (row < 0) return;
  pen.strokeStyle = ink;
  pen.lineWidth = cell < 4 ? 1 : 1.5;
  pen.strokeRect(margin - 1, 3 + row * cell, (row + 1) * cell + 2, cell + 2);
  pen.strokeRect(margin + column * cell - 1, 3 + row * cell, cell + 2, cell + 2);
}

const chooseCell = (row, column, told) =>
  update({ at: start + row + 1, column: start + Math.min(row, column) }, true, told);

canvas.addEventListener("click", (event) => {
  const [column, row] = [event.offsetX - plot.left, event.offsetY - plot.top].map((x) =>
    Math.floor(x / plot.cell));
  if (row < 0 || column < 0 || row >= seen.length || column >= seen.length) return;
  chooseCell(row, column);
});
byId("map").addEventListener("keydown", (event) => {
  const row = Math.max(0, queryRow()), to = moved(event, row, lookedAt(lookOf(row)));
  if (!to || !seen.length) return;
  const [r, c] = to.map((x) => bounded(x, 0, seen.length - 1));
  if (windowStart(start + r + 1, block) !== start) return;
  chooseCell(r, c, ["look"]);
});
function drag(step, told) {
  const { layer, head } = state, row = queryRow(), weight = Number(byId("weight").value);
  const column = start + chosenColumn();
  update({ column, drag: { layer, head, row: start + row, column, weight } }, step, told);
}
on("weight", "input", () => drag(null));
on("weight", "change", () => drag(true, ["look", "cost"]));
on("reset", "click", () => {
  update({ off: [], drag: null }, true, ["cost"]);
  tell("released", "");
});
new ResizeObserver(() => { if (job) showMap(); }).observe(byId("map"));
