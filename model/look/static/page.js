
// ==== What a reader can do

/** Choose a character, the window that it was predicted from, and the query before it. */
function chooseCharacter(n) {
  chooseWindow(expected(n).window);
  showCharacter(n);
  choosePlace(n - 1 - start(), null);
  const [likeliest, units] = expected(n).top[0];
  say(n < ids.length
    ? `${unit} ${n + 1}, ${named(ids[n])}: probability ${probability(expected(n).came)}, loss `
      + `${expected(n).loss.toFixed(3)} nats`
    : `after the text: ${named(likeliest)}, ${probability(units)}`);
}

function showCharacter(n) {
  state.character = n;
  letters.choose(n);
  showPrediction();
  showStream();
}

function chooseWindow(number) {
  if (number === state.window) return;
  state.window = number;
  byId("window").value = number;
  fillLooks();
  drawHeads();
  drawHead(picture, state.layer, state.head);
}

function chooseHead(layer, head) {
  Object.assign(state, { layer, head });
  drawHead(picture, layer, head);
  showHead();
  showFollowed();
  say(byId("head-title").textContent);
}

/** Follow a row, and perhaps a column; what was predicted at that row is chosen with it. */
function choosePlace(row, column) {
  pointed = null;
  Object.assign(state, { row, column: column ?? (state.follow === "key" ? row : null) });
  const next = start() + row + 1;
  if (expected(next).window === state.window && next !== state.character) showCharacter(next);
  showFollowed();
  say(byId("readout").textContent);
}

function chooseFollow(follow) {
  document.querySelector(`[name=follow][value=${follow}]`).checked = true;
  state.follow = follow;
  if (follow === "key") state.column ??= state.row;
  showFollowed();
  say(byId("readout").textContent);
}

/** Follow nothing. */
function letGo() {
  pointed = null;
  Object.assign(state, { row: null, column: null });
  showFollowed();
  say(byId("readout").textContent);
}

/** Draw again what is drawn in the theme's colours. */
function redraw() {
  tintLetters();
  showScale();
  drawHeads();
  drawHead(picture, state.layer, state.head);
  showFollowed();
}

function listen() {
  listenToMap();
  byId("window").addEventListener("change", (event) => chooseCharacter(
    1 + facts.characters.findIndex(({ window }) => window === Number(event.target.value))));
  byId("follow").addEventListener("change", (event) => chooseFollow(event.target.value));
  byId("shade").addEventListener("change", redraw);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") letGo(); });
  new ResizeObserver(drawMap).observe(byId("map"));
}


// ==== The beginning

function fillHeader() {
  document.body.dataset.unit = unit;
  byId("how-many").textContent = counted(ids.length, unit);
  fillAbout();
  byId("source").textContent = facts.source;
  byId("even-loss").textContent = `${facts.even_loss.toFixed(3)} nats: a blind guess`;
  byId("rules").append(...facts.rules.map(({ does, when }) => make("li", {},
    `${capital(does)}: ${when}.`)));
  windows.forEach(({ start, length }, i) => byId("window").append(make("option", { value: i },
    `${i + 1} of ${windows.length}: ${unit}s ${start + 1} to ${start + length}`)));
  byId("window-choice").hidden = byId("window-hint").hidden = windows.length === 1;
  byId("window-hint").textContent = `The model reads at most ${counted(length(), unit)} at `
    + `once, so a longer text is read in windows.  Each ${unit} is predicted from the first `
    + "window that reaches the one before it.";
}

async function begin() {
  await unpackWeights();
  fillHeader();
  fillLetters();
  fillHeads();
  fillLooks();
  fillSteps();
  fillRun();
  showScore();
  inTheTheme(redraw);
  listen();
  // The sharpest head, and the last character that its window predicts.
  const entropies = facts.heads.flat().map(({ numbers }) => numbers.entropy ?? 0);
  const sharpest = entropies.indexOf(Math.min(...entropies));
  chooseHead(Math.floor(sharpest / heads), sharpest % heads);
  chooseCharacter(Math.min(length(), ids.length - 1));
  say("");
}

drawPage(begin);
