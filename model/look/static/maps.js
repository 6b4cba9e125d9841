// ==== Maps of attention, as model/reverse/maps.py describes them: small ones, and a large one

const title = (view, i) => `layer ${Math.floor(i / view.across) + 1}, head ${i % view.across + 1}`;

/** The chosen map as a table of its cells; `view.cell` is the chosen one, of all in a row. */
function large(view) {
  const { rows, columns, chosen } = view, map = view.maps[chosen].flat(), C = columns.length;
  const spelled = C <= 8, rowOf = (i) => Math.floor(i / C);             // room for numbers
  const told = (i, digits) => `${capital(view.row)} ${rowOf(i) + 1}, ‘${rows[rowOf(i)]}’; ${
    view.column} ${i % C + 1}, ‘${columns[i % C]}’: ${
    map[i] === null ? "closed" : fixed(map[i], digits)}`;
  const cells = map.map((value, i) => {
    // What is heard has the digits that are seen.
    const cell = make("td", { tabindex: "-1", "aria-label": told(i, spelled ? 2 : 4) },
      spelled && value !== null ? fixed(value, 2) : "");
    if (value === null) cell.className = "closed";
    else tint(cell, blue[Math.round(255 * value)]);
    return cell;
  });
  const tops = columns.map((label) => make("th", { scope: "col" }, label));
  const sides = rows.map((label) => make("th", { scope: "row" }, label));
  const table = make("table", { class: spelled ? "matrix spelled" : "matrix", role: "grid",
    "aria-label": title(view, chosen), style: `--columns: ${C}` },
  make("thead", {}, make("tr", {}, make("td"), ...tops)), make("tbody", {},
    ...sides.map((side, row) => make("tr", {}, side, ...cells.slice(C * row, C * row + C)))));
  const readout = make("p", { class: "readout" });

  /** Mark a cell and its labels, and say it in words. */
  const point = (i) => {
    table.querySelectorAll(".marked").forEach((element) => element.classList.remove("marked"));
    readout.textContent = cells[i] ? told(i, 4) : "";
    for (const label of [cells[i], sides[rowOf(i)], tops[i % C]]) label?.classList.add("marked");
  };
  /** Choose a cell, where the keyboard then enters. */
  const choose = (i) => {
    cells[view.cell ?? 0].tabIndex = -1;
    cells[i ?? 0].tabIndex = 0;
    view.cell = i;
    point(i);
  };
  choose(view.cell);
  table.addEventListener("pointerover", ({ target }) =>
    point(target.ariaLabel ? cells.indexOf(target) : view.cell));
  table.addEventListener("pointerleave", () => point(view.cell));
  table.addEventListener("focusin", ({ target }) => choose(cells.indexOf(target)));
  table.addEventListener("keydown", (event) => {
    const to = moved(event, rowOf(view.cell), view.cell % C);
    if (to) cells[C * bounded(to[0], 0, rows.length - 1) + bounded(to[1], 0, C - 1)].focus();
  });
  const ramp = make("span", { class: "ramp", style: `background: ${gradient(blue)}` });
  return make("figure", { class: "large" }, make("figcaption", {}, title(view, chosen),
    make("small", {}, `Rows: ${view.row}.  Columns: ${view.column}.`)),
  make("div", { class: "scroll" }, table), readout, make("div", { class: "legend" }, ramp,
    make("p", { class: "scale" }, make("span", {}, "0"), make("span", {}, "1")),
    map.includes(null) ? make("p", { class: "hint" }, "Hatched cells are closed by a mask.") : ""));
}

/** Small maps, of which the chosen one is large beside them. */
function gallery(box, view) {
  const stage = make("div"), tiles = view.maps.map((map, i) => {
    const { rows: { length: R }, columns: { length: C } } = view;
    const canvas = make("canvas", { style: `aspect-ratio: ${C} / ${R}` });
    const choice = make("input", { type: "radio", name: box.id, class: "unseen" });
    paint(canvas, R, C, (row, column) => map[row][column] ?? NaN);
    choice.checked = i === view.chosen;
    choice.addEventListener("change", () => {
      view.chosen = i;
      stage.replaceChildren(large(view));
    });
    return make("label", { class: "head" }, choice, canvas, make("p", {}, title(view, i)));
  });
  const grid = make("div", { class: "grid", role: "radiogroup", "aria-label": "Maps",
    style: `grid-template-columns: repeat(${view.across}, minmax(0, 9rem))` }, ...tiles);
  stage.append(large(view));
  box.replaceChildren(make("div", { class: "columns" }, grid, stage));
}

drawPage(() => inTheTheme(() => {
  facts.forEach((view, i) => gallery(byId(`maps-${i + 1}`), view));
}));
