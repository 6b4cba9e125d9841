"""Draw boxes and arrows as one SVG: in rows, every arrow points down and none crosses a box.

The layers follow Sugiyama, Tagawa & Toda 1981, "Methods for Visual Understanding of Hierarchical
System Structures": a row for each box, dummy cells where an arrow passes a row, an order in each
row with few crossings, then places across.  The file does not know what the boxes mean.
"""
import math
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate

CHARACTER, LINE = 7.3, 17       # of 12 pixel monospace, slightly more than any font needs
PADDING, HEAD = 11, 64          # within a box; above all boxes, for the title
ACROSS, DOWN = 26, 44           # between boxes, between rows
PORTS = 16                      # between arrows at the edge of a box
MARGIN = 24

STYLE = """
.graph { background: var(--paper); font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas,
         "DejaVu Sans Mono", monospace; --paper: #fff; --ink: #1d2430; --faint: #6b7482;
         --edge: #9aa4b2; --gradient: #b4400a; --op: #eef3fb; --op-edge: #7d9bd0;
         --leaf: #edf7ee; --leaf-edge: #74ad7a; --constant: #f6f6f4; --constant-edge: #b9b9b2; }
@media (prefers-color-scheme: dark) {
.graph { --paper: #14181f; --ink: #e3e8ef; --faint: #929dac; --edge: #5d6877; --gradient: #ffa366;
         --op: #1c2740; --op-edge: #5b7dbb; --leaf: #1b2e20; --leaf-edge: #57905f;
         --constant: #22252b; --constant-edge: #5a5f68; } }
.graph text { fill: var(--ink); white-space: pre; }
.graph rect { stroke-width: 1.2; }
.graph rect.paper { fill: var(--paper); }
.graph .op rect { fill: var(--op); stroke: var(--op-edge); }
.graph .leaf rect { fill: var(--leaf); stroke: var(--leaf-edge); }
.graph .constant rect { fill: var(--constant); stroke: var(--constant-edge);
                        stroke-dasharray: 4 3; }
.graph .title, .graph .head { font-weight: 600; }
.graph .title { font-size: 16px; }
.graph text.faint { fill: var(--faint); }
.graph text.gradient { fill: var(--gradient); }
.graph .badge circle { fill: var(--gradient); stroke: var(--paper); stroke-width: 2; }
.graph .badge text { fill: var(--paper); font-weight: 600; font-size: 11px; text-anchor: middle; }
.graph .arrow path { fill: none; stroke: var(--edge); stroke-width: 1.4; }
.graph .arrow path.tip { fill: var(--edge); stroke: none; }
.graph .arrow text { font-size: 11px; stroke: var(--paper); stroke-width: 3px;
                     paint-order: stroke; }
"""


@dataclass(eq=False)
class Arrow:
    """An arrow from a box to the one that lists it in `arrows`."""
    source: "Box"
    label: str = ""     # beside its end
    tip: str = ""       # shown when pointed at


@dataclass(eq=False)
class Box:
    """Lines of text in a frame; `kind` and the lines' classes choose colours from STYLE."""
    kind: str
    lines: list[tuple[str, str]]                # class, text
    badge: str = ""
    tip: str = ""
    arrows: list[Arrow] = field(default_factory=list)       # that end here


class _Cell:
    """The place of a box, or the place where a box's arrows pass a row."""

    def __init__(self, row, box=None):
        self.row, self.box = row, box
        self.above, self.below = [], []         # cells that arrows lead from and to
        self.x = 0.0                            # of the middle
        self.width = self.height = 0.0
        if box:
            longest = max(len(text) for _, text in box.lines)
            labels = max((len(arrow.label) for arrow in box.arrows), default=0)
            self.port = PORTS + CHARACTER * labels      # from one arrow's end to the next one's
            self.width = CHARACTER * longest + 2 * PADDING
            self.height = LINE * len(box.lines) + 2 * PADDING - 4


