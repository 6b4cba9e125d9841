
// ==== Keep it: maps and charts as SVG, the text with its probabilities as CSV

function save(name, type, content) {
  const link = make("a", { download: name, href: URL.createObjectURL(new Blob([content], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const escaped = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const svg = (width, height, parts) => `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} `
  + `${height}" font-family="monospace" font-size="8">${parts.join("")}</svg>\n`;

/** The chosen head: a square for each weight, with the characters along both sides. */
function mapAsSvg() {
  const T = shown().cache.ids.length, start = startOf(state.at), parts = [];
  for (let row = 0; row < T; row++) {
    lookedAt(row).forEach((w, column) => parts.push(`<rect x="${10 * column + 12}" y="${10 * row}" `
      + `width="10" height="10" fill="${css(blue[Math.round(255 * Math.sqrt(w))])}"><title>`
      + `${w.toFixed(4)}</title></rect>`));
    const label = escaped(symbol(ids[start + row]));
    parts.push(`<text x="2" y="${10 * row + 8}">${label}</text>`,
      `<text x="${10 * row + 14}" y="${10 * T + 9}">${label}</text>`);
  }
  return svg(10 * T + 12, 10 * T + 12, parts);
}

/** A list of bars as it stands on the page. */
function barsAsSvg(list) {
  const rows = [...list.children].map((row, i) => {
    const [name, , value] = [...row.children].map((cell) => escaped(cell.textContent));
    const width = parseFloat(row.querySelector(".fill").style.width);
    return `<text x="0" y="${14 * i + 10}">${name}</text><rect x="40" y="${14 * i + 2}" height="10" `
      + `width="${2 * width}" fill="#1f5fae"/><text x="250" y="${14 * i + 10}">${value}</text>`;
  });
  return svg(360, 14 * rows.length, rows);
}

function textAsCsv() {
  const start = startOf(state.at), window = windowAt(start), losses = shown().losses(window);
  const rows = losses.map((loss, i) => [start + i + 2,
    `"${characters[start + i + 1].replace(/"/g, '""')}"`, Math.exp(-loss), loss]);
  return [["place", "character", "probability", "loss"], ...rows].map((row) => row.join(",") + "\n")
    .join("");
}

function listenToKeeping() {
  byId("keep-map").addEventListener("click", () => save("head.svg", "image/svg+xml", mapAsSvg()));
  byId("keep-text").addEventListener("click", () => save("text.csv", "text/csv", textAsCsv()));
  for (const button of document.querySelectorAll("[data-chart]")) {
    button.addEventListener("click", () => save(`${button.dataset.chart}.svg`, "image/svg+xml",
      barsAsSvg(byId(button.dataset.chart))));
  }
}
