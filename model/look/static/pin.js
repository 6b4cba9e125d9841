// ==== Two states side by side: the pinned one, with which all is compared, and the one of now

const besidePin = byId("pair").previousElementSibling, ledeOfBoth = byId("lede").textContent;

/** Two models stand below the text that they read, and the opening words are of both; two states of
    one model stand below its parts. */
function placePair() {
  const pair = byId("pair"), text = byId("text"), isAbove = pair.parentElement === text;
  if (isBeside() && !isAbove) text.append(pair);
  if (!isBeside() && isAbove) besidePin.after(pair);
  byId("lede").textContent = isBeside() ? ledeOfBoth : facts.beside.lede_of_one;
}

/** What stands on a side, "pinned" or "now", in words. */
const sideName = (side) => isBeside() ? `model ‘${facts.beside[side]}’` : side;
const thanPinned = () => `than ${isBeside() ? "in " : ""}${sideName("pinned")}`;

on("pin", "click", () => {
  const { off, drag, pin } = state;
  update({ pin: pin ? null : { off, drag } }, true, ["cost"]);
});

/** The window in both states, in one scale of surprise, and where they part. */
function* showPair() {
  const { pin } = state;
  byId("pin").textContent = pin ? "Unpin" : "Pin this state";
  byId("pair").hidden = !pin;
  if (facts.beside) placePair();
  if (!pin) return;
  const row = yield* parting();
  byId("parting").textContent = isOther() ? partingWords(row)
    : `Pinned: ${changesInWords(pin)}.  Now change something, and see here where the two differ.`;
  fillSide("pinned", pin, row);
  yield;
  fillSide("now", state, row);
}

/** The likeliest id after a row, and its probability. */
const bestOf = (row, changed) => source.expected(row, 1, undefined, changed)[0];

/** The first row of the window whose letter, or the one that follows the window, would be another
    one if the likeliest were taken; undefined if there is none. */
function* parting() {
  for (let row = 1; row <= seen.length; row++) {
    if (bestOf(row - 1, false)[0] !== bestOf(row - 1, true)[0]) return row;
    yield;
  }
}

function partingWords(row) {
  if (!seen.length) return "";
  if (!row) return `Both would go on with the same ${unit} everywhere.`;
  const place = start + row;
  const [before, now] = [false, true].map((changed) => bestOf(row - 1, changed))
    .map(([id, p]) => `${quoted(id)} (${share(p)})`);
  return `They first differ ${afterWhat(place)}: ${
    sideName("pinned")} would go on with ${before}, ${sideName("now")} with ${now}.${
    place < ids.length ? `  The text has ${nameOf(place)} there.` : ""}`;
}

/** The text on one side, "pinned" or "now": what is changed there, what it costs, its letters. */
function fillSide(side, changes, ringed) {
  const losses = seen.map((_, row) => source.loss(row, side === "now")), copies = copied();
  const count = losses.filter((loss) => loss !== null).length;
  byId(`${side}-title`).textContent = `${capital(sideName(side))}: ${changesInWords(changes)}`;
  byId(`${side}-loss`).textContent = count ? `${nats(sumOf(losses) / count)} a ${unit}` : "";
  copies.forEach((copy, row) => {
    tint(copy, shadeOfLoss(losses[row]));
    copy.classList.toggle("chosen", row === ringed);
  });
  byId(`${side}-letters`).replaceChildren(...copies);
}