def draw(boxes: list[Box], title: str, description: str = "") -> str:
    """Return the SVG of boxes whose arrows form no circle, with the two texts above them."""
    rows, ways = _laid_out(boxes)
    cells = [cell for row in rows for cell in row]
    heights = [max((cell.height for cell in row), default=0) for row in rows]
    tops = list(accumulate((height + DOWN for height in heights), initial=HEAD))
    left = min((cell.x - cell.width / 2 for cell in cells), default=0) - MARGIN
    right = max((cell.x + cell.width / 2 for cell in cells), default=0) + MARGIN
    width = max(right - left, CHARACTER * max(len(description), 1.4 * len(title)) + 2 * MARGIN)
    left -= (width - (right - left)) / 2        # as much on both sides
    height = tops[-1] - DOWN + MARGIN
    ports, drawn, seen = _ports(ways), [], set()
    for arrow, way in ways.items():
        start, end = ports[arrow]
        points = [(start, tops[way[0].row] + way[0].height, tops[way[0].row] + heights[way[0].row])]
        for cell in way[1:-1]:
            bottom = tops[cell.row] + heights[cell.row]
            if cell in seen:                    # an arrow up to here has been drawn
                points = [(cell.x, bottom, bottom)]
            else:
                points.append((cell.x, tops[cell.row], bottom))
        seen.update(way)
        points.append((end, tops[way[-1].row], tops[way[-1].row]))
        drawn.append(_drawn_arrow(arrow, points))
    drawn += [_drawn_box(cell, tops[cell.row]) for cell in cells if cell.box]
    size = f'width="{width:.0f}" height="{height:.0f}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="img" {size} '
        f'viewBox="{left:.0f} 0 {width:.0f} {height:.0f}">',
        f"<title>{escape(title)}</title>", f"<desc>{escape(description)}</desc>",
        f"<style>{STYLE}</style>", f'<rect class="paper" x="{left:.0f}" {size}/>',
        _text(left + MARGIN, 28, "title", title), _text(left + MARGIN, 48, "faint", description),
        *drawn, "</svg>", ""])


def _laid_out(boxes):
    """Return rows of cells from the top, each with its place across; and the cells of each
    arrow."""
    depths = _depths(boxes)                     # rows from the bottom
    rows = [[] for _ in range(max(depths.values(), default=0) + 1)]
    cells = {box: _Cell(len(rows) - 1 - depth, box) for box, depth in depths.items()}
    passing, ways = {}, {}                      # (box, row) -> where all its arrows pass that row
    for box in boxes:
        for arrow in box.arrows:
            source, target = cells[arrow.source], cells[box]
            between = [passing.setdefault((source, row), _Cell(row))
                       for row in range(source.row + 1, target.row)]
            ways[arrow] = way = [source, *between, target]
            for upper, lower in zip(way, way[1:]):
                if lower not in upper.below:
                    upper.below.append(lower)
                    lower.above.append(upper)
    leaving, meeting = _ends(ways)
    for cell in cells.values():                 # wide enough for the arrows that leave and meet it
        for step, ends in (PORTS, leaving), (cell.port, meeting):
            cell.width = max(cell.width, 2 * step * (len(ends.get(cell, [])) - 1) + 2 * PADDING)
    for cell in _met([cells[box] for box in boxes]):
        rows[cell.row].append(cell)
    _order(rows)
    _place(rows)
    return rows, ways


def _depths(boxes):
    """Return how far above the bottom row each box lies: one more than the highest below it."""
    unseen = dict.fromkeys(boxes, 0)            # boxes that it leads to
    for box in boxes:
        for arrow in box.arrows:
            unseen[arrow.source] += 1
    depths = {box: 0 for box, n in unseen.items() if n == 0}
    ready = list(depths)
    while ready:
        box = ready.pop()
        for source in (arrow.source for arrow in box.arrows):
            depths[source] = max(depths.get(source, 0), depths[box] + 1)
            unseen[source] -= 1
            if unseen[source] == 0:
                ready.append(source)
    return depths


def _met(starts):
    """Return all cells in the order of a walk upwards that takes the first way at a fork."""
    met, waiting = {}, starts[::-1]
    while waiting:
        cell = waiting.pop()
        if cell not in met:
            met[cell] = True
            waiting += cell.above[::-1]
    return met


def _order(rows):
    """Swap neighbours in a row as long as that reduces the arrows that cross."""
    exchanged = True
    while exchanged:
        exchanged = False
        for at, row in enumerate(rows):
            near = rows[max(at - 1, 0):at + 2]
            fewest = _crossings(near)
            for i in range(len(row) - 1):
                row[i:i + 2] = row[i + 1], row[i]
                if (crossings := _crossings(near)) < fewest:
                    fewest, exchanged = crossings, True
                else:
                    row[i:i + 2] = row[i + 1], row[i]


def _crossings(rows):
    count = 0
    for row, below in zip(rows, rows[1:]):
        at = {cell: i for i, cell in enumerate(below)}
        ends = [(i, at[cell]) for i, upper in enumerate(row) for cell in upper.below]
        count += sum(a < c and b > d for a, b in ends for c, d in ends)
    return count


