// ==== The run: its log as charts and as a table

const COLUMNS = ["step", "training loss (nats)", "validation loss (nats)", "learning rate",
  `${unit}s a second`, "seconds", "steps skipped"];     // of log.csv; the last if a run may skip

/** A number in three digits, or if it is large, in all. */
const brief = (x) => Math.abs(x) >= 1000 ? fixed(x, 0) : String(Number(x.toPrecision(3)))
  .replace("-", "−");
const logged = (x, i) => x === null ? "–" : i === 1 || i === 2 ? fixed(x, 3) : brief(x);
const NO_COUNTS = `There are no counted n-grams beside it, because ${facts.no_counts}.`;

function fillRun() {
  const { log } = facts, intro = byId("run-intro");
  if (facts.score) fillScore(facts.score);
  if (!log?.length) {
    intro.textContent = "There are no curves here, because "
      + (log ? "the log of the run has no lines." : `${facts.no_log}.`);
    return;
  }
  fillLog(log);
  intro.append(facts.counted ? "The dotted lines are what n-grams reach, counted on the one and "
    + "measured on the other." : NO_COUNTS);
}

function fillLog(log) {
  const column = (i, kind = "accent") => ({ i, kind, points: log       // no speed at first
    .filter((line) => i === 4 ? line[i] > 0 : line[i] !== null).map((line) => [line[0], line[i]]),
  });
  byId("charts").append(
    chart(`Loss, in nats a ${unit}`, [column(2), column(1, "warm")], 300, facts.counted ?? []),
    make("div", { class: "columns" },
      chart(`Learning rate, ${facts.rates}`, [column(3)], 160),
      chart(`${capital(unit)}s a second that it learnt from`, [column(4)], 160)));
  const row = (cells, tag, attributes) => make("tr", {},
    ...cells.map((text) => make(tag, attributes, text)));
  byId("log").querySelector("table").append(
    make("thead", {}, row(COLUMNS.slice(0, log[0].length), "th", { scope: "col" })),
    make("tbody", {}, ...log.map((line) => row(line.map(logged), "td", {}))));
  byId("log").hidden = false;
}

/** The text that the page began with, beside counted n-grams. */
function fillScore({ loss, bits, ladder, seen }) {
  const most = Math.max(...ladder.map(([, x]) => x));
  byId("score").hidden = false;
  byId("score-words").textContent = `Its mean loss is ${fixed(loss, 4)} nats = ${fixed(bits, 4)} `
    + `bits a ${unit}.  ` + (facts.counted ? `An n-gram predicts a ${unit} from the n − 1 before `
    + "it, as counted in the training text: a model has to be better than those." : NO_COUNTS)
    + (seen ? "  This very text was trained on, so all look better than they are." : "");
  for (const [name, x] of ladder.sort((a, b) => b[1] - a[1])) {
    bar(byId("ladder"), name, x / most, nats(x)).classList.toggle("came", name === "this model");
  }
}

/** A figure of lines over steps, drawn for the width that it gets; yardsticks are [name, value]. */
function chart(title, series, height, yardsticks = []) {
  const end = Math.max(...series.flatMap(({ points }) => points.map(([x]) => x)));
  const last = series.flatMap(({ i, points }) => points
    .filter(([x]) => x === end).map(([, y]) => `${COLUMNS[i]} ${logged(y, i)}`));
  const note = last.length ? `step ${whole(end)}: ${last.join(", ")}` : "none was measured";
  const svg = make("svg", { role: "img", "aria-label": [title, note,
    ...yardsticks.map(([name, y]) => `${name} ${fixed(y, 3)}`)].join("; ") });
  const figure = make("figure", {}, make("figcaption", {}, title, make("small", {}, note)), svg);
  if (last.length) {
    new ResizeObserver(() => drawChart(svg, series, height, yardsticks, end)).observe(figure);
  }
  return figure;
}

function drawChart(svg, series, height, yardsticks, end) {
  const width = svg.clientWidth, lines = yardsticks.map(([, y]) => y);
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
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.height = `${height}px`;
  svg.replaceChildren(
    ...yTicks.flatMap((value) => [across("grid-line", value),
      text(brief(value), box.left - 8, y(value), "end")]),
    ...ticks(0, end).filter((value) => value <= end)
      .map((value) => text(whole(value), x(value), box.bottom + 16, "middle")),
    text("step", (box.left + box.right) / 2, height - 6, "middle"),
    ...lines.map((value) => across("yardstick", value)),
    ...apart(yardsticks.map(([name, value]) => [`${name} ${fixed(value, 3)}`, y(value)]))
      .flatMap(([name, line, at]) => [text(name, box.right + 12, at, "start"), make("line",
        { class: "grid-line", x1: box.right, x2: box.right + 10, y1: line, y2: at })]),
    ...series.map(({ kind, points }) => make("polyline",
      { class: kind, points: points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") })),
    ...series.flatMap(({ i, kind, points }) => points.map(([a, b]) =>
      make("circle", { class: kind, cx: x(a), cy: y(b), r: 2.5 },
        make("title", {}, `step ${whole(a)}: ${logged(b, i)}`)))),
    ...(series.length > 1 ? series : []).map(({ i, kind }, n) => text(
      COLUMNS[i].split(" ")[0], box.right - 8, box.top + 12 + 18 * n, "end", kind)));
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

/** Where labels [name, y], 14 high, stand clear of each other, as near to their y as they can. */
function apart(labels) {
  const groups = [];            // of labels that touch, each around the middle of its y
  const topOf = (group) => sumOf(group.map(([, y]) => y)) / group.length - 7 * group.length;
  const areClear = ([a, b]) => !b || topOf(a) + 14 * a.length <= topOf(b);
  for (const label of labels.sort((a, b) => a[1] - b[1])) {
    groups.push([label]);
    while (!areClear(groups.slice(-2))) groups.push(groups.splice(-2).flat());
  }
  return groups.flatMap((group) => group.map((label, i) => [...label, topOf(group) + 14 * i + 7]));
}
