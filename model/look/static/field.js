// ==== The text: a field to type into, whose letters lie under it, in colours

const input = byId("input"), letters = byId("letters");
let spans = [];                 // of the window's letters
const on = (id, event, act) => byId(id).addEventListener(event, act);

/** A shade for a number from -1 to 1. */
const shadeOf = (x) => (x < 0 ? blue : orange)[Math.round(255 * Math.min(1, Math.abs(x)))];

/** The shade of a surprise; none for the one of an unknown letter. */
const shadeOfLoss = (loss) => loss === null ? null : shadeOf(loss / EVEN_LOSS);

// ---- Unknown characters, and those that cannot be seen or turn the words around them

const RIGHT_TO_LEFT = /^\P{L}*[\p{sc=Hebrew}\p{sc=Arabic}\p{sc=Syriac}\p{sc=Thaana}\p{sc=Nko}]/u;
const isInvisible = (c) => /[\p{C}\p{Z}]/u.test(c);

/** A character as something that can be seen; known ones are so by `shown_character` in page.py. */
function visible(c) {
  if (isInvisible(c)) return codeOf(c);
  return /\p{M}/u.test(c) ? `◌${c}` : c;
}

/** A sign that does not change the direction of the words around it. */
const isolated = (sign) => RIGHT_TO_LEFT.test(sign) ? `\u2068${sign}\u2069` : sign;

const nameOfUnknown = (c) => isInvisible(c) ? codeOf(c)
  : `‘${isolated(visible(c))}’ (${codeOf(c)})`;

/** The letters, in the colours that they had until their own are known: those before a change in
    the colours of their place, those after it in those of their place from the end. */
function fillLetters() {
  if (!isWriting() && input.value !== state.text) input.value = state.text;
  const before = spans, longer = before.length - seen.length;
  const head = pieces.slice(0, start).join("");
  let same = 0;                 // letters that stay, since a new one is laid out anew
  if (letters.firstChild?.data === head) {
    while (same < seen.length && before[same]?.textContent === pieces[start + same]) same++;
  }
  chosenLetter()?.classList.remove("chosen");
  if (same) {
    while (letters.lastChild !== before[same - 1]) letters.lastChild.remove();
  } else {
    letters.replaceChildren(head);
  }
  spans = seen.map((_, row) => {
    if (row < same) return before[row];
    const span = letter(start + row);
    span.style.cssText = row && before[row + longer]?.style.cssText || "";
    return span;
  });
  const end = start + seen.length, rest = pieces.slice(end).join("");
  const next = make("span", { class: "next" }, "\u200b");     // so that a last line has its height
  letters.append(...spans.slice(same), rest, next);
  let chosen = spans[state.at - start] ?? next;
  if (rest && state.at === end) {       // the first that is not read, but foreseen
    chosen = letter(end);
    next.previousSibling.replaceWith(chosen, pieces.slice(end + 1).join(""));
  }
  chosen.classList.add("chosen");
  spans.coloured = 0;
}

/** A letter of the text, which takes a colour. */
function letter(place) {
  const span = make("span", {}, pieces[place]);
  if (pieces[place].endsWith("\n")) span.className = "line-end";
  if (!isKnown(place)) span.className = "unknown";
  return span;
}

const chosenLetter = () => letters.querySelector(".chosen");

/** Colour what was read: by surprise, or how much that got worse; by attention; by reasons. */
function colourLetters() {
  const row = queryRow(), { colours } = state, rows = Math.min(source.rows(), seen.length);
  if (colours === "surprise") {
    for (; spans.coloured < rows; spans.coloured++) {
      const i = spans.coloured, loss = source.loss(i, true);
      tint(spans[i], isOther() && loss !== null ? shadeOf((loss - source.loss(i, false)) / 2)
        : shadeOfLoss(loss));
    }
    if (rows === seen.length) showGlance();
    return;
  }
  const look = colours === "attention" && row >= 0
    ? source.weights(state.layer, state.head, row, 1) : [];
  spans.forEach((span, i) => {
    tint(span, look[i] !== undefined ? shadeOfWeight(look[i])
      : colours === "reasons" ? shadeOfReason(i) : null);
  });
  showGlance();
  showTried();
}

/** Which part of a long text is read, and what is unknown in it. */
function showWindow() {
  const end = start + seen.length;
  tell("window", ids.length > block && `Coloured: ${unit}s ${whole(start + 1)} to ${whole(end)} of ${
    whole(ids.length)}.  The model reads at most ${whole(block)} at once; the cursor says which.`);
  const who = isBeside() ? capital(sideName("now")) : "The model";
  const unknown = [unknownTo(who, isKnown, facts), isBeside()
    && unknownTo(capital(sideName("pinned")), (place) => isInBoth(ids[place]), facts.beside)];
  tell("unknown", unknown.filter(Boolean).join("  "));
}

/** What a model does not know of the text, in words. */
function unknownTo(who, knows, { neutral }) {
  const unknown = [...new Set(pieces.filter((_, place) => !knows(place)))];
  const names = unknown.map(nameOfUnknown);
  return names.length ? `${who} does not know ${names.slice(0, 8).join(", ")}${
    names[8] ? ", …" : "."}  It reads ${quoted(neutral[0])} instead, and gives no loss there.` : "";
}

