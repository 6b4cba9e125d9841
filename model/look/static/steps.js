
// ==== The steps from characters to logits, and the stream at the chosen character

function fillSteps() {
  for (const name of byId("sizes").querySelectorAll("dt")) {
    const size = facts.sizes[name.textContent];
    if (size === undefined) name.parentNode.remove();
    else name.textContent += ` = ${whole(size)}`;
  }
  const groups = [];
  for (const fact of facts.steps) {
    if (groups.at(-1)?.block !== fact.block) groups.push({ block: fact.block, steps: [] });
    groups.at(-1).steps.push(fact);
  }
  groups.forEach(({ block, steps }, i) => {
    const count = steps.reduce((sum, fact) => sum + fact.count, 0);
    const title = block !== null ? `Block ${block + 1} of ${layers}` : i ? "Output" : "Input";
    const group = make("details", { class: "block" },
      make("summary", {}, `${title} `,
        make("span", { class: "count" }, `· ${counted(count, "parameter")}`)),
      make("ol", {}, ...steps.map(stepRow)));
    group.open = !block;                // the blocks after the first are alike
    byId("step-list").append(group);
  });
}

function stepRow(fact) {
  const size = (shape) => shape.map(whole).join(" × ");
  const words = make("div", {}, fact.words);
  if (fact.parameters.length) {
    const owned = fact.parameters.map(({ name, shape }) => `${name} (${size(shape)})`).join(", ");
    words.append(make("span", { class: "owns" }, fact.count
      ? `${counted(fact.count, "parameter")}: ${owned}` : `again ${owned}`));
  }
  return make("li", {}, make("div", {}, make("code", {}, fact.op),
    make("span", { class: "shape" }, `(${fact.letters.join(", ")}) =`, make("br"),
      size(fact.shape))), words);
}

function showStream() {
  const n = state.character, { blocks } = expected(n), known = n < ids.length;
  const cell = (kind, text, attributes = {}) => make(kind, attributes, text);
  const head = (text, attributes) => cell("th", text, { scope: "col", ...attributes });
  byId("stream-title").textContent = `The stream at ${quoted(ids[n - 1])} (${unit} ${n}), `
    + (known ? `before ${quoted(ids[n])} comes` : "the last");
  const rows = blocks.map((fact, i) => make("tr", {},
    cell("th", i ? `after block ${i}` : "before block 1", { scope: "row" }),
    cell("td", fact.top.map(([id, units]) => `${quoted(id)} ${probability(units)}`).join("   "),
      { class: "text" }),
    ...(known ? [cell("td", probability(fact.came))] : []),
    cell("td", fact.norm.toFixed(2)),
    ...fact.channels.map((x) => cell("td", x.toFixed(3).replace("-", "−")))));
  byId("stream").replaceChildren(
    make("thead", {}, make("tr", {}, head("the stream"), head("would predict", { class: "text" }),
      ...(known ? [head(`${quoted(ids[n])}, which came`)] : []), head("its length"),
      ...blocks[0].channels.map((_, i) => head(`channel ${i + 1}`)))),
    make("tbody", {}, ...rows));
}
