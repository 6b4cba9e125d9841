// ==== A page of runs: their losses, what differs, and how it renews itself

function fillPage() {
  const { log, counted, differences } = facts;
  const series = facts.series ?? ofRun(log);
  byId("warning").hidden = !byId("warning").textContent;
  byId("counts").textContent = counted ? "The dotted lines are what n-grams reach, counted on the "
    + `training part: they predict a ${facts.unit} from the n − 1 before it.`
    : `There are no counted n-grams beside it, because ${facts.no_counts}.`;
  byId("charts").append(lossChart(series, counted ?? []));
  if (log) fillLogTable(log);
  else fillLosses(series);
  byId("settings").hidden = !differences.length;
  fillTable(byId("settings").querySelector("table"), ["flag", ...facts.names ?? []],
    differences.map(([name, values]) => [name, ...values]));
}

/** A row for each step at which a run was evaluated, a column for each run. */
function fillLosses(series) {
  const losses = series.map(({ points }) => new Map(points));
  const steps = [...new Set(losses.flatMap((of) => [...of.keys()]))].sort((a, b) => a - b);
  fillTable(byId("log").querySelector("table"), ["step", ...series.map(({ name }) => name)],
    steps.map((step) => [whole(step), ...losses.map((of) => logged(of.get(step) ?? null, 2))]));
}

// ---- The page of a run that goes on loads itself anew, and keeps its place

const boxes = () => [...document.querySelectorAll("details")];

/** Keep in the history what the reader sees, and load the page, unless a text is being selected. */
function renew() {
  if (document.hidden || !getSelection().isCollapsed) return;
  history.replaceState({ top: scrollY, open: boxes().map((box) => box.open),
    theme: byId("theme").value, focus: document.activeElement.id }, "");
  location.reload();
}

/** Go back to what the reader saw. */
function restore({ top, open, theme, focus }) {
  boxes().forEach((box, i) => { box.open = open[i]; });
  byId("theme").value = theme;
  byId(focus)?.focus({ preventScroll: true });
  scrollTo({ top, behavior: "instant" });
}

function fillRenewal() {
  const ago = Math.max(0, Date.now() / 1000 - facts.written);
  const minutes = Math.floor(ago / 60);
  byId("renewal").textContent = `It was evaluated ${minutes ? counted(minutes, "minute")
    : "less than a minute"} ago.  This page shows the next evaluation by itself.`;
}

async function beginRuns() {
  history.scrollRestoration = "manual";
  fillPage();
  if (history.state?.open) setTimeout(() => restore(history.state));
  if (!facts.renewed) return;
  fillRenewal();
  setInterval(renew, 1000 * facts.renewed);
  document.addEventListener("visibilitychange", renew);
}

drawPage(beginRuns);
