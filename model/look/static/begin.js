// ==== About the model, the address, and the beginning

const LONGEST = 2000;       // characters of a text that an address holds

/** Keep the state in the address, soon: as a step in the history, or in place of the last one. */
let remembered;
function remember(step) {
  const kept = { ...state };
  if (pieces.length > LONGEST || !live) delete kept.text;
  tell("address", pieces.length > LONGEST && live && "The address of this page keeps no text of "
    + `more than ${whole(LONGEST)} characters: to come back to this one, keep it yourself.`);
  clearTimeout(remembered);
  remembered = setTimeout(() => {
    const hash = `#${encodeURIComponent(JSON.stringify(kept))}`;
    if (hash !== location.hash) history[step ? "pushState" : "replaceState"](null, "", hash);
  }, 200);
}

const isWhole = (low, high) => (x) => Number.isInteger(x) && x >= low && x <= high;
const isNumber = (low, high) => (x) => typeof x === "number" && x >= low && x <= high;
const isPart = (x) => [...document.querySelectorAll("[data-part]")]
  .some((box) => box.dataset.part === x);
const [isLayer, isHead, isPlace] = [layers - 1, heads - 1, Infinity].map((x) => isWhole(0, x));
const orNone = (isRight) => (x) => x === null || isRight(x);
const isObject = (x) => live && typeof x === "object";
// What an address may say.
const FIELDS = {
  text: (x) => live && typeof x === "string", at: orNone(isPlace),
  layer: isLayer, head: isHead, column: orNone(isPlace),
  off: (x) => Array.isArray(x) && x.every(isPart) && new Set(x).size === x.length,
  drag: orNone((x) => isObject(x) && isLayer(x.layer) && isHead(x.head)
    && isPlace(x.row) && isWhole(0, x.row)(x.column) && isNumber(0, 1)(x.weight)),
  pin: orNone((x) => isObject(x) && FIELDS.off(x.off) && FIELDS.drag(x.drag)
    && (!x.beside || facts.beside && !x.off.length && !x.drag)),
  colours: (x) => ["surprise", "attention", ...live ? ["reasons"] : []].includes(x),
  why: (x) => live && typeof x === "boolean",
  temperature: isNumber(0, 2), top_k: isWhole(1, V), top_p: isNumber(0.05, 1),
};

/** Follow a link to a section, whose name would take the place of the state in the address. */
function goToSection(event) {
  event.preventDefault();
  const section = byId(event.currentTarget.hash.slice(1));
  section.tabIndex = -1;
  section.focus({ preventScroll: true });
  section.scrollIntoView();
}

/** Take the state of the address; what it does not say is as at the beginning, but for the text,
    which may be too long for an address.  Without an address, all is. */
function recall(event) {
  const bad = [], address = location.hash.slice(1);
  let kept = { ...fresh, text: address ? state.text : fresh.text }, said = {};
  try {
    said = JSON.parse(decodeURIComponent(address || "{}"));
  } catch {
    kept = { ...state };
    if (!byId(address)) said = null;        // it is not the name of a section, either
  }
  if (said === null || typeof said !== "object") {
    bad.push("all of it");
    said = {};
  }
  for (const [name, value] of Object.entries(said)) {
    if (Object.hasOwn(FIELDS, name) && FIELDS[name](value)) kept[name] = value;
    else bad.push(name);
  }
  const end = live ? Array.from(kept.text).length : ids.length;
  const places = { at: kept.at - 1, column: kept.column, drag: kept.drag?.row,
    pin: kept.pin?.drag?.row };
  for (const [name, place] of Object.entries(places)) {
    if (place < end || !Number.isFinite(place)) continue;
    kept[name] = fresh[name];
    bad.push(name);
  }
  kept.at ??= Infinity;
  byId("why").open = kept.why;
  update(kept, null, event ? ["cost"] : []);
  input.setSelectionRange(indexOf(state.at), indexOf(state.at));
  document.querySelector(`[name=colours][value=${kept.colours}]`).checked = true;
  tell("address", bad.length && `The address of this page says something that is not understood `
    + `(${bad.slice(0, 3).join(", ").slice(0, 40)}): it is ignored.`);
}

/** What is known before the weights are unpacked: the opening text in its colours, all parts. */
function showOpening() {
  byId("about-words").textContent = facts.about_words;
  fillFlow();
  if (facts.log?.length) {
    byId("charts").append(lossChart(ofRun(facts.log), facts.counted ?? []));
  }
  if (!live) return;
  const count = sumOf(facts.tensors.map(({ shape }) => shape.reduce((a, b) => a * b)));
  byId("next-title").textContent = `Unpacking ${whole(count)} weights …`;
  settle();
  fillLetters();
  spans.forEach((span, row) => {
    tint(span, shadeOfLoss(isKnown(start + row) ? facts.losses[row - 1] ?? null : null));
  });
  showWindow();
  showLegend();
}

async function begin() {
  document.documentElement.classList.toggle("table", !live);
  inTheTheme(() => {
    spans = [];
    if (!ids || !job) return;
    update({}, null);
    if (onPaper.matches) drawAtOnce();
  });
  showOpening();
  await rest(1);                // so that it is seen
  await (live ? loadModel() : loadTable());
  addEventListener("popstate", recall);
  for (const link of document.links) {
    if (byId(link.hash.slice(1))) link.addEventListener("click", goToSection);
  }
  recall();
  const isMeasured = !live || state.text === facts.text && start === 0 && !edit;     // by Python
  if (!isMeasured || !facts.worths) return;
  worths.key = measuredKey();
  worths.found = new Map(facts.worths.map((worth, i) => [tiles[i].name, worth]));
  showWorths();
}

drawPage(begin);
