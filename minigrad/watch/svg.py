"""Draw a computation as SVG: its steps in a column from the top down, and to the left of each step
the inputs that it is the first to use.

The arrow from a step to the next is straight, the arrow to a later step is an arc on the right, and
an input that several steps use has a line between the two columns.  So no arrow crosses a box.  The
file does not know what the boxes mean.
"""
import math
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

CHARACTER = 7.3     # the width of one, of 12 pixel monospace: slightly more than any font needs
LINE = 17           # the height of one
MARGIN = 24         # around all
HEAD = 72           # above the boxes, for the title
PADDING = 11        # within a box
DOWN = 32           # between steps
STACKED = 14        # between inputs of the same step
ROOM = 30           # beside a box for an arrow's end
LANE = 12           # between lines of inputs
BULGE = 3           # of an arc, by the root of its height


@dataclass(eq=False)
class Arrow:
    """An arrow from a box to the one that lists it in `arrows`."""
    source: "Box"
    label: str = ""     # beside its end
    tip: str = ""       # shown when pointed at


@dataclass(eq=False)
class Box:
    """Lines of text in a frame; `kind` and the lines' classes choose colours from graph.css."""
    kind: str
    lines: list[tuple[str, str]]                # class, text
    badge: str = ""
    tip: str = ""
    arrows: list[Arrow] = field(default_factory=list)       # that end here
    top: float = 0.0                            # where `draw` puts it

    @property
    def height(self) -> float:
        """The height of the frame."""
        return LINE * len(self.lines) + 2 * PADDING - 4

    def at(self, share: float) -> float:
        """Return the y of a point of the frame: 0 is its top, 1 its bottom."""
        return self.top + share * self.height


def draw(boxes: list[Box], title: str, description: str = "") -> str:
    """Return the SVG of boxes, with two texts above them.  A box comes after the sources of its
    arrows."""
    steps, inputs, bottom = _stacked(boxes)
    room = ROOM + CHARACTER * max((len(a.label) for box in steps for a in box.arrows), default=0)
    edge = MARGIN + _width(inputs)              # where the inputs end
    several = dict.fromkeys(arrow.source for step in steps for arrow in step.arrows
                            if inputs.get(arrow.source, step) is not step)
    lanes = {box: edge + LANE * i for i, box in enumerate(several, 1)}
    left = edge + LANE * len(lanes) + ROOM + room if inputs else MARGIN
    right = far = left + _width(steps)
    drawn = []
    for before, step in zip([None, *steps], steps):
        arrows = sorted(step.arrows, key=lambda arrow: arrow.source.top)
        entering = [arrow for arrow in arrows if arrow.source in inputs]
        straight = [arrow for arrow in arrows if arrow.source is before]
        around = [arrow for arrow in arrows[::-1] if arrow not in entering + straight]
        for i, arrow in enumerate(entering, 1):
            y = arrow.source.at(0.5)
            end = step.at(i / (len(entering) + 1))
            if inputs[arrow.source] is step:
                path = _curve(edge, y, (edge + left) / 2, left, end)
            else:
                x = lanes[arrow.source]
                path = (f"M{edge:.1f} {y:.1f}Q{x:.1f} {y:.1f} {x:.1f} {y + ROOM:.1f}"
                        f"V{end - ROOM:.1f}Q{x:.1f} {end:.1f} {left:.1f} {end:.1f}")
            drawn.append(_arrow(arrow, path, left, end, 0))
        for i, arrow in enumerate(straight):
            x = (left + right) / 2 + room * (i - (len(straight) - 1) / 2)
            path = f"M{x:.1f} {before.at(1):.1f}V{step.top:.1f}"
            drawn.append(_arrow(arrow, path, x, step.top, 90))
        for i, arrow in enumerate(around, 1):
            y = arrow.source.at(0.8)
            end = step.at(0.7 * i / (len(around) + 1))
            by = right + room + BULGE * math.sqrt(end - y)
            far = max(far, by)
            drawn.append(_arrow(arrow, _curve(right, y, by, right, end), right, end, 180))
    drawn += [_box(box, MARGIN, edge) for box in inputs] + [_box(box, left, right) for box in steps]
    width = MARGIN + max(far, MARGIN + CHARACTER * max(len(description), 1.4 * len(title)))
    return _document(width, bottom, title, description, drawn)


def _document(width, height, title, description, drawn):
    style = Path(__file__).with_name("graph.css").read_text(encoding="utf-8")
    size = f'width="{width:.0f}" height="{height:.0f}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="img" {size} '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<title>{escape(title)}</title>", f"<desc>{escape(description)}</desc>",
        f"<style>\n{style}</style>", f'<rect class="paper" {size}/>',
        _text(MARGIN, 28, "title", title), _text(MARGIN, 48, "faint", description),
        *drawn, "</svg>", ""])


def _stacked(boxes):
    """Put each step below the one before, and its inputs, boxes without arrows, beside the first
    step that uses them.  Return the steps, {input: its step} and the bottom of the drawing."""
    sources = {arrow.source for box in boxes for arrow in box.arrows}
    steps = [box for box in boxes if box.arrows or box not in sources]
    inputs = {}
    bottom = HEAD
    for step in steps:
        stack = {arrow.source: step for arrow in step.arrows
                 if not arrow.source.arrows and arrow.source not in inputs}
        inputs |= stack
        height = sum(box.height + STACKED for box in stack) - STACKED
        row = max(step.height, height)
        step.top = bottom + (row - step.height) / 2
        top = bottom + (row - height) / 2
        for box in stack:
            box.top = top
            top += box.height + STACKED
        bottom += row + DOWN
    return steps, inputs, bottom - DOWN + MARGIN


def _width(boxes):
    return max((CHARACTER * len(text) + 2 * PADDING for box in boxes for _, text in box.lines),
               default=0)


def _curve(x, y, by, to, end):
    """Return a path that leaves and arrives level, by way of another x."""
    return f"M{x:.1f} {y:.1f}C{by:.1f} {y:.1f} {by:.1f} {end:.1f} {to:.1f} {end:.1f}"


def _arrow(arrow, path, x, y, angle):
    """Draw an arrow that ends at (x, y), with its label beside the end."""
    right, up = {0: (-6 - CHARACTER * len(arrow.label), 6), 90: (6, 9), 180: (10, 6)}[angle]
    label = _text(x + right, y - up, "gradient", arrow.label) if arrow.label else ""
    return (f'<g class="arrow"><title>{escape(arrow.tip)}</title><path d="{path}"/><path '
            f'class="tip" d="M1 0l-8-4v8z" transform="translate({x:.1f} {y:.1f}) '
            f'rotate({angle})"/>{label}</g>')


def _box(box, left, right):
    lines = "".join(_text(left + PADDING, box.top + PADDING + 9 + LINE * i, kind, text)
                    for i, (kind, text) in enumerate(box.lines))
    badge = (f'<g class="badge"><circle cx="{left:.1f}" cy="{box.top:.1f}" r="11"/>'
             f"{_text(left, box.top + 4, '', box.badge)}</g>" if box.badge else "")
    return (f'<g class="{box.kind}"><title>{escape(box.tip)}</title><rect x="{left:.1f}" '
            f'y="{box.top:.1f}" width="{right - left:.1f}" height="{box.height:.1f}" rx="7"/>'
            f"{lines}{badge}</g>")


def _text(x, y, kind, text):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'