function showLegend() {
  const both = [...blue].reverse().concat(orange);
  const [words, colours, ...marks] = {
    surprise: isOther() ? [`How much worse each ${unit} is foreseen ${state.pin
      ? `now ${thanPinned()}` : "with your changes than without"}.`,
      both, "better by 2 nats", "worse by 2 nats"]
      : [`How much a ${unit} surprised the model: its loss.  One nat more: 2.7 times less likely.`,
        orange, "0 nats: foreseen", `${fixed(EVEN_LOSS, 1)} nats: a blind guess`],
    attention: [`How much ${headName(state.layer, state.head)} looks at each ${unit}, to foresee `
      + "the one at the cursor.", blue, ...weightMarks()],
    reasons: [`How much less likely the ${unit} at the cursor gets if one before is replaced: by a `
      + "space, or a space by a line break.", both, "stood in the way: −2 nats", "helped: 2 nats"],
  }[state.colours];
  byId("colour-words").textContent = words;
  fillLegend("legend", colours, marks);
}

/** A ramp, with marks along it. */
function fillLegend(id, colours, marks) {
  const [ramp, scale] = byId(id).children;
  ramp.style.background = gradient(colours);
  scale.replaceChildren(...marks.map((mark) => make("span", {}, mark)));
}

/** A line that is there only if it says something. */
function tell(id, words) {
  byId(id).hidden = !words;
  byId(id).textContent = words || "";
}

/** Where a place begins in the field's text, and the place at such an index. */
const indexOf = (place) => pieces.slice(0, place).join("").length;
function placeOf(index) {
  let length = 0;
  const place = pieces.findIndex((piece) => (length += piece.length) > index);
  return place < 0 ? pieces.length : place;
}

/** Take over the field's text. */
function typed() {
  const text = input.value;
  const at = Array.from(text.slice(0, input.selectionEnd)).length;
  update({ text, at, column: null, ...keptDrags(pieces, Array.from(text)) }, false);
  followCursor();
}

/** Scroll the field to the cursor; the page stays where it is. */
function followCursor() {
  const field = letters.parentElement, letter = spans[state.at - start] ?? letters.lastChild;
  const top = letter.offsetTop, low = top + letter.offsetHeight - field.clientHeight;
  field.scrollTop = bounded(field.scrollTop, low, top);
}

/** The dragged weights, now and pinned, as long as all that their rows read stands as before. */
function keptDrags(before, after) {
  const kept = (drag) => drag && before.slice(0, drag.row + 1).every((piece, i) =>
    piece === after[i]) ? drag : null;
  const drag = kept(state.drag), pin = state.pin && { ...state.pin, drag: kept(state.pin.drag) };
  const isLost = drag !== state.drag || pin?.drag !== state.pin?.drag;
  tell("released", isLost && "The weight is set back: its letters have changed.");
  return { drag, pin };
}

let isSetting = false;          // each line of what is set is told as if it were typed

/** Put other text into the field so that its undo knows of it, and the cursor there; perhaps in
    place of its last step. */
function setText(text, index, isInPlace = false) {
  const focused = document.activeElement;
  let same = 0;
  input.focus({ preventScroll: true });
  isSetting = true;
  if (isInPlace) document.execCommand("undo");
  const old = input.value;
  while (same < old.length && old[same] === text[same]) same++;
  input.setSelectionRange(same, old.length);
  const done = same < text.length ? document.execCommand("insertText", false, text.slice(same))
    : document.execCommand("delete");
  isSetting = false;
  if (!done || input.value !== text) input.value = text;
  input.setSelectionRange(index, index);
  if (focused !== input) focused.focus({ preventScroll: true });
  typed();
}

/** The chosen place in words; what the card shows beside it is only heard. */
function showPlace() {
  const { at } = state, row = queryRow(), words = byId("place");
  words.textContent = !ids.length ? "" : row < 0
    ? "Nothing comes before the first letter: it is not foreseen." : placeWords(at);
  if (row < 0) return;
  const [[best, p]] = source.expected(row, 1);
  words.append(unseen(`Most likely: ${named(best)}, ${share(p)}.`));
}

function placeWords(at) {
  if (at === ids.length) return "";
  const loss = source.loss(at - start, true), place = `Place ${whole(at + 1)}`;
  if (loss === null) return `${place}, ${nameOf(at)}, has no loss.  `;
  return `${place}, ${named(ids[at])}: ${share(Math.exp(-loss))}, which is a loss of ${
    nats(loss, 2)}.  `;
}

/** Choose the place of the cursor. */
function movedCursor() {
  const at = placeOf(input.selectionEnd);
  if (document.activeElement !== input || at === state.at || input.value !== state.text) return;
  update({ at, column: null }, false, ["place"]);
}

input.addEventListener("input", () => { if (!isSetting) typed(); });
input.addEventListener("beforeinput", (event) => { if (!live) event.preventDefault(); });
input.setAttribute("aria-readonly", !live);
for (const place of [document, input]) place.addEventListener("selectionchange", movedCursor);
on("colours", "change", ({ target }) => update({ colours: target.value }));
