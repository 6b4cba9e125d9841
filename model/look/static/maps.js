
// ==== Maps of attention, as model/look/crossed.py describes them: small ones, and a large one

const title = (view, i) => `layer ${Math.floor(i / view.across) + 1}, head ${i % view.across + 1}`;

/** A row or column in words. */
const called = (view, axis, i) => `${view[axis]} ${i + 1}, ‘${view[`${axis}s`][i]}’`;

/** The chosen map as a table of its cells.  `view.cell` is the row and column that are chosen. */
function large(view) {
  const { rows, columns, chosen } = view, spelled = columns.length <= 8;    // room for numbers
  const told = (row, column, digits) => {
    const value = view.maps[chosen][row][column];
    return `${capital(called(view, "row", row))}; ${called(view, "column", column)}: ${
      value === null ? "closed" : fixed(value, digits)}`;
  };
  const cells = view.maps[chosen].map((line, row) => line.map((value, column) => {
    // What is heard has the digits that are seen.
    const cell = make("td", { tabindex: "-1", "aria-label": told(row, column, spelled ? 2 : 4) },
      spelled && value !== null ? fixed(value, 2) : "");
    if (value === null) cell.className = "closed";
    else tint(cell, blue[Math.round(255 * value)]);
    return cell;
  }));
  const tops = columns.map((label) => make("th", { scope: "col" }, label));
  const sides = rows.map((label) => make("th", { scope: "row" }, label));
  const table = make("table", { class: spelled ? "matrix spelled" : "matrix", role: "grid",
    "aria-label": title(view, chosen) },
  make("thead", {}, make("tr", {}, make("td"), ...tops)),
  make("tbody", {}, ...cells.map((line, row) => make("tr", {}, sides[row], ...line))));
  table.style.setProperty("--columns", columns.length);
  const readout = make("p", { class: "readout" }), marked = [];

  /** Mark a cell and its labels, and say it in words. */
  const point = (cell) => {
    marked.splice(0).forEach((element) => element.classList.remove("marked"));
    readout.textContent = "";
    if (!cell) return;
    const [row, column] = cell;
    readout.textContent = told(row, column, 4);
    marked.push(cells[row][column], sides[row], tops[column]);
    marked.forEach((element) => element.classList.add("marked"));
  };
  let entry = cells[0][0];              // where the keyboard enters
  const choose = (row, column) => {
    view.cell = [bounded(row, 0, rows.length - 1), bounded(column, 0, columns.length - 1)];
    entry.tabIndex = -1;
    entry = cells[view.cell[0]][view.cell[1]];
    entry.tabIndex = 0;
    point(view.cell);
    return entry;
  };
  const under = (event) => {
    const cell = event.target.closest("tbody td");
    return cell && [cell.parentNode.rowIndex - 1, cell.cellIndex - 1];
  };
  const listen = (type, act) => table.addEventListener(type, act);
  listen("pointerover", (event) => point(under(event) ?? view.cell));
  listen("pointerleave", () => point(view.cell));
  listen("click", (event) => {
    const cell = under(event);
    if (cell) choose(...cell).focus();
  });
  listen("focusin", (event) => choose(...under(event)));
  listen("keydown", (event) => {
    const to = moved(event, ...under(event));
    if (to) choose(...to).focus();
  });
  if (view.cell) choose(...view.cell);
  else entry.tabIndex = 0;
  const one = (what) => `${/^[aeiou]/.test(what) ? "an" : "a"} ${what}`;
  return make("figure", { class: "large" }, make("figcaption", {}, title(view, chosen),
    make("small", {}, `A row is ${one(view.row)}, a column ${one(view.column)}.`)),
  make("div", { class: "scroll" }, table), readout, scale(view.maps[chosen]));
}

/** The colours of a map and their values. */
function scale(map) {
  const ramp = make("span", { class: "ramp", "aria-hidden": "true" });
  ramp.style.background = gradient(blue);
  return make("div", { class: "legend" }, ramp, make("p", { class: "scale" },
    ...["0", "1"].map((value) => make("span", {}, value))),
  map.flat().includes(null) ? make("p", { class: "hint" }, "Hatched cells are closed by a mask.")
    : "");
}

/** Small maps, of which the chosen one is large beside them. */
function gallery(box, view) {
  const { across, rows, columns } = view, stage = make("div");
  const grid = make("div", { class: "grid", role: "radiogroup",
    "aria-label": "Maps; arrow keys move" });
  const tiles = view.maps.map((map, i) => {
    const canvas = make("canvas");
    paint(canvas, rows.length, columns.length, (row, column) => map[row][column] ?? NaN);
    canvas.style.aspectRatio = `${columns.length} / ${rows.length}`;
    const tile = make("div", { class: "head", role: "radio" }, canvas,
      make("p", {}, title(view, i)));
    tile.addEventListener("click", () => choose(i).focus());
    return tile;
  });
  const choose = (i) => {
    view.chosen = i;
    tiles.forEach((tile, j) => {
      tile.setAttribute("aria-checked", i === j);
      tile.tabIndex = i === j ? 0 : -1;
    });
    stage.replaceChildren(large(view));
    return tiles[i];
  };
  grid.style.gridTemplateColumns = `repeat(${across}, minmax(0, 9rem))`;
  grid.append(...tiles);
  grid.addEventListener("keydown", (event) => {
    const to = moved(event, Math.floor(view.chosen / across), view.chosen % across);
    if (!to) return;
    const row = bounded(to[0], 0, tiles.length / across - 1);
    choose(row * across + bounded(to[1], 0, across - 1)).focus();
  });
  choose(view.chosen);
  box.replaceChildren(make("div", { class: "columns heads" }, grid, stage));
}

drawPage(() => inTheTheme(() => {
  facts.forEach((view, i) => gallery(byId(`maps-${i + 1}`), view));
}));
