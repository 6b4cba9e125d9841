// ==== Losses over steps on a logarithmic axis, beside counted n-grams

const LABEL_HEIGHT = 14;                           // the height of one

/** A number in three digits, or if it is large, in all. */
const brief = (x) => Math.abs(x) >= 1000 ? fixed(x, 0) : String(Number(x.toPrecision(3)))
  .replace("-", "−");
const joinNames = (words) => words.join(", ").replace(/, ([^,]*)$/, " and $1");

/** The lines of one run: its validation loss, and its training loss where there is one. */
const ofRun = (log) => [["validation", 2], ["training", 1]].map(([name, i]) => ({ name,
  points: log.filter((line) => line[i] !== null).map((line) => [line[0], line[i]]) }));

/** A figure of losses, drawn for the width that it gets: series are { name, points: [step, loss] },
    yardsticks [name, loss]. */
function lossChart(series, yardsticks, height = 340) {
  const shown = withoutStart(series), range = rangeOf(shown, yardsticks);
  const above = yardsticks.filter(([, y]) => y > range.at(-1));
  const note = [noteOfStart(series, shown), above.length && `Above the picture: ${
    joinNames(above.map(([name, y]) => `${name} ${fixed(y, 3)}`))}.`].filter(Boolean).join("  ");
  const title = `Loss in nats a ${facts.unit}, after so many steps, in logarithmic distances`;
  const ends = shown.filter(({ points }) => points.length).map(({ name, points }) =>
    `${name} ${fixed(points.at(-1)[1], 3)} at step ${whole(points.at(-1)[0])}`);
  const svg = make("svg", { role: "img", class: "chart", style: `height: ${height}px`,
    "aria-label": [title, ...ends,
      ...yardsticks.map(([name, y]) => `${name} ${fixed(y, 3)}`)].join("; ") });
  const figure = make("figure", {}, make("figcaption", {}, title, make("small", {}, note)), svg);
  new ResizeObserver(() => drawLosses(svg, shown, height, range,
    yardsticks.filter(([, y]) => y <= range.at(-1)))).observe(figure);
  return figure;
}

/** The untrained model would take most of the height: it is left out if there is enough else. */
function withoutStart(series) {
  const later = series.map((one) => ({ ...one, points: one.points.filter(([x]) => x > 0) }));
  return later.some(({ points }) => points.length > 1) ? later : series;
}

function noteOfStart(series, shown) {
  const starts = series.flatMap(({ name, points }, i) => points.length > shown[i].points.length
    ? [`${name} ${fixed(points[0][1], 3)}`] : []);
  return starts.length && `Before the first step: ${joinNames(starts)}.`;
}

/** The lowest and the highest loss of the picture: it has the lines, and the best of the n-grams. */
function rangeOf(series, yardsticks) {
  const ys = series.flatMap(({ points }) => points.map(([, y]) => y));
  if (yardsticks.length) ys.push(Math.min(...yardsticks.map(([, y]) => y)));
  const low = Math.min(...ys), high = Math.max(...ys), more = 0.04 * (high - low || 1);
  return [low - more, high + more];
}

function drawLosses(svg, series, height, [low, high], yardsticks) {
  const width = svg.clientWidth;
  const labels = [...yardsticks.map(([name, y]) => [`${name} ${fixed(y, 3)}`, y, ""]),
    ...series.flatMap(({ name, points }, i) => points.length ? [[`${name} ${
      fixed(points.at(-1)[1], 3)}`, points.at(-1)[1], `run run-${i + 1}`, points.at(-1)[0]]] : [])];
  const room = Math.min(0.45 * width, 7.5 * Math.max(...labels.map(([text]) => text.length)) + 16);
  const box = { left: 40, right: width - room, top: 8, bottom: height - 40 };
  const steps = series.flatMap(({ points }) => points.map(([x]) => x));
  const x = stepScale(steps, box);
  const y = (value) => box.top + (box.bottom - box.top) * (high - value) / (high - low);
  const line = (kind, x1, y1, x2, y2) => make("line", { class: kind, x1, y1, x2, y2 });
  const text = (content, x, y, anchor, kind = "") => make("text",
    { x, y, "text-anchor": anchor, "dominant-baseline": "middle", class: kind }, content);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(
    ...ticks(low, high).map((value) => text(brief(value), box.left - 8, y(value), "end")),
    ...stepTicks(steps, x).flatMap((value) => [
      line("grid-line", x(value), box.top, x(value), box.bottom),
      text(whole(value), x(value), box.bottom + 16, "middle")]),
    text("step", (box.left + box.right) / 2, height - 6, "middle"),
    ...yardsticks.map(([, value]) => line("yardstick", box.left, y(value), box.right, y(value))),
    ...apart(labels.map(([name, value, ...more]) => [name, y(value), ...more])).flatMap(
      ([name, at, kind, step, to]) => [text(name, box.right + 12, to ?? step, "start", kind),
        line("grid-line", kind ? x(step) : box.right, at, box.right + 10, to ?? step)]),
    ...series.map(({ points }, i) => make("polyline", { class: `run run-${i + 1}`,
      points: points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") })),
    ...series.flatMap(({ name, points }, i) => points.map(([a, b]) =>
      make("circle", { class: `run run-${i + 1}`, cx: x(a), cy: y(b), r: 2 },
        make("title", {}, `${name}, step ${whole(a)}: ${fixed(b, 3)}`)))));
}

/** Where a step stands: on a logarithmic scale, and 0 at the left edge. */
function stepScale(steps, { left, right }) {
  const some = steps.filter((step) => step > 0), first = Math.min(...some);
  const from = some.length < steps.length ? left + 0.15 * (right - left) : left;
  const span = Math.log(Math.max(...some) / first);
  return (step) => step > 0 ? from + (right - from) * (span ? Math.log(step / first) / span : 1)
    : left;
}

/** The first and the last step, and 1, 2, 5, 10, 20 ... between them where there is room. */
function stepTicks(steps, x) {
  const first = Math.min(...steps), last = Math.max(...steps), kept = [last];
  const round = [];
  for (let power = 1; power <= last; power *= 10) round.push(power, 2 * power, 5 * power);
  for (const step of [first, ...round.filter((step) => step > first && step < last)]) {
    if (kept.every((other) => Math.abs(x(step) - x(other)) >= 44)) kept.push(step);
  }
  return kept.sort((a, b) => a - b);
}

/** Some four to eight round numbers within a range. */
function ticks(low, high) {
  const rough = (high - low) / 8, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((x) => x * power >= 0.999 * rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
}

/** Where labels [name, y, ...], LABEL_HEIGHT high, stand clear of each other, as near to their y as they
    can: their places, as a last element. */
function apart(labels) {
  const groups = [];            // of labels that touch, each around the middle of its y
  const mean = (group) => group.reduce((sum, [, y]) => sum + y, 0) / group.length;
  const topOf = (group) => mean(group) - LABEL_HEIGHT / 2 * group.length;
  const areClear = ([a, b]) => !b || topOf(a) + LABEL_HEIGHT * a.length <= topOf(b);
  for (const label of labels.sort((a, b) => a[1] - b[1])) {
    groups.push([label]);
    while (!areClear(groups.slice(-2))) groups.push(groups.splice(-2).flat());
  }
  return groups.flatMap((group) => group.map((label, i) =>
    [...label, topOf(group) + LABEL_HEIGHT * i + LABEL_HEIGHT / 2]));
}
