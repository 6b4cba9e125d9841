// ==== Keep it: a map as SVG, always light, and the text with its probabilities as CSV

const CELL = 10, TOP = 26;      // of a map, and what is above it

function save(name, type, content) {
  const href = URL.createObjectURL(new Blob([content], { type }));
  make("a", { download: name, href }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

const rect = (x, y, width, height, fill, title = "") => make("rect", { x, y, width, height, fill },
  make("title", {}, title));
const words = (x, y, text) => make("text", { x, y }, text);

/** The chosen head: a square for each weight, with the characters along both sides, and a scale. */
function saveMap() {
  const T = seen.length, side = CELL * T, { layer, head } = state, light = ramp(BLUE, false);
  const shade = (x) => css(light[Math.round(255 * shadeStep(x))]);
  const cells = (row, y) => [...source.weights(layer, head, row, 1)].map((x, column) =>
    rect(CELL * column + 12, y, CELL, CELL, shade(x), x.toFixed(4)));
  const shapes = seen.flatMap((id, i) => [words(2, TOP + CELL * i + 8, symbol(id)),
    words(CELL * i + 14, TOP + side + 9, symbol(id)), ...cells(i, TOP + CELL * i)]);
  const below = TOP + side + 20, width = Math.max(side + 12, 480), height = below + 20;
  const scale = weightMarks().flatMap((mark, i) => [
    make("circle", { cx: 18 + 60 * i, cy: below + 5, r: 5,
      fill: css(light[Math.round(63.75 * i)]) }),
    words(28 + 60 * i, below + 8, mark)]);
  const title = `${capital(headName(layer, head))} ${facts.heads[layer][head].does}; rows look, `
    + "columns are looked at";
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height,
    "font-family": "monospace", "font-size": 9, fill: "#1e2229" }, make("title", {}, title),
  rect(0, 0, width, height, "#ffffff"), words(4, 14, title), ...shapes, ...scale);
  save(`layer-${layer + 1}-head-${head + 1}.svg`, "image/svg+xml",
    new XMLSerializer().serializeToString(svg));
}

/** The losses of the whole text, window by window, in the model as it is changed now. */
async function* lossesOf(pieces, ids, changes) {
  for (let place = 1; place < ids.length; place++) {
    const start = windowStart(place, block), window = ids.slice(start, start + block);
    if (start !== windowStart(place - 1, block)) await rest(0);
    while (live && model.read(kept, window, changeFrom(start, changes))) await rest(0);
    if (!live) yield facts.predictions[place - 1].loss;
    else if (!idOf.has(pieces[place])) yield null;
    else yield lossOf(kept.logitsOf(place - 1 - start), ids[place]);
  }
}

/** The whole text with what was expected of each letter, while the page can be used. */
async function saveText() {
  const text = pieces, lines = [`place,${unit},probability,loss\n`], words = byId("keep-text");
  const label = words.textContent;
  if (words.ariaBusy === "true") return;
  words.ariaBusy = "true";
  for await (const loss of lossesOf(text, ids, { off: state.off, drag: state.drag })) {
    const place = lines.length;
    lines.push(`${place + 1},"${text[place].replaceAll('"', '""')}",${
      loss === null ? "," : `${Math.exp(-loss)},${loss}`}\n`);
    words.textContent = `Computing ${whole(place + 1)} of ${whole(text.length)} …`;
  }
  words.ariaBusy = "false";
  words.textContent = label;
  save("text.csv", "text/csv", lines.join(""));
}

on("keep-map", "click", saveMap);
on("keep-text", "click", saveText);
