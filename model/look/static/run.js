
// ==== The run: its log as charts and as a table

const COLUMNS = [           // of log.csv: heading, format
  ["step", (x) => whole(x)],
  ["training loss (nats)", (x) => x.toFixed(3)],
  ["validation loss (nats)", (x) => x.toFixed(3)],
  ["learning rate", (x) => brief(x)],
  [`${unit}s a second`, (x) => whole(x)],
  ["seconds", (x) => x.toFixed(1)],
  ["steps skipped", (x) => whole(x)],       // only in runs that may skip
];

/** A number in three digits, or if it is large, in all. */
const brief = (x) => Math.abs(x) >= 1000 ? whole(x) : String(Number(x.toPrecision(3)))
  .replace("-", "−");

function fillRun() {
  const { log, counted: yardsticks } = facts;
  if (!log?.length) {
    showScore();
    byId("run-intro").textContent = "There are no curves here, because "
      + (log ? "the log of the run has no lines." : `${facts.no_log}.`);
    return;
  }
  byId("run-intro").textContent = "The loss is the mean of −log p, where p is the probability "
    + "that the model gave to what came: the training loss over what it learnt from, the "
    + "validation loss over text that it never learnt from.  " + (yardsticks
    ? "The dotted lines are what n-grams reach, counted on the one and measured on the other."
    : `There are no counted n-grams beside it, because ${facts.no_counts}.`);
  const column = (i, kind = "accent") => ({
    name: COLUMNS[i][0], kind, format: COLUMNS[i][1],
    points: log.filter((line) => line[i] !== null).map((line) => [line[0], line[i]]),
  });
  const speed = column(4);
  speed.points = speed.points.filter(([, y]) => y > 0);         // none before the first step
  byId("charts").append(
    chart(`Loss, in nats a ${unit}`, [column(2), column(1, "warm")], 300, yardsticks ?? []),
    make("div", { class: "small" },
      chart(`Learning rate, ${facts.rates}`, [column(3)], 160),
      chart(`${capital(unit)}s a second that it learnt from`, [speed], 160)));
  const row = (cells, tag, attributes) => make("tr", {},
    ...cells.map((text) => make(tag, attributes, text)));
  byId("log").querySelector("table").append(
    make("thead", {}, row(log[0].map((_, i) => COLUMNS[i][0]), "th", { scope: "col" })),
    make("tbody", {}, ...log.map((line) => row(
      line.map((x, i) => x === null ? "–" : COLUMNS[i][1](x)), "td", {}))));
  byId("log").hidden = false;
  showScore();
}

/** The text that the page began with, beside counted n-grams. */
function showScore() {
  if (!facts.score) return;
  const { loss, bits, ladder, seen } = facts.score, list = make("ol", { class: "bars",
    id: "ladder", "aria-labelledby": "score-title" });
  const most = Math.max(...ladder.map(([, x]) => x));
  byId("score").append(make("h3", { id: "score-title" }, "The text that this page began with"),
    make("p", { class: "hint" }, `Its mean loss is ${loss.toFixed(4)} nats = ${bits.toFixed(4)} `
      + `bits a ${unit}.  ` + (facts.counted ? `An n-gram predicts a ${unit} from the n − 1 before `
      + "it, as counted in the text that the model was trained on: a model has to be better than those."
      : `There are no counted n-grams beside it, because ${facts.no_counts}.`)
      + (seen ? "  This very text was trained on, so all look better than they are." : "")), list);
  for (const [name, x] of ladder.sort((a, b) => b[1] - a[1])) {
    bar(list, name, x / most, nats(x)).classList.toggle("came", name === "this model");
  }
}

