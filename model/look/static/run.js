// ==== The run: its losses as a chart and as a table

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
  byId("charts").append(lossChart(ofRun(log), facts.counted ?? []));
  fillLogTable(log);
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
