
// ==== Write: letter by letter, with the number that is drawn; and the branches as a tree

let tree;               // { whole, text, children }: where writing began, and what came after it
let leaf;               // where it is now

/** Write some letters after the text, as branches of a tree that begins there. */
function write(count) {
  if (state.text !== leaf?.whole) tree = leaf = { whole: state.text, text: "", children: [] };
  for (let n = 1; n < count; n++) grow();
  take();
}

/** Draw a letter, or take the one that is given instead, and show how it was chosen. */
function take(instead) {
  const before = leaf, { probabilities, drawn, u } = grow(instead), chosen = instead ?? drawn;
  const low = sumOf(probabilities.slice(0, drawn)), high = low + probabilities[drawn];
  chart("drawn", probabilities, 12, chosen, undefined, (id) => {
    leaf = before;
    take(id);
  });
  byId("drawn-title").textContent = `The number drawn is ${fixed(u, 4)}.  It falls on ${
    quoted(drawn)}, which has ${fixed(low, 4)} to ${fixed(high, 4)}${
    instead === undefined ? "" : `, but you took ${quoted(chosen)}`}`;
  goTo(leaf);
}

/** Draw a letter after the leaf; the leaf moves to it, or to the one that is taken instead. */
function grow(instead) {
  const before = leaf, known = idsOf(leaf.whole);
  const window = known.slice(windowStart(known.length, block));
  while (model.read(shown(), window, edit));
  const { temperature, top_k, top_p } = state, u = Math.random();
  const found = draw(shown().logitsOf(window.length - 1), u, temperature, top_k, top_p);
  const text = facts.characters[instead ?? found.drawn];
  leaf = before.children.find((child) => child.text === text);
  if (!leaf) before.children.push(leaf = { whole: before.whole + text, text, children: [] });
  return { ...found, u };
}

/** Show the text of a branch. */
function goTo(branch) {
  leaf = branch;
  byId("tree").replaceChildren(drawBranch(tree));
  update({ text: branch.whole, at: Infinity });
}

/** A branch as a list: what is written without a choice stands in one line. */
function drawBranch(branch) {
  let end = branch, text = branch.text;
  for (; end.children.length === 1; text += end.text) [end] = end.children;
  const words = Array.from(text, (character) => symbol(idOf.get(character))).join("");
  const item = button(words || "(the text)", () => goTo(end));
  if (end === leaf) item.setAttribute("aria-current", "true");
  return make("ul", {}, make("li", {}, item, ...end.children.map(drawBranch)));
}

/** Show where the sliders stand; nothing is predicted before the first character. */
function showSliders() {
  byId("one").disabled = byId("many").disabled = !ids.length;
  for (const output of document.querySelectorAll("output")) {
    const slider = output.previousElementSibling;
    slider.value = output.textContent = state[slider.id];
  }
}
