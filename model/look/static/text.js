
// ==== The text: what was expected of each character, and how well

const letters = listbox(byId("letters"), 1, (i) => chooseCharacter(i));

function fillLetters() {
  const options = ids.map((id, i) => option(`${unit} ${i + 1}, ${named(id)}, `
    + (i ? `loss ${expected(i).loss.toFixed(3)} nats` : "not predicted"), glyph(id)));
  options[0].classList.add("first");
  options[0].setAttribute("aria-disabled", "true");
  letters.fill([...options, option("what comes after the text", "▸")], ids);
}

function tintLetters() {
  for (let i = 1; i < ids.length; i++) tint(letters.options[i], shadeOfLoss(expected(i).loss));
  byId("loss-legend").querySelector(".ramp").style.background = gradient(orange);
}

function showPrediction() {
  const n = state.character, fact = expected(n), after = n === ids.length, came = ids[n];
  const likeliest = quoted(fact.top[0][0]), others = facts.vocab_size;
  byId("prediction-title").textContent = after ? "After the text the model expects"
    : `In place of ${unit} ${n + 1} the model expected`;
  byId("context").replaceChildren(n - 24 > start() ? "…" : "",
    ids.slice(Math.max(start(), n - 24), n).map(symbol).join(""),
    make("b", {}, after ? "?" : symbol(came)));
  byId("expected").replaceChildren(...fact.top.map(([id, units]) => {
    const row = characterBar(id, units, probability(units));
    row.classList.toggle("came", id === came);
    return row;
  }));
  byId("outcome").replaceChildren(...after
    ? [entry("It would write", likeliest, `the likeliest ${unit}`)]
    : [entry(`Probability of ${quoted(came)}, which came`, probability(fact.came),
      fact.rank === 1 ? "the highest of all: it would have written the same"
        : `number ${whole(fact.rank)} of ${whole(others)}; it would have written ${likeliest}`),
    entry("Loss", `${fact.loss.toFixed(3)} nats = ${fact.bits.toFixed(3)} bits`,
      "−log of that probability, natural or to base 2: 0 if the model had been certain of what "
      + "came, and more the less it expected it")]);
}

function showScore() {
  const { loss, bits, ladder, seen } = facts.score, box = byId("score");
  const most = Math.max(...ladder.map(([, x]) => x));
  box.append(
    make("h3", {}, `Mean loss: ${loss.toFixed(4)} nats = ${bits.toFixed(4)} bits a ${unit}`),
    make("p", { class: "hint" }, facts.counted
      ? `Lower is better.  An n-gram predicts a ${unit} from the n − 1 before it, by what was `
        + "counted in the text that the model was trained on: a model has to be better than those."
      : `There are no counted n-grams beside it, because ${facts.no_counts}.`));
  if (facts.counted) {
    box.append(make("ol", { class: "bars ladder" }, ...ladder.sort((a, b) => b[1] - a[1])
      .map(([name, x]) => {
        const row = bar(make("span", {}, name), x / most, `${x.toFixed(3)} nats`);
        row.classList.toggle("came", name === "this model");
        return row;
      })));
  }
  if (seen) {
    box.append(make("p", { class: "hint" }, "This very text was trained on and counted, so all of "
      + "these look better than they are."));
  }
}