/** A figure of lines over steps, drawn for the width that it gets; yardsticks are [name, value]. */
function chart(title, series, height, yardsticks = []) {
  const note = make("small"), svg = make("svg", { role: "img" });
  const figure = make("figure", {}, make("figcaption", {}, title, note), svg);
  const xs = [...new Set(series.flatMap(({ points }) => points.map(([x]) => x)))]
    .sort((a, b) => a - b);
  const tell = (at) => {
    const values = series.flatMap(({ name, points, format }) => points
      .filter(([x]) => x === at).map(([, y]) => `${name} ${format(y)}`));
    note.textContent = xs.length ? `step ${whole(at)}: ${values.join(", ")}` : "none was measured";
  };
  tell(xs.at(-1));
  svg.setAttribute("aria-label", [title, note.textContent,
    ...yardsticks.map(([name, y]) => `${name} ${y.toFixed(3)}`)].join("; "));
  if (xs.length) {
    new ResizeObserver(() => drawChart(svg, series, height, yardsticks, xs, tell)).observe(figure);
  }
  return figure;
}

function drawChart(svg, series, height, yardsticks, xs, tell) {
  const width = svg.clientWidth, end = xs.at(-1), lines = yardsticks.map(([, y]) => y);
  const ys = [...lines, ...series.flatMap(({ points }) => points.map(([, y]) => y))];
  const yTicks = ticks(lines.length ? Math.min(...ys) : 0, Math.max(...ys));
  const box = { left: 52, right: width - (lines.length ? 102 : 12), top: 8, bottom: height - 40 };
  const x = (value) => box.left + (box.right - box.left) * value / (end || 1);
  const y = (value) => box.top + (box.bottom - box.top)
    * (yTicks.at(-1) - value) / (yTicks.at(-1) - yTicks[0]);
  const across = (kind, value) => make("line",
    { class: kind, x1: box.left, x2: box.right, y1: y(value), y2: y(value) });
  const text = (content, x, y, anchor, kind = "") => make("text",
    { x, y, "text-anchor": anchor, "dominant-baseline": "middle", class: kind }, content);
  const cursor = make("line", { class: "cursor", y1: box.top, y2: box.bottom });
  cursor.style.visibility = "hidden";
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.height = `${height}px`;
  svg.replaceChildren(
    ...yTicks.flatMap((value) => [across("grid-line", value),
      text(brief(value), box.left - 8, y(value), "end")]),
    ...ticks(0, end).filter((value) => value <= end)
      .map((value) => text(whole(value), x(value), box.bottom + 16, "middle")),
    text("step", (box.left + box.right) / 2, height - 6, "middle"),
    ...lines.map((value) => across("yardstick", value)),
    ...apart(yardsticks.map(([name, value]) => [`${name} ${value.toFixed(3)}`, y(value)]))
      .map(([name, at]) => text(name, box.right + 8, at, "start")),
    ...series.map(({ kind, points }) => make("polyline",
      { class: `line ${kind}`, points: points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") })),
    ...series.flatMap(({ kind, points }) => points.map(([a, b]) =>
      make("circle", { class: `point ${kind}`, cx: x(a), cy: y(b), r: 2.5 }))),
    ...(series.length > 1 ? series : []).map(({ name, kind }, i) => text(
      name.split(" ")[0], box.right - 8, box.top + 12 + 18 * i, "end", kind)),
    cursor);
  svg.onpointermove = (event) => {
    const value = (event.clientX - svg.getBoundingClientRect().left - box.left)
      / (box.right - box.left) * end;
    const nearest = xs.reduce((a, b) => Math.abs(b - value) < Math.abs(a - value) ? b : a);
    for (const side of ["x1", "x2"]) cursor.setAttribute(side, x(nearest));
    cursor.style.visibility = "visible";
    tell(nearest);
  };
  svg.onpointerleave = () => {
    cursor.style.visibility = "hidden";
    tell(end);
  };
}

/** Some five round numbers that cover a range. */
function ticks(low, high) {
  const rough = (high - low || Math.abs(high) || 1) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((x) => x * power >= 0.999 * rough);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.max(first + 1, Math.ceil(high / step - 1e-9));
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/** Labels, from top to bottom, moved down as far as they must be to stand clear of each other. */
function apart(labels) {
  let least = -Infinity;
  return labels.sort((a, b) => a[1] - b[1])
    .map(([name, y]) => [name, least = Math.max(y, least + 14)]);
}
