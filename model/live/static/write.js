
// ==== Write: letter by letter, with the number that is drawn; and the branches as a tree

let tree;               // { text, children }: where writing began, and what was written after it
let leaf;               // where it is now

function drawLetter(u = Math.random()) {
  const before = ids.slice(), start = startOf(before.length), window = before.slice(start);
  for (const _ of shown().read(window, change(), change() ? changeKey() : "")); // all of it, now
  const { temperature, top_k, top_p } = state;
  const found = draw(shown().logits(window.length - 1), u, temperature, top_k, top_p);
  return { ...found, u };
}

/** Write one letter, or the one that is given instead, and show how it was chosen. */
function writeLetter(instead) {
  if (!ids.length) return;
  state.at = ids.length;
  if (!tree || state.text !== leaf.whole) tree = leaf = { whole: state.text, text: "", children: [] };
  const { probabilities, drawn, u } = drawLetter(), chosen = instead ?? drawn;
  const text = facts.characters[chosen], before = leaf;
  leaf = before.children.find((child) => child.text === text);
  if (!leaf) before.children.push(leaf = { whole: before.whole + text, text, children: [] });
  let reached = 0;
  const bars = [...probabilities.keys()].filter((id) => probabilities[id]).map((id) => {
    const [low, high] = [reached, reached += probabilities[id]];
    const row = characterBar(id, probabilities[id], chosen,
      id === drawn ? ` ← ${fixed(low, 3)} ≤ ${fixed(u, 3)} < ${fixed(high, 3)}` : "");
    const button = make("button", { type: "button" }, `take ${named(id)}`);
    button.addEventListener("click", () => {
      goTo(before);
      writeLetter(id);
    });
    row.append(button);
    return [probabilities[id], row];
  });
  byId("drawn").replaceChildren(...bars.sort((a, b) => b[0] - a[0]).slice(0, 12)
    .map(([, row]) => row));
  byId("drawn-title").textContent = instead === undefined
    ? `The number drawn is ${fixed(u, 4)}: it falls on ${quoted(drawn)}`
    : `You took ${quoted(chosen)}; the number ${fixed(u, 4)} would have drawn ${quoted(drawn)}`;
  goTo(leaf);
}

/** Show the text of a branch. */
function goTo(branch) {
  leaf = branch;
  byId("input").value = branch.whole;
  setText(branch.whole);
  state.at = ids.length;
  typed();
  byId("tree").replaceChildren(drawBranch(tree));
  remember();
}

/** A branch as a list: what is written without a choice stands in one line. */
function drawBranch(branch) {
  let text = branch.text, end = branch;
  while (end.children.length === 1) {
    [end] = end.children;
    text += end.text;
  }
  const button = make("button", { type: "button" }, Array.from(text || "(the text)").map((c) =>
    idOf.has(c) ? symbol(idOf.get(c)) : c).join(""));
  if (end.whole === leaf.whole) button.setAttribute("aria-current", "true");
  button.addEventListener("click", () => goTo(end));
  return make("ul", {}, make("li", {}, button, ...end.children.map(drawBranch)));
}

function listenToWriting() {
  for (const name of ["temperature", "top_k", "top_p"]) {
    byId(name).addEventListener("input", (event) => {
      state[name] = Number(event.target.value);
      showSettings();
      remember();
    });
  }
  byId("one").addEventListener("click", () => writeLetter());
  byId("many").addEventListener("click", () => { for (let n = 0; n < 50; n++) writeLetter(); });
}

function showSettings() {
  byId("top_k").max = V;
  for (const name of ["temperature", "top_k", "top_p"]) {
    byId(name).value = state[name];
    byId(`${name}-words`).textContent = String(state[name]);
  }
}
