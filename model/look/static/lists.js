
// ==== Characters in words, rows of bars, and lists of characters

const symbol = (id) => facts.vocabulary[id][0];
const quoted = (id) => `‘${symbol(id)}’`;
const named = (id) => facts.vocabulary[id][1];

/** The symbol of a character or token, smaller where it is a code. */
function glyph(id) {
  return make("span", symbol(id).startsWith("U+") ? { class: "code" } : {}, symbol(id));
}

/** A row of a list of bars: a name, a share of the full width, a number. */
function bar(name, share, value) {
  const fill = make("span", { class: "fill" });
  fill.style.width = `${100 * share}%`;
  return make("li", {}, name, make("span", { class: "track", "aria-hidden": "true" }, fill),
    make("span", { class: "value" }, value));
}


// ---- Lists of characters, of which one is chosen by pointer or keyboard

function option(label, ...children) {
  return make("span", {
    role: "option", "aria-selected": "false", "aria-label": label, tabindex: "-1",
  }, ...children);
}

/** A listbox of options, of which those from `first` on can be chosen; pick(i) hears the choice. */
function listbox(box, first, pick) {
  const list = { options: [], chosen: first };
  const go = (i) => {
    const to = bounded(i, first, list.options.length - 1);
    pick(to);
    list.options[to].focus();
  };
  box.addEventListener("click", (event) => {
    const i = list.options.indexOf(event.target.closest("[role=option]"));
    if (i >= first) go(i);
  });
  box.addEventListener("keydown", (event) => {
    const { options } = list, at = options.indexOf(document.activeElement);
    const to = {
      ArrowLeft: () => at - 1, ArrowRight: () => at + 1,
      ArrowUp: () => lineAway(options, at, -1), ArrowDown: () => lineAway(options, at, 1),
      Home: () => first, End: () => options.length - 1,
    }[event.key];
    if (!to) return;
    event.preventDefault();
    go(to());
  });
  /** Take new options, one for each id and perhaps one more: words whole, lines as in the text. */
  list.fill = (options, ofIds) => {
    let word = make("span", { class: "word" });
    box.replaceChildren(word);
    options.forEach((element, i) => {
      const shown = i < ofIds.length ? symbol(ofIds[i]) : "";
      if (/^␣./u.test(shown)) box.append(word = make("span", { class: "word" }));
      word.append(element);
      if (shown.endsWith("⏎")) box.append(make("br"));
      if (/[␣⇥⏎]$/.test(shown)) box.append(word = make("span", { class: "word" }));
    });
    list.options = options;
    list.choose(null);
  };
  /** Mark an option as chosen, or none; the keyboard enters the list where the last one was. */
  list.choose = (i) => {
    const before = list.options[list.chosen];
    before?.setAttribute("aria-selected", "false");
    before?.setAttribute("tabindex", "-1");
    list.chosen = bounded(i ?? list.chosen, first, list.options.length - 1);
    list.options[list.chosen].setAttribute("aria-selected", i !== null);
    list.options[list.chosen].setAttribute("tabindex", "0");
  };
  return list;
}

/** The option nearest to one, on the line above (-1) or below (1). */
function lineAway(options, at, direction) {
  const boxes = options.map((element) => element.getBoundingClientRect());
  const beyond = (box, top) => direction * (box.top - top) > boxes[at].height / 2;
  const line = boxes.filter((box) => beyond(box, boxes[at].top))
    .reduce((a, b) => direction * (b.top - a) < 0 ? b.top : a, direction * Infinity);
  const away = (box) => Math.abs(box.top - line) > boxes[at].height / 2 ? Infinity
    : Math.abs(box.left - boxes[at].left);
  return boxes.reduce((best, box, i) => away(box) < away(boxes[best]) ? i : best, at);
}
