
// ==== Maps: matrices with labels, as model/look/maps.py describes them

const shade = (map, value) => (value < 0 ? orange : blue)[Math.round(
  255 * bounded(Math.abs(value) / map.most, 0, 1))];

const one = (what) => `${/^[aeiou]/.test(what) ? "an" : "a"} ${what}`;

/** A row or column in words: its number, and its label if that says more. */
function named(map, axis, i) {
  const label = map[`${axis}s`][i], number = String(i + 1);
  return `${map[axis]} ${number}` + (label === number || !label ? "" : `, ‘${label}’`);
}

/** A cell in words. */
function told(map, row, column) {
  const value = map.values[row][column];
  return `${capital(named(map, "row", row))}; ${named(map, "column", column)}: ${
    value === null ? "closed" : fixed(value, 4)}`;
}

/** A map as a table of its cells.  `view.cell` is the row and column that were chosen in it. */
function large(map, view) {
  const spelled = map.columns.length <= 8;      // room for numbers in the cells
  const cells = map.values.map((line, row) => line.map((value, column) => {
    const cell = make("td", { tabindex: "-1", "aria-label": told(map, row, column) },
      spelled && value !== null ? fixed(value, 2) : "");
    if (value === null) cell.className = "closed";
    else tint(cell, shade(map, value));
    return cell;
  }));
  const [tops, sides] = [["columns", "col"], ["rows", "row"]].map(([axis, scope]) =>
    map[axis].map((label) => make("th", { scope }, label)));
  const long = map.columns.some((label) => label.length > 3);
  const table = make("table", {
    class: `matrix${spelled ? " spelled" : ""}${long ? " long" : ""}`,
    role: "grid", "aria-label": map.title,
  }, make("thead", {}, make("tr", {}, make("td"), ...tops)),
  make("tbody", {}, ...cells.map((line, row) => make("tr", {}, sides[row], ...line))));
  table.style.setProperty("--columns", map.columns.length);
  const readout = make("p", { class: "readout" }), marked = [];

  /** Mark a cell and its labels, and say it in words. */
  const point = (cell) => {
    marked.splice(0).forEach((element) => element.classList.remove("marked"));
    readout.textContent = "";
    if (!cell) return;
    const [row, column] = cell;
    readout.textContent = told(map, row, column);
    marked.push(cells[row][column], sides[row], tops[column]);
    marked.forEach((element) => element.classList.add("marked"));
  };
  let entry = cells[0][0];              // where the keyboard enters
  entry.tabIndex = 0;
  const choose = (row, column) => {
    view.cell = [bounded(row, 0, cells.length - 1), bounded(column, 0, tops.length - 1)];
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
  table.addEventListener("pointerover", (event) => point(under(event) ?? view.cell));
  table.addEventListener("pointerleave", () => point(view.cell));
  table.addEventListener("click", (event) => {
    const cell = under(event);
    if (cell) choose(...cell).focus();
  });
  table.addEventListener("focusin", (event) => choose(...under(event)));
  table.addEventListener("keydown", (event) => {
    const [row, column] = under(event) ?? [0, 0];
    const to = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1], Home: [row, 0], End: [row, Infinity],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    choose(...to).focus();
  });
  if (view.cell) choose(...view.cell);
  return make("figure", { class: "large" }, make("figcaption", {}, map.title,
    make("small", {}, `A row is ${one(map.row)}, a column ${one(map.column)}.`)),
  make("div", { class: "scroll" }, table), readout, scale(map));
}

/** The colours of a map and their values. */
function scale(map) {
  const values = map.values.flat(), below = values.some((value) => value < 0);
  const ramp = make("span", { class: "ramp", "aria-hidden": "true" });
  ramp.style.background = gradient(below ? [...orange].reverse().concat(blue) : blue);
  const ticks = below ? [-map.most, 0, map.most] : [0, map.most];
  return make("div", { class: "legend" }, ramp, make("p", { class: "scale" },
    ...ticks.map((value) => make("span", {}, fixed(value, 2)))),
  values.includes(null) ? make("p", { class: "hint" }, "Hatched cells are closed by a mask.") : "");
}

/** A map as a picture, a pixel for each cell. */
function small(map) {
  const [rows, columns] = [map.rows.length, map.columns.length];
  const canvas = make("canvas", { width: columns, height: rows });
  const image = new ImageData(columns, rows);
  map.values.flat().forEach((value, i) => {
    if (value !== null) image.data.set([...shade(map, value), 255], 4 * i);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.style.aspectRatio = `${columns} / ${rows}`;
  return canvas;
}

/** Small maps, of which the chosen one is large beside them. */
function gallery(box, view) {
  const grid = make("div", {
    class: "grid", role: "radiogroup", "aria-label": "Maps; arrow keys move",
  });
  const stage = make("div");
  const buttons = view.maps.map((map, i) => {
    const button = make("div", { class: "head", role: "radio", "aria-label": map.title },
      small(map), make("p", { "aria-hidden": "true" }, map.title));
    button.addEventListener("click", () => choose(i).focus());
    return button;
  });
  const choose = (i) => {
    view.chosen = i;
    buttons.forEach((button, j) => {
      button.setAttribute("aria-checked", i === j);
      button.tabIndex = i === j ? 0 : -1;
    });
    stage.replaceChildren(large(view.maps[i], view));
    return buttons[i];
  };
  grid.style.gridTemplateColumns = `repeat(${view.across}, minmax(0, 9rem))`;
  grid.append(...buttons);
  grid.addEventListener("keydown", (event) => {
    const at = view.chosen, to = {
      ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - view.across,
      ArrowDown: at + view.across, Home: 0, End: buttons.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (to in buttons) choose(to).focus();
  });
  choose(view.chosen);
  box.replaceChildren(make("div", { class: "columns heads" }, grid, stage));
}

/** The maps of every section, in the theme's colours. */
function drawMaps() {
  facts.forEach((view, i) => {
    const box = byId(`maps-${i + 1}`);
    view.cells ??= view.maps.map(() => ({}));   // what is chosen in each, where all are large
    if (view.across) gallery(box, view);
    else box.replaceChildren(...view.maps.map((map, j) => large(map, view.cells[j])));
  });
}

drawPage(() => inTheTheme(drawMaps));
