
// ==== The heads, as small maps

const buttons = [];         // of all heads, layer by layer

function fillHeads() {
  const grid = byId("heads"), axis = { class: "axis", "aria-hidden": "true" };
  grid.style.gridTemplateColumns = `auto repeat(${heads}, minmax(0, 1fr))`;
  grid.append(make("span"), ...facts.heads[0].map((_, i) => make("span", axis, `head ${i + 1}`)));
  facts.heads.forEach((row, layer) => {
    grid.append(make("span", axis, `layer ${layer + 1}`));
    row.forEach((fact, head) => {
      const button = make("div", {
        class: "head", role: "radio", "aria-checked": "false", tabindex: "-1",
        "aria-label": `layer ${layer + 1}, head ${head + 1}: ${fact.does}`,
      }, make("canvas"), make("p", { "aria-hidden": "true" }, fact.label));
      button.addEventListener("click", () => goToHead(layer * heads + head));
      grid.append(button);
      buttons.push(button);
    });
  });
  grid.addEventListener("keydown", (event) => {
    const at = state.layer * heads + state.head;
    const to = {
      ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - heads, ArrowDown: at + heads,
      Home: 0, End: buttons.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (to in buttons) goToHead(to);
  });
}

function goToHead(i) {
  chooseHead(Math.floor(i / heads), i % heads);
  buttons[i].focus();
}

function drawHead(canvas, layer, head) {
  const map = triangle(layer, head), root = byRoot();
  paint(canvas, length(), (row, column) => rooted(weight(map, row, column), root));
}

function drawHeads() {
  buttons.forEach((button, i) => drawHead(button.firstChild, Math.floor(i / heads), i % heads));
}

function showScale() {
  const legend = byId("weight-legend"), root = byRoot();
  legend.querySelector(".ramp").style.background = gradient(blue);
  legend.querySelector(".ticks").replaceChildren(
    ...(root ? [0, 5, 25, 50, 100] : [0, 25, 50, 75, 100]).map((share) => {
      const tick = make("span", {}, `${share} %`);
      tick.style.left = `${root ? 10 * Math.sqrt(share) : share}%`;
      return tick;
    }));
  byId("shade-hint").textContent = "Attention of a query on a key.  The shade follows "
    + (root ? "its square root, so that little attention shows too." : "the share itself.");
}


// ==== The chosen head, large

const canvas = byId("map").querySelector("canvas");
const picture = make("canvas");         // its weights, a pixel for each
let plot;                   // where it is drawn, in CSS pixels: left, top, side, cell, margin
let pointed = null;         // row and column under the pointer, which go before those of the state

/** The row and column that count now; null where none is followed. */
const followed = () => pointed ?? { row: state.row, column: state.column };

function drawMap() {
  const width = canvas.clientWidth, scale = devicePixelRatio || 1;
  if (!width) return;
  // room for a character at every row
  const spelled = unit === "character" && (width - 22) / length() >= 7.5;
  const margin = spelled ? 18 : 30, side = width - margin - (spelled ? 4 : 12);
  plot = { left: margin, top: 4, side, cell: side / length(), margin, spelled };
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round((side + margin + 8) * scale);
  canvas.style.height = `${side + margin + 8}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture, plot.left, plot.top, side, side);
  drawAxes(pen);
  drawFrames(pen);
}

/** Characters along both axes; where there is no room for them, places. */
function drawAxes(pen) {
  const { left, top, side, cell, margin, spelled } = plot, at = followed();
  const ink = getComputedStyle(document.body).color;
  const soft = getComputedStyle(byId("map-help")).color;
  const every = spelled ? 1 : 16 * 2 ** Math.max(0, Math.ceil(Math.log2(22 / (16 * cell))));
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const axis of ["row", "column"]) {
    for (let i = 0; i < length(); i++) {
      const place = start() + i, marked = i === at[axis], along = (i + 0.5) * cell;
      const crowded = !spelled && at[axis] !== null && Math.abs(i - at[axis]) * cell < 16;
      if (!marked && (crowded || (place + 1) % every)) continue;
      pen.fillStyle = marked ? ink : soft;
      const size = spelled ? bounded(1.15 * cell, 9, 13) : 10;
      pen.font = `${marked ? "bold " : ""}${size}px monospace`;
      const named = spelled || marked && unit === "character";
      const label = named ? symbol(ids[place]) : String(place + 1);
      if (axis === "row") pen.fillText(label, left - margin / 2, top + along, margin);
      else pen.fillText(label, left + along, top + side + 4 + margin / 2, margin);
    }
  }
  pen.fillStyle = soft;
  pen.font = "13px system-ui, sans-serif";
  if (side > 250 && length() > 1) pen.fillText("the future, which no query sees", left + 0.67 * side, 0.2 * side);
}

/** Frames around the row or column that is followed, and around the one weight. */
function drawFrames(pen) {
  const { left, top, cell } = plot, { row, column } = followed(), T = length();
  const frame = (column, row, columns, rows) => pen.strokeRect(left + column * cell - 1,
    top + row * cell - 1, columns * cell + 2, rows * cell + 2);
  pen.strokeStyle = getComputedStyle(document.body).color;
  pen.lineWidth = cell < 4 ? 1 : 1.5;
  if (state.follow === "query" && row !== null) frame(0, row, row + 1, 1);
  if (state.follow === "key" && column !== null) frame(column, column, 1, T - column);
  if (row !== null && column !== null) frame(column, row, 1, 1);
}

/** The row and column under a pointer, or null where there is none. */
function cellUnder(event) {
  const box = canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left - plot.left) / plot.cell);
  const row = Math.floor((event.clientY - box.top - plot.top) / plot.cell);
  if (row < 0 || column < 0 || row >= length() || column >= length()) return null;
  return { row, column: Math.min(row, column) };
}

function listenToMap() {
  const point = (cell) => { pointed = cell; showFollowed(); };
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch") point(cellUnder(event));
  });
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("click", (event) => {
    const cell = cellUnder(event);
    if (cell) choosePlace(cell.row, cell.column);
  });
  byId("map").addEventListener("keydown", (event) => {
    const row = state.row ?? length() - 1, column = state.column ?? row;
    const to = {
      ArrowUp: [row - 1, Math.min(column, row - 1)], ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1], ArrowRight: [Math.max(row, column + 1), column + 1],
    }[event.key];
    if (to) choosePlace(...to.map((x) => bounded(x, 0, length() - 1)));
    else if (event.key === "Enter") chooseFollow(state.follow === "query" ? "key" : "query");
    else return;
    event.preventDefault();
  });
}


// ==== What is followed: in a sentence, as a tint of the text, and as a list

const looks = listbox(byId("looks"), 0, (i) => {
  if (state.follow === "query") choosePlace(i, null);
  else choosePlace(Math.max(i, state.row ?? length() - 1), i);
});

function fillLooks() {
  const inWindow = ids.slice(start(), start() + length());
  looks.fill(inWindow.map((id) => option("", glyph(id), make("small"))), inWindow);
}

/** The weight of each character of the window in what is followed; null where it has none. */
function followedWeights() {
  const map = triangle(state.layer, state.head), { row, column } = followed();
  return Array.from({ length: length() }, (_, i) => {
    if (state.follow === "query") return row !== null && i <= row ? weight(map, row, i) : null;
    return column !== null && i >= column ? weight(map, i, column) : null;
  });
}

/** What is followed, in a sentence. */
function sentence() {
  const { row, column } = followed(), map = triangle(state.layer, state.head);
  const place = (i) => `${quoted(ids[start() + i])} (${unit} ${start() + i + 1})`;
  const share = row === null || column === null ? "" : percent(weight(map, row, column));
  const away = row === column ? "itself" : `${row - column} back`;
  if (state.follow === "key") {
    if (column === null) return `No key is followed: choose a column of the map, or a ${unit}.`;
    return share ? `Of the attention of ${place(row)}, ${share} goes to ${place(column)}, ${away}.`
      : `Attention that ${place(column)} gets from itself and from each ${unit} after it:`;
  }
  if (row === null) return `No query is followed: choose a row of the map, or a ${unit}.`;
  const next = start() + row + 1, what = next < ids.length ? quoted(ids[next]) : "what comes next";
  return `Having read ${place(row)}, to foresee ${what}, this head ${share
    ? `gives ${share} of its attention to ${place(column)}, ${away}.` : "looks back like this:"}`;
}

function showFollowed() {
  const given = followedWeights(), { row, column } = followed();
  const none = given.every((units) => units === null), query = state.follow === "query";
  byId("readout").textContent = sentence();
  looks.options.forEach((element, i) => {
    const units = given[i], known = units !== null;
    tint(element, known ? shadeOfWeight(units) : null);
    element.classList.toggle("outside", !known && !none);
    element.lastChild.textContent = known && units >= 50 ? Math.round(units / 100) : "";
    element.setAttribute("aria-label", `${unit} ${start() + i + 1}, ${named(ids[start() + i])}`
      + (known ? `, ${percent(units)}` : ""));
  });
  looks.choose(query ? row : column);
  const most = [...given.keys()].filter((i) => given[i] !== null)
    .sort((a, b) => given[b] - given[a]).slice(0, 6);
  byId("most-title").textContent = query ? "Where most attention goes" : "Who gives most attention";
  byId("most").replaceChildren(...most.map((i) => {
    const item = characterBar(ids[start() + i], given[i], percent(given[i]));
    const away = query ? `${row - i} back` : `${i - column} later`;
    item.append(make("span", { class: "where" },
      `${unit} ${start() + i + 1}, ${i === (query ? row : column) ? "itself" : away}`));
    return item;
  }));
  drawMap();
}


// ==== The chosen head, in numbers

function showHead() {
  const fact = facts.heads[state.layer][state.head], { numbers, even } = fact;
  const number = (x, unit) => x === null ? "–" : `${x.toFixed(2)}\u00a0${unit}`;
  const share = (title, name, meaning) => entry(title, percent(numbers[name]),
    `${meaning}  An even look: ${percent(even[name])}.`);
  buttons.forEach((button, i) => {
    const chosen = i === state.layer * heads + state.head;
    button.setAttribute("aria-checked", chosen);
    button.tabIndex = chosen ? 0 : -1;
  });
  byId("head-title").textContent = `Layer ${state.layer + 1}, head ${state.head + 1} ${fact.does}`;
  byId("map").setAttribute("aria-label",
    `Attention of layer ${state.layer + 1}, head ${state.head + 1}`);
  byId("numbers").replaceChildren(
    entry("Entropy", number(numbers.entropy, "bits"), "How spread out its attention is: 0 bits is "
      + `all on one ${unit}, and each bit more is twice as many.  An even look, the most that is `
      + `possible: ${number(even.entropy, "bits")}.`),
    entry("Mean distance", number(numbers.distance, `${unit}s`),
      `How far back it looks.  An even look: ${number(even.distance, `${unit}s`)}.`),
    share(`On the previous ${unit}`, "previous", "The share of the one just before the query."),
    share("On itself", "itself", `The share of the query's own ${unit}.`),
    share("On the first", "first", "The share of the first of the window, where heads rest that "
      + "have nothing to do."),
    share(`On its favourite, ${quoted(fact.favourite)}`, "favourite", `What every ${
      named(fact.favourite)} gets, the ${unit} that gains most over an even look.`));
}
