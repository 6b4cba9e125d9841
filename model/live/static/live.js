
// ==== The address, the notes of a first visit, and the beginning

const LONGEST = 2000;       // characters of a text that an address holds

/** Keep the state in the address: a click is a step in the history, a key press is not. */
let remembered;
function remember(push = true) {
  clearTimeout(remembered);
  remembered = setTimeout(() => {
    const kept = { ...state, off: [...state.off] };
    if (characters.length > LONGEST) delete kept.text;
    const hash = `#${encodeURIComponent(JSON.stringify(kept))}`;
    if (hash !== location.hash) history[push ? "pushState" : "replaceState"](null, "", hash);
  }, 200);
}

/** Take the state of the address; one that cannot be read is left. */
function recall() {
  try {
    const kept = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    const { temperature, top_k, top_p } = { ...state, ...kept };
    Object.assign(state, { text: String(kept.text ?? state.text), at: Number(kept.at ?? 0),
      layer: bounded(kept.layer | 0, 0, layers - 1), head: bounded(kept.head | 0, 0, heads - 1),
      column: kept.column | 0, off: new Set(kept.off), drag: kept.drag ?? null,
      temperature: bounded(+temperature, 0, 5), top_k: bounded(+top_k, 1, V),
      top_p: bounded(+top_p, 0.01, 1) });
  } catch { /* another page's, or none */ }
  byId("input").value = state.text;
  setText(state.text);
  showSettings();
  changed();
}

function fillNotes() {
  const dismissed = () => { byId("notes").hidden = true; try { localStorage.notes = "read"; } catch { } };
  try { byId("notes").hidden = localStorage.notes === "read"; } catch { /* not kept on this machine */ }
  byId("dismiss").addEventListener("click", dismissed);
  for (const link of byId("notes").querySelectorAll("a")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const target = document.querySelector(link.getAttribute("href"));
      target.scrollIntoView({ block: "center" });
      target.focus();
    });
  }
}

function fillEngine() {
  const code = { Transformer, Block, MultiHeadAttention, MLP };
  byId("sources").append(...Object.entries(facts.python).map(([name, python]) => make("details", {},
    make("summary", {}, name), make("div", { class: "columns heads" },
      make("pre", {}, code[name].toString()), make("pre", {}, python)))));
}

async function begin() {
  await loadModel();
  await loadCounts();
  byId("about").append(...facts.about.map(([name, value]) => make("div", {},
    make("dt", {}, name), make("dd", {}, value))));
  byId("rival-words").textContent = facts.grams.kept
    ? `Counted on the text it was trained on: ${whole(facts.grams.kept)} different 5-grams, `
      + `${(100 * facts.grams.share).toFixed(1)} % of it.`
    : `There are no counts beside it, because ${facts.grams.missing}.`;
  fillParts();
  fillEngine();
  fillNotes();
  listenToParts();
  listenToWriting();
  listenToKeeping();
  byId("input").addEventListener("input", (event) => {
    setText(event.target.value);
    state.at = Array.from(event.target.value.slice(0, event.target.selectionEnd)).length;
    typed();
    remember(false);
  });
  addEventListener("popstate", recall);
  inTheTheme(() => byId("heads").childElementCount && model && characters && typed());
  recall();
}

drawPage(begin);
