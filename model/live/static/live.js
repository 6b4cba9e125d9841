
// ==== The address, the notes of a first visit, and the beginning

const LONGEST = 2000;       // characters of a text that an address holds

/** Keep the state in the address, soon: as a step in the history, or in place of the last one. */
let remembered;
function remember(step = true) {
  const kept = { ...state }, long = characters.length > LONGEST;
  if (long) delete kept.text;
  byId("long").textContent = long ? `The address of this page keeps the state, but no text of more `
    + `than ${whole(LONGEST)} characters: to come back to this one, keep it yourself.` : "";
  clearTimeout(remembered);
  remembered = setTimeout(() => {
    const hash = `#${encodeURIComponent(JSON.stringify(kept))}`;
    if (hash !== location.hash) history[step ? "pushState" : "replaceState"](null, "", hash);
  }, 200);
}

/** Take the state of the address; what is not in it is left. */
function recall() {
  const kept = { ...state };
  try {
    Object.assign(kept, JSON.parse(decodeURIComponent(location.hash.slice(1))));
  } catch { /* the name of a section, or nothing */ }
  update({
    text: String(kept.text), at: Number(kept.at) || 0, off: Array.from(kept.off), drag: kept.drag,
    layer: bounded(kept.layer | 0, 0, layers - 1), head: bounded(kept.head | 0, 0, heads - 1),
    column: Math.max(0, kept.column | 0), temperature: bounded(+kept.temperature, 0, 2),
    top_k: bounded(+kept.top_k, 1, V), top_p: bounded(+kept.top_p, 0.05, 1),
  }, false);
}

/** Notes that are gone once they were dismissed, where a browser keeps that for a file. */
function fillNotes() {
  try { byId("notes").hidden = localStorage.notes === "read"; } catch { /* it does not */ }
  on("dismiss", "click", () => {
    byId("notes").hidden = true;
    try { localStorage.notes = "read"; } catch { /* they come again */ }
  });
}

function fillEngine() {
  const code = { Transformer, Block, MultiHeadAttention, MLP };
  byId("sources").append(...Object.entries(facts.python).map(([name, python]) =>
    make("details", {}, make("summary", {}, name), make("div", { class: "columns heads" },
      make("pre", {}, code[name].toString()), make("pre", {}, python)))));
}

async function begin() {
  await loadModel();
  await loadCounts();
  fillAbout();
  fillParts();
  fillEngine();
  fillNotes();
  listenToParts();
  listenToKeeping();
  byId("top_k").max = V;
  on("write", "input", ({ target: { id, value } }) => update({ [id]: Number(value) }));
  on("one", "click", () => write(1));
  on("many", "click", () => write(50));
  on("input", "input", ({ target: { value, selectionEnd } }) => update({
    text: value, at: Array.from(value.slice(0, selectionEnd)).length }, false));
  addEventListener("popstate", recall);
  inTheTheme(() => {
    stands.clear();
    if (ids) update({}, false);
  });
  recall();
}

drawPage(begin);