def _place(rows):
    """Put stacks of cells side by side, as far left as possible, then move each one back towards
    the cells that it is joined to.

    Source: Brandes & Koepf 2001, "Fast and Simple Horizontal Coordinate Assignment", section 4,
    for one of its four directions.
    """
    stacks = _stacked(rows)
    pairs = [pair for row in rows for pair in zip(row, row[1:])]
    moved = True
    while moved:
        moved = False
        for one, other in pairs:
            if other.x < one.x + _distance(one, other):
                moved = True
                for cell in stacks[other]:
                    cell.x = one.x + _distance(one, other)
    right = dict(pairs)
    for cell in sorted(stacks, key=lambda cell: -cell.x):
        stack = stacks[cell]
        if cell is stack[0]:
            joined = [n.x for part in stack for n in part.above + part.below if n not in stack]
            room = min((right[part].x - _distance(part, right[part]) for part in stack
                        if part in right), default=math.inf)
            x = max(cell.x, min(room, sum(joined) / len(joined))) if joined else cell.x
            for part in stack:
                part.x = x


def _stacked(rows):
    """Choose the cells to stand straight above and below each cell: a box on the first of its
    inputs, an arrow on itself, as long as no two stacks cross."""
    stacks = {}
    for above, row in zip([[], *rows], rows):
        at, free = {cell: i for i, cell in enumerate(above)}, 0
        for cell in row:
            stacks[cell] = [cell]
            for upper in cell.above[:1]:
                # A box continues as a box, an arrow as an arrow, if possible.
                alike = [n for n in upper.below if bool(n.box) == bool(upper.box)
                         and n.above[0] is upper]
                if at[upper] >= free and cell is (alike or upper.below)[0]:
                    free = at[upper] + 1
                    stacks[cell] = stacks[upper]
                    stacks[cell].append(cell)
    return stacks


def _distance(one, other):
    return (one.width + other.width) / 2 + ACROSS


def _ports(ways):
    """Return where each arrow leaves its first box and where it meets its last, (x, x): side by
    side, in the order of where they go to or come from."""
    leaving, meeting = _ends(ways)
    starts = {cell: _side_by_side(cell.x, PORTS, ends) for cell, ends in leaving.items()}
    ends = {cell: _side_by_side(cell.x, cell.port, ends) for cell, ends in meeting.items()}
    return {arrow: (starts[way[0]][_beginning(arrow, way)], ends[way[-1]][arrow])
            for arrow, way in ways.items()}


def _ends(ways):
    """Return what leaves or meets each box: {box's cell: {beginning or arrow: the next cell}}."""
    leaving, meeting = {}, {}
    for arrow, way in ways.items():
        leaving.setdefault(way[0], {})[_beginning(arrow, way)] = way[1]
        meeting.setdefault(way[-1], {})[arrow] = way[-2]
    return leaving, meeting


def _beginning(arrow, way):
    """Return an arrow's own beginning, or the one shared by all arrows that pass the next row."""
    return arrow if way[1].box else way[1]


def _side_by_side(middle, step, ends):
    """Return places `step` apart around a middle, or around the end straight below or above."""
    ordered = sorted(ends, key=lambda end: ends[end].x)
    straight = [i for i, end in enumerate(ordered) if abs(ends[end].x - middle) < 1]
    centre = straight[0] if len(straight) == 1 else (len(ordered) - 1) / 2
    return {end: middle + (i - centre) * step for i, end in enumerate(ordered)}


def _path(points):
    """Return a path down along the rows and across between them: (x, from y, to y) per row."""
    x, top, bottom = points[0]
    steps = [f"M{x:.1f} {top:.1f}V{bottom:.1f}"]
    for to, top, end in points[1:]:
        middle = (bottom + top) / 2
        steps.append(f"C{x:.1f} {middle:.1f} {to:.1f} {middle:.1f} {to:.1f} {top:.1f}V{end:.1f}")
        x, bottom = to, end
    return "".join(steps)


def _drawn_arrow(arrow, points):
    x, y, _ = points[-1]
    label = _text(x + 6, y - 9, "gradient", arrow.label) if arrow.label else ""
    return (f'<g class="arrow"><title>{escape(arrow.tip)}</title><path d="{_path(points)}"/>'
            f'<path class="tip" d="M{x:.1f} {y + 1:.1f}l-4-8h8z"/>{label}</g>')


def _drawn_box(cell, top):
    box, left = cell.box, cell.x - cell.width / 2
    lines = "".join(_text(left + PADDING, top + PADDING + 9 + LINE * i, kind, text)
                    for i, (kind, text) in enumerate(box.lines))
    badge = (f'<g class="badge"><circle cx="{left:.1f}" cy="{top:.1f}" r="11"/>'
             f"{_text(left, top + 4, '', box.badge)}</g>" if box.badge else "")
    return (f'<g class="{box.kind}"><title>{escape(box.tip)}</title><rect x="{left:.1f}" '
            f'y="{top:.1f}" width="{cell.width:.1f}" height="{cell.height:.1f}" rx="7"/>'
            f"{lines}{badge}</g>")


def _text(x, y, kind, text):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'
