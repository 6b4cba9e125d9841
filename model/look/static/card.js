// ==== The card that stays in view: what is expected, what the text costs, what is changed

const share = (p) => p < 5e-4 ? "<\u00a00.1\u00a0%" : `${(100 * p).toFixed(1)}\u00a0%`;
const nats = (x, digits = 3) => `${fixed(x, digits)}\u00a0nats`;
const signed = (x) => `${x > 0 ? "+" : ""}${fixed(x, 2)}`;
const sumOf = (numbers) => numbers.reduce((a, b) => a + b, 0);
const headName = (layer, head) => `head ${layer + 1}.${head + 1}`;

/** The symbol of a character or token, smaller where it is a code, and its name. */
function glyph(id) {
  return make("span", { class: symbol(id).startsWith("U+") ? "symbol code" : "symbol",
    title: named(id) }, make("span", { "aria-hidden": "true" }, symbol(id)),
  unseen(named(id)));
}

const unseen = (...words) => make("span", { class: "unseen" }, ...words);

/** Fill a list again; the focus goes to the button of the row where it was, or else elsewhere. */
function refill(list, fill, elsewhere = input) {
  const focused = [...list.children].findIndex((row) => row.contains(document.activeElement));
  list.replaceChildren();
  fill();
  const next = list.children[focused] ?? list.lastChild;
  if (focused >= 0) (next?.querySelector("button") ?? elsewhere).focus({ preventScroll: true });
}

function button(act, ...words) {
  const element = make("button", { type: "button" }, ...words);
  element.addEventListener("click", act);
  return element;
}

/** A row of bars: a name, a bar from 0 to 1, what it was before, a number. */
function bar(list, name, x, value, before = null) {
  const track = make("span", { class: "track", "aria-hidden": "true" },
    make("span", { class: "fill", style: `width: ${100 * x}%` }));
  if (before !== null) {
    track.append(make("span", { class: "ghost", style: `left: ${100 * before}%` }));
  }
  const row = make("li", {}, make("span", {}, name), track,
    make("span", { class: "value" }, ...[value].flat()));
  list.append(row);
  return row;
}

/** Bars of ids and their probabilities, and what these were before; `came` stands out. */
function fillBars(expected, came, before = null) {
  byId("next").replaceChildren();
  for (const [id, p] of expected) {
    const was = before && (before.get(id) ?? 0), gain = 100 * (p - was);
    const value = [share(p), ...before ? [" ", small(gain < 0.05 ? "" : "+", fixed(gain, 1))] : []];
    bar(byId("next"), glyph(id), p, value, was).classList.toggle("came", id === came);
  }
}

/** A letter as it stands in a text, or its code if it cannot be seen or would turn the others. */
const inText = (place) => /[\p{C}\u2028\u2029]/u.test(pieces[place].replace(/[\n\t]/g, ""))
  ? signOf(place) : pieces[place];

/** Some letters before a place. */
function lettersTo(place, count) {
  const from = Math.max(0, place - count);
  return Array.from({ length: place - from }, (_, i) => inText(from + i)).join("");
}

/** The letters before the cursor in one line, which has the direction of the cursor's line. */
function showContext(sign) {
  const { at } = state, begin = pieces.slice(0, at).lastIndexOf("\n") + 1;
  const [line] = pieces.slice(begin).join("").split("\n", 1);
  byId("context").dir = RIGHT_TO_LEFT.test(line) ? "rtl" : "ltr";
  const before = lettersTo(at, 20).replace(/^(?=\p{M})/u, "◌");       // a mark needs a carrier
  byId("context").replaceChildren(before.replaceAll("\n", "⏎"), make("b", {}, sign));
}

function showNext() {
  const row = queryRow(), came = ids[state.at], after = came === undefined;
  byId("next-title").textContent = !ids.length ? "Type, to see what may come next"
    : after ? "What comes next?" : `Expected in place ${whole(state.at + 1)}`;
  showContext(!ids.length ? "" : after ? "?" : signOf(state.at));
  showPlace();
  const expected = row < 0 ? []
    : source.expected(row, 8, isKnown(state.at) ? came : undefined);
  fillBars(expected, came, isOther() && row >= 0
    ? new Map(source.expected(row, V, undefined, false)) : null);
}

const small = (...words) => make("small", {}, ...words);
const more = (...words) => make("small", { class: "more" }, ...words);      // where there is room

let rises = [];                 // by how much each loss of the window rose, whole or pinned to now

/** What the text costs, and what changes of the model cost it. */
function showCost() {
  const losses = seen.map((_, row) => source.loss(row, true));
  rises = losses.map((x, row) => isOther() && x !== null ? x - source.loss(row, false) : 0);
  const count = losses.filter((loss) => loss !== null).length, mean = sumOf(losses) / count;
  const worse = sumOf(rises), words = byId("cost"), on = `on ${counted(count, unit)}`;
  words.replaceChildren();
  if (!count) return;
  if (!isOther()) {
    words.append(make("b", {}, nats(mean)), more(` a ${unit}`), small(", "), more(`${on}: `),
      small(mean > EVEN_LOSS ? "worse than a blind guess" : `as a choice among ${
        fixed(Math.exp(mean), 1)} of ${whole(V)}`),
      more(mean > EVEN_LOSS ? ` among ${counted(V, unit)}` : ` ${unit}s`));
  } else if (rises.every((rise) => Math.abs(rise) < 5e-4)) {
    words.append(make("b", {}, "No letter so far costs more or less."), more("  Only what is "
      + "expected at the cursor may change: see above."));
  } else {
    const times = fixed(Math.exp(Math.abs(worse / count)), 2);
    words.append(make("b", {}, `${signed(worse)}\u00a0nats`),
      more(` ${on}`, times === "1.00" ? "" : `: each is ${times} times ${
        worse > 0 ? "less likely" : "likelier"}`, state.pin ? ` ${thanPinned()}` : "",
    ` (${nats(mean)})`), unseen(hitsInWords()));
  }
}

