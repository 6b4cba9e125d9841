"use strict";

// What every page needs.  Text of any kind enters the page as text, never as markup.

const byId = (id) => document.getElementById(id);
const facts = JSON.parse(byId("facts").textContent);

/** An element with attributes and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "line", "polyline", "circle", "text", "rect", "title"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const whole = (number) => number.toLocaleString("en-US");
const counted = (n, what) => `${whole(n)} ${what}${n === 1 ? "" : "s"}`;
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const bounded = (x, low, high) => Math.max(low, Math.min(high, x));

/** So many digits after the point, and no sign before zeros. */
const fixed = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits,
  maximumFractionDigits: digits }).replace(/^-(?=[0.]+$)/, "").replace("-", "−");

/** The bytes in an element that holds them deflated, in base64. */
async function inflated(id) {
  const packed = Uint8Array.from(atob(byId(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  byId(id).remove();
  return new Response(stream).arrayBuffer();
}

/** Where an arrow key, Home or End leads from a row and column of a grid; undefined for others. */
function moved(event, row, column) {
  const to = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
    ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
    Home: [row, 0], End: [row, Infinity] }[event.key];
  if (to) event.preventDefault();
  return to;
}

// ---- Colours: one hue, lightness in even steps as the eye sees it

const BLUE = 255, ORANGE = 50;          // hues, in degrees
let blue, orange;                       // ramps for attention and for loss, in the theme's colours

const onPaper = matchMedia("print");
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => !onPaper.matches
  && (byId("theme").value || (prefersDark.matches ? "dark" : "light")) === "dark";

/** 256 colours from none to all, each [red, green, blue], as the browser mixes them. */
function ramp(hue, dark = isDark()) {
  const [from, to, chroma, turn] = dark ? [0.25, 0.92, 0.15, 0.85] : [0.965, 0.34, 0.165, 0.75];
  const pen = make("canvas").getContext("2d", { willReadFrequently: true });
  return Array.from({ length: 256 }, (_, i) => {
    const t = i / 255;
    pen.fillStyle = `oklch(${from + (to - from) * t} ${
      chroma * Math.sin(Math.PI * (0.05 + turn * t))} ${hue})`;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  });
}

const css = (colour) => `rgb(${colour.join(" ")})`;
const gradient = (colours) => `linear-gradient(to right, ${
  colours.filter((_, i) => i % 15 === 0).map(css).join(", ")})`;

/** Colour an element, with black or white text, whichever stands out more; null takes it away. */
function tint(element, colour) {
  const [r, g, b] = (colour ?? [0, 0, 0]).map((x) => (x / 255) ** 2.2);
  const luminance = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  element.style.backgroundColor = colour ? css(colour) : "";
  element.style.color = colour ? luminance > 0.179 ? "#000" : "#fff" : "";
}

/** Draw a matrix on a canvas, a pixel for each number from 0 to 1; nan stays transparent. */
function paint(canvas, rows, columns, numberAt) {
  const image = new ImageData(columns || 1, rows || 1);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = blue.map(([r, g, b]) => 255 << 24 | b << 16 | g << 8 | r);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const number = numberAt(row, column);
      if (number >= 0) pixels[row * columns + column] = colours[Math.round(255 * number)];
    }
  }
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Take the theme's colours, now and whenever it changes, and draw what is drawn in them. */
function inTheTheme(draw) {
  const recolour = () => {
    [blue, orange] = [ramp(BLUE), ramp(ORANGE)];
    draw();
  };
  for (const it of [byId("theme"), prefersDark, onPaper]) it.addEventListener("change", recolour);
  recolour();
}

/** Draw the page by begin(), or say why that cannot be done. */
function drawPage(begin) {
  byId("content").inert = true;         // nothing can be used before it is there
  Promise.resolve().then(begin).then(() => {
    document.documentElement.dataset.ready = "";
    byId("content").inert = false;
  }).catch((error) => {
    byId("trouble").textContent = `This page could not be drawn (${error.message}).  `
      + "It needs a browser of 2024 or newer.";
    byId("trouble").hidden = false;
    throw error;
  });
}
