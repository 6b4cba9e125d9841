// Marks in the contents the last station whose heading has come into the upper third.
const head = document.querySelector("header");
const stations = [...document.querySelectorAll("section")];
let here = null;

function mark() {
  const passed = stations.filter((station) =>
    station.getBoundingClientRect().top < innerHeight / 3);
  const link = head.querySelector(`nav [href="#${(passed.at(-1) ?? stations[0]).id}"]`);
  if (link === here) return;
  here?.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  head.scrollLeft = link.offsetLeft - head.clientWidth / 3;
  here = link;
}
/** Let the arrow keys move tables that need more room than the page has. */
function reach() {
  for (const [i, box] of document.querySelectorAll(".tables").entries()) {
    const attributes = { tabindex: 0, role: "region", "aria-label": `Tables ${i + 1}` };
    for (const [name, value] of Object.entries(attributes)) {
      if (box.scrollWidth > box.clientWidth) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  }
}

addEventListener("scroll", mark, { passive: true });
addEventListener("resize", () => { mark(); reach(); });
drawPage(() => {
  inTheTheme(() => {});
  mark();
  reach();
});