/** For who cannot see the colours: the three letters that a change has hit hardest. */
function hitsInWords() {
  const hardest = likeliest(rises, 3).filter((row) => rises[row] >= 0.005);
  const inWords = hardest.map((row) => {
    return `${named(seen[row])} ${afterWhat(start + row)}: ${fixed(rises[row], 2)}`;
  });
  return hardest.length ? `.  Hit hardest: ${inWords.join("; ")}.` : ".";
}

/** Where a letter stands, in words. */
function afterWhat(place) {
  const before = lettersTo(place, 12).split("\n").at(-1).trimStart();
  return before ? `after ‘${before}’` : "at the start of a line";
}

// ---- The text in small, while the field is out of view

const glance = byId("glance"), glanceWords = byId("glance-words");

/** The window's letters once more, in their colours. */
const copied = () => spans.map((span, row) => {
  const copy = span.cloneNode();
  copy.textContent = inText(start + row);
  return copy;
});

function showGlance() {
  glanceWords.textContent = "";
  if (glance.hidden || !ids) return;
  const copies = copied();
  const chosen = copies[state.at - start] ?? chosenLetter().cloneNode(true);
  glance.replaceChildren(...copies, copies.includes(chosen) ? "" : chosen);
  const isWorse = isOther() && state.colours === "surprise";
  if (isWorse) glanceWords.append("Orange: worse", more(state.pin ? ` ${thanPinned()}`
    : ` with ${changesInWords(state)}`), ".  Blue: better.");
  const isHit = isWorse && !isLast() && rises.some((rise) => Math.abs(rise) >= 0.005);
  scrollGlance(isHit ? copies : [chosen], isHit ? rises.map(Math.abs) : [1]);
}

/** Scroll to the lines that hold the largest sum of what their letters count. */
function scrollGlance(copies, counts) {
  const tops = copies.map((copy) => copy.offsetTop), room = glance.clientHeight;
  const lines = [...new Set([...glance.children].map((copy) => copy.offsetTop))];
  const sums = lines.map((line) => sumOf(counts.filter((_, i) => tops[i] >= line
    && tops[i] + copies[i].offsetHeight <= line + room)));
  glance.scrollTop = lines[sums.indexOf(Math.max(...sums))] - glance.firstChild.offsetTop;
}

// It is out of view if half of it has gone, at the top or behind the card of a narrow page.  What is
// still to come, below the screen, counts as in view.
new IntersectionObserver((entries) => {
  glance.hidden = entries.at(-1).intersectionRatio > 0.5;
  showGlance();
}, { threshold: [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], rootMargin: "-20% 0px 1000000px" })
  .observe(letters.parentElement);

/** What is changed, in words. */
function changesInWords({ off, drag }) {
  const parts = off.length > 3 ? [`${off.length} parts off`]
    : off.map((part) => `${partName(part)} off`);
  return joinNames([...parts, ...drag ? ["a weight moved"] : []]) || "all parts on";
}

/** What is changed or pinned, each to be set back. */
function showChanges() {
  const { off, drag, pin } = state, list = byId("changes");
  const chip = (words, news, heard = "set it back") => make("li", {}, button(
    () => update(news, true, ["cost"]), `${words} `,
    make("span", { "aria-hidden": "true" }, "✕"), unseen(`, ${heard}`)));
  refill(list, () => {
    if (pin?.beside) {
      list.append(chip(`beside ${sideName("pinned")}`, { pin: null }, "stop comparing"));
    }
    list.append(...off.length > 3 ? [chip(`${off.length} parts off`, { off: [] })]
      : off.map((part) => chip(`${partName(part)} off`,
        { off: off.filter((other) => other !== part) })));
    if (pin && !pin.beside) list.append(chip(sideName("pinned"), { pin: null }));
    if (!drag) return;
    const outside = edit?.drag ? "" : ", outside the window";
    list.append(chip(`weight of ${nameOf(drag.row)} on ${nameOf(drag.column)} ${
      share(drag.weight)}${outside}`, { drag: null }));
  }, facts.beside ? input : byId("heads").querySelector("[tabindex='0']"));
}

function partName(part) {
  if (part === "ngrams") return "n-grams";
  const [layer, what] = part.split(".");
  if (what < heads) return headName(Number(layer), Number(what));
  return `${what === "mlp" ? "MLP" : what} of block ${Number(layer) + 1}`;
}

function setOff(part, off) {
  const others = state.off.filter((other) => other !== part);
  update({ off: [...others, ...off ? [part] : []] }, true, ["cost"]);
}
