// ==== Keep it: maps and charts as SVG, always light, and the text with its probabilities as CSV

const CELL = 10, LINE = 16, TOP = 26;           // of a map, of a chart, and what is above them

function save(name, type, content) {
  const href = URL.createObjectURL(new Blob([content], { type }));
  make("a", { download: name, href }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

const rect = (x, y, width, height, fill, title = "") => make("rect", { x, y, width, height, fill },
  make("title", {}, title));
const words = (x, y, text) => make("text", { x, y }, text);

function saveSvg(name, title, width, height, shapes) {
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height,
    "font-family": "monospace", "font-size": 9, fill: "#1e2229" }, make("title", {}, title),
  rect(0, 0, width, height, "#ffffff"), words(4, 14, title), ...shapes);
  save(`${name}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(svg));
}

/** The chosen head: a square for each weight, with the characters along both sides, and a scale. */
function saveMap() {
  const T = seen.length, side = CELL * T, { layer, head } = state, light = ramp(BLUE, false);
  const shade = (x) => css(light[Math.round(255 * Math.sqrt(x))]);
  const cells = (row, y) => [...source.weights(layer, head, row, 1)].map((x, column) =>
    rect(CELL * column + 12, y, CELL, CELL, shade(x), x.toFixed(4)));
  const shapes = seen.flatMap((id, i) => [words(2, TOP + CELL * i + 8, symbol(id)),
    words(CELL * i + 14, TOP + side + 9, symbol(id)), ...cells(i, TOP + CELL * i)]);
  const below = TOP + side + 20, scale = [0, 0.05, 0.25, 0.5, 1].flatMap((x, i) => [
    make("circle", { cx: 18 + 60 * i, cy: below + 5, r: 5, fill: shade(x) }),
    words(28 + 60 * i, below + 8, `${100 * x} %`)]);
  saveSvg(`layer-${layer + 1}-head-${head + 1}`, `${capital(headName(layer, head))} ${
    facts.heads[layer][head].does}; rows look, columns are looked at`, Math.max(side + 12, 480),
  below + 20, [...shapes, ...scale]);
}

const titleOf = (list) => byId(`${list.id}-title`).textContent;
const seenIn = (name) => (name.querySelector(".symbol > *") ?? name).textContent;

/** A list of bars as it stands on the page: 2 pixels for each percent. */
function saveChart(list) {
  const rows = [...list.children], left = list.classList.contains("both") ? 140 : 120;
  list.style.colorScheme = "light";
  saveSvg(list.id, titleOf(list), 460, TOP + LINE * rows.length + 6, rows.flatMap((row, i) => {
    const [name, { firstChild: fill }, value] = row.children, y = TOP + LINE * i;
    const [x, width] = [fill.style.left, fill.style.width].map(parseFloat);
    return [words(4, y + 9, seenIn(name)), words(350, y + 9, value.textContent),
      rect(left + 2 * x, y, 2 * width, 11, getComputedStyle(fill).backgroundColor,
        value.textContent)];
  }));
  list.style.colorScheme = "";
}

/** The whole text, window by window, with what the model as it is changed gave each of it. */
function saveText() {
  const { at } = state, lines = [`place,${unit},probability,loss\n`];
  for (let place = 1; place < ids.length; place++) {
    state.at = place;
    if (place === 1 || windowStart(place, block) !== start) settle();
    while (source.read(seen.length));
    const loss = source.loss(place - start, true);
    lines.push(`${place + 1},"${pieces[place].replaceAll('"', '""')}",${
      loss === null ? "," : `${Math.exp(-loss)},${loss}`}\n`);
  }
  update({ at }, null);
  save("text.csv", "text/csv", lines.join(""));
}

on("keep-map", "click", saveMap);
on("keep-text", "click", saveText);
for (const list of document.querySelectorAll("section .bars")) {
  if (list.closest(".live") && !live || list.id === "most") continue;
  list.after(button(() => saveChart(list), "Save as SVG", make("span", { class: "unseen" },
    `: ${titleOf(list)}`)));
}
