// ==== A page of runs: their losses, and how it renews itself

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
  byId("warning").hidden = !byId("warning").textContent;
  byId("charts").append(lossChart(facts.series ?? ofRun(facts.log), facts.counted ?? []));
  if (history.state?.open) setTimeout(() => restore(history.state));
  if (!facts.renewed) return;
  fillRenewal();
  setInterval(renew, 1000 * facts.renewed);
  document.addEventListener("visibilitychange", renew);
}

drawPage(beginRuns);
