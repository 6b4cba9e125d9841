
// ==== Keep it: maps and charts as SVG, the text with its probabilities as CSV

const CELL = 10, LINE = 14, FULL = 200;     // of a map, of a chart, and the width of a whole bar

function save(name, type, content) {
  const href = URL.createObjectURL(new Blob([content], { type }));
  make("a", { download: name, href }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

function saveSvg(name, width, height, shapes) {
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, "font-family": "monospace",
    "font-size": 8 }, ...shapes);
  save(`${name}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(svg));
}

const rect = (x, y, width, height, fill, title) => make("rect", { x, y, width, height, fill },
  make("title", {}, title));
const words = (x, y, text) => make("text", { x, y }, text);

/** The chosen head: a square for each weight, with the characters along both sides. */
function saveMap() {
  const T = seen.length, side = CELL * T, shares = weightsOf(state.layer, state.head, 0, T);
  const shapes = seen.flatMap((id, i) => [words(2, CELL * i + 8, symbol(id)),
    words(CELL * i + 14, side + 9, symbol(id))]);
  shares.forEach((share, i) => {
    const [row, column] = [Math.floor(i / T), i % T], colour = css(shadeOfWeight(share));
    if (column > row) return;
    shapes.push(rect(CELL * column + 12, CELL * row, CELL, CELL, colour, share.toFixed(4)));
  });
  saveSvg(`layer-${state.layer + 1}-head-${state.head + 1}`, side + 12, side + 12, shapes);
}

/** A list of bars as it stands on the page. */
function saveChart(list) {
  const rows = [...list.children];
  saveSvg(list.id, 400, LINE * rows.length, rows.flatMap((row, i) => {
    const [name, track, value] = row.children, { width } = track.firstChild.style;
    return [words(0, LINE * i + 10, name.textContent), words(250, LINE * i + 10, value.textContent),
      rect(40, LINE * i + 2, parseFloat(width) / 100 * FULL, 10, "#1f5fae", width)];
  }));
}

/** The window, with what the model gave each of its characters. */
function saveText() {
  const rows = shown().losses(seen).map((loss, i) => [start + i + 2,
    `"${characters[start + i + 1].replace(/"/g, '""')}"`, Math.exp(-loss), loss]);
  save("text.csv", "text/csv", [["place", "character", "probability", "loss"], ...rows]
    .map((row) => row.join(",") + "\n").join(""));
}

function listenToKeeping() {
  on("keep-map", "click", saveMap);
  on("keep-text", "click", saveText);
  for (const list of document.querySelectorAll(".bars")) {
    list.after(button(`${list.ariaLabel}, as SVG`, () => saveChart(list)));
  }
}
