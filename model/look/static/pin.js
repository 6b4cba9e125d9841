// ==== Two states side by side: the pinned one, with which all is compared, and the one of now

on("pin", "click", () => {
  const { off, drag, pin } = state;
  update({ pin: pin ? null : { off, drag } }, true, ["cost"]);
});

/** The window in both states, in one scale of surprise, and where they part. */
function* showPair() {
  const { pin } = state;
  byId("pin").textContent = pin ? "Unpin" : "Pin this state";
  byId("pin-words").textContent = pin ? "" : "Pin it, change something, and see both side by side.";
  byId("pair").hidden = !pin;
  if (!pin) return;
  const row = yield* parting();
  byId("parting").textContent = isOther() ? partingWords(row)
    : `Pinned: ${changesInWords(pin)}.  Now change something, and see here where the two part.`;
  fillSide("pinned", `Pinned: ${changesInWords(pin)}`, false, row);
  yield;
  fillSide("now", `Now: ${changesInWords(state)}`, true, row);
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
  if (!row) return `Both would go on with the same ${unit} everywhere.`;
  const place = start + row;
  const [before, now] = [false, true].map((changed) => {
    const [id, p] = bestOf(row - 1, changed);
    return `${quoted(id)} (${share(p)})`;
  });
  const came = place < ids.length ? `  The text has ${nameOf(place)} there.` : "";
  return `They part first ${afterWhat(place)}: pinned would go on with ${before}, now with ${
    now}.${came}`;
}

function fillSide(id, name, changed, ringed) {
  const losses = seen.map((_, row) => source.loss(row, changed)), copies = copied();
  const known = losses.filter((loss) => loss !== null);
  const mean = known.length ? `${nats(sumOf(known) / known.length)} a ${unit}` : "";
  byId(`${id}-title`).replaceChildren(name, " ", small(mean));
  copies.forEach((copy, row) => {
    tint(copy, shadeOfLoss(losses[row]));
    copy.classList.toggle("chosen", row === ringed);
  });
  byId(`${id}-letters`).replaceChildren(...copies);
}
