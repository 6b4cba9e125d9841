"""Draw a computation as SVG: its steps in a column, from the top down, and beside each step what
enters the computation there.

An arrow from one step to the next is straight.  All others run in lanes on the left or right of the
steps, so that no arrow crosses a box.  The file does not know what the boxes mean.
"""
import math
from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

CHARACTER, LINE = 7.3, 17       # of 12 pixel monospace, slightly more than any font needs
MARGIN, HEAD, PADDING = 24, 72, 11      # around all; above the boxes, for the title; within a box
DOWN, STACKED = 32, 14          # between steps, between boxes beside the same step
ROOM, LANE = 30, 14             # from a box to the first lane, from lane to lane
BEND = 8                        # the radius of a corner


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


def draw(boxes: list[Box], title: str, description: str = "") -> str:
    """Return the SVG of boxes, with the two texts above them.  A box comes after the sources of its
    arrows."""
    steps, inputs, bottom = _stacked(boxes)
    after = dict(zip(steps, steps[1:]))
    straight, entering, around = (defaultdict(list) for _ in range(3))      # box -> its arrows
    for box in steps:
        for arrow in box.arrows:
            (entering if arrow.source in inputs else
             straight if after[arrow.source] is box else around)[box].append(arrow)
    room = ROOM + CHARACTER * max((len(a.label) for box in steps for a in box.arrows), default=0)
    on_left, on_right = _routes(entering, 0.5, 1.0, 1), _routes(around, 0.8, 0.7, -1)
    lanes, more = (LANE * len({lane for _, _, lane, _ in way}) for way in (on_left, on_right))
    edge = MARGIN + _width(inputs)              # where the inputs end
    left = edge + ROOM + lanes + room if inputs else MARGIN
    right = left + _width(steps)
    drawn = [_sideways(arrow, edge, y, left - room - LANE * lane, left, end)
             for arrow, y, lane, end in on_left]
    drawn += [_sideways(arrow, right, y, right + room + LANE * lane, right, end)
              for arrow, y, lane, end in on_right]
    for box, arrows in straight.items():
        for i, arrow in enumerate(arrows):
            x = (left + right) / 2 + room * (i - (len(arrows) - 1) / 2)
            start = arrow.source.top + arrow.source.height
            drawn.append(_arrow(arrow, f"M{x:.1f} {start:.1f}V{box.top:.1f}", x, box.top, 90))
    drawn += [_box(box, MARGIN, edge) for box in inputs] + [_box(box, left, right) for box in steps]
    width = MARGIN + max(right + (room + more if more else 0),
                         MARGIN + CHARACTER * max(len(description), 1.4 * len(title)))
    style = Path(__file__).with_name("graph.css").read_text(encoding="utf-8")
    size = f'width="{width:.0f}" height="{bottom:.0f}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="img" {size} '
        f'viewBox="0 0 {width:.0f} {bottom:.0f}">',
        f"<title>{escape(title)}</title>", f"<desc>{escape(description)}</desc>",
        f"<style>\n{style}</style>", f'<rect class="paper" {size}/>',
        _text(MARGIN, 28, "title", title), _text(MARGIN, 48, "faint", description),
        *drawn, "</svg>", ""])


def _stacked(boxes):
    """Put each step below the one before, and beside it the boxes without arrows that it is the
    first to use.  Return the steps, these boxes and the bottom of the drawing."""
    sources = {arrow.source for box in boxes for arrow in box.arrows}
    steps = [box for box in boxes if box.arrows or box not in sources]
    inputs, bottom = {}, HEAD
    for step in steps:
        stack = {arrow.source: True for arrow in step.arrows
                 if not arrow.source.arrows and arrow.source not in inputs}
        inputs |= stack
        height = sum(box.height + STACKED for box in stack) - STACKED
        row = max(step.height, height)
        step.top, top = bottom + (row - step.height) / 2, bottom + (row - height) / 2
        for box in stack:
            box.top = top
            top += box.height + STACKED
        bottom += row + DOWN
    return steps, inputs, bottom - DOWN + MARGIN


def _routes(arrows, begin, reach, order):
    """Return (arrow, y of its beginning, lane, y of its end) for the arrows on a side of the steps.
    All arrows from a box share a lane; the shortest run next to the steps."""
    ends, ways, lanes = {}, {}, {}
    for box, group in arrows.items():
        for i, arrow in enumerate(sorted(group, key=lambda arrow: order * arrow.source.top), 1):
            source, ends[arrow] = arrow.source, box.top + box.height * reach * i / (len(group) + 1)
            ways.setdefault(source, [source.top + begin * source.height]).append(ends[arrow])
    for source, way in sorted(ways.items(), key=lambda item: max(item[1]) - min(item[1])):
        first, last = min(way) - LANE / 2, max(way)
        taken = {lane for lane, a, b in lanes.values() if a <= last and first <= b}
        lanes[source] = min({*range(len(taken) + 1)} - taken), first, last
    return [(arrow, ways[arrow.source][0], lanes[arrow.source][0], end)
            for arrow, end in ends.items()]


def _width(boxes):
    return max((CHARACTER * len(text) + 2 * PADDING for box in boxes for _, text in box.lines),
               default=0)


def _sideways(arrow, x, y, lane, to, end):
    """Draw an arrow from (x, y) across to a lane, along it, and across to (to, end)."""
    path = f"M{x:.1f} {y:.1f}"
    if abs(end - y) > 1:
        down, out, back = (math.copysign(min(BEND, abs(n) / 2), n)
                           for n in (end - y, lane - x, to - lane))
        path += (f"H{lane - out:.1f}Q{lane:.1f} {y:.1f} {lane:.1f} {y + down:.1f}"
                 f"V{end - down:.1f}Q{lane:.1f} {end:.1f} {lane + back:.1f} {end:.1f}")
    return _arrow(arrow, f"{path}H{to:.1f}", to, end, 0 if lane < to else 180)


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
