"""Record the graph: what ran forward, and in which order backward visits it.

    with mg.Recorder(x=x) as r:
        y = f(x)
        y.backward()
    print(r.text())                     # and r.svg() is a drawing of the same

It uses the engine's events, and knows no op by name.
"""
import textwrap
from dataclasses import dataclass, field

import numpy as np

from minigrad.core import OPS, Node, Tensor
from minigrad.watch.events import Watcher, arguments, array_of, gradients
from minigrad.watch.source import Line, callers, definition, derivatives, line_of, meaning
from minigrad.watch.svg import Arrow, Box, draw
from minigrad.watch.text import aligned, numbers, type_of

WIDTH = 80      # of the text, in characters
RULES = """\
Rules of the ops.  g is the gradient of an op's value; y is the value, unless an
argument has that name:"""
CAPTION = "Down: values.  Up, in the order of the numbers: gradients (grad)."


@dataclass(eq=False)
class Edge:
    """A link from a value to one computed from it."""
    source: "Place"
    part: np.ndarray | None = None      # of the source's gradient, which came back here


@dataclass(eq=False)
class Place:
    """A value: the op that made it, its inputs, and the gradient that reached it."""
    op: str                             # or "leaf", or "constant"
    value: np.ndarray | None            # None if it was made before the recording
    type: str                           # its dtype and shape
    birth: int = 0                      # it is made after all values of an earlier birth
    line: Line | None = None            # what ran the op
    inputs: list[Edge] = field(default_factory=list)
    parts: list[np.ndarray] = field(default_factory=list)   # of the gradient, as they came
    gradient: np.ndarray | None = None  # what backward made of the parts
    turn: tuple[int, int] | None = None     # when backward came: the pass, and the order in it
    name: str = ""
    label: str = ""                     # #1, #2, ... in the order of backward; or c1, c2, ...

    @property
    def kind(self) -> str:
        """The kind of the value: "leaf", "constant" or "op"."""
        return self.op if self.op in ("leaf", "constant") else "op"

    @property
    def title(self) -> str:
        """The name and the op, as far as there are both."""
        return (f"{self.name} = {self.op}" if self.name and self.kind == "op"
                else self.name or self.op)


class Recorder(Watcher):
    """Records the ops that run inside `with`, forward and backward.  It keeps a copy of each value,
    so it is for small expressions.

    Parameters
    ----------
    names : names for leaves, constants or results.
    """

    def __init__(self, **names: Tensor | np.ndarray) -> None:
        self._places = {}                       # by node, or by the id of a constant's array
        self._held = []         # arrays, so that no other one gets their id
        self._names = {}
        self._passes = self._birth = 0          # of backward; of the youngest value so far
        self.name(**names)

    def name(self, **names: Tensor | np.ndarray) -> "Recorder":
        """Name values that are in the graph, or will be."""
        self._names |= {self._key(given): name for name, given in names.items()}
        return self

    def places(self) -> list[Place]:
        """Return the values that backward visited, in its order; then the others, in the order in
        which they were made."""
        for key, place in self._places.items():
            place.name = self._names.get(key, "")
        visited = sorted((p for p in self._places.values() if p.turn), key=lambda p: p.turn)
        others = [p for p in self._places.values() if not p.turn]
        for letter, group in (("#", visited), ("c", others)):
            for number, place in enumerate(group, 1):
                place.label = f"{letter}{number}"
        return visited + others

    def text(self) -> str:
        """Return the graph as a table, with the lines that made it and the rules of its ops."""
        places = self.places()
        parts = _table(places), _lines(self._places.values()), _rules(places)
        return "\n\n".join(filter(None, parts))

    def svg(self, title: str = "A recorded graph") -> str:
        """Return the graph as an SVG drawing."""
        places = sorted(self.places(), key=lambda place: place.birth)
        return draw(_boxes(places), title, CAPTION)

    def _note_forward(self, event):
        line = line_of(next(callers()))
        sources = [self._place(x) for _, x in arguments(event)]
        for out in event.outputs:
            self._birth = (out.node.birth if out.node else
                           max([self._birth, *(source.birth for source in sources)]))
            place = Place(event.op, out.data.copy(), type_of(out), self._birth, line,
                          [Edge(source) for source in sources])
            self._places.setdefault(self._key(out), place)      # an op may return its constant

    def _note_backward(self, event):
        place = self._place(event.node)
        self._passes += not place.parts         # a pass begins where no op sent a part
        place.gradient = event.inputs[0]
        place.turn = self._passes, -place.birth
        for node, part in gradients(event):
            source = self._place(node)
            edge = next((edge for edge in place.inputs
                         if edge.source is source and edge.part is None), None)
            if edge is None:                    # its op ran before the recording
                edge = Edge(source)
                place.inputs.append(edge)
            edge.part = part
            source.parts.append(part)
            if node.op == "leaf":               # the engine has no event for a leaf
                source.gradient = part if source.gradient is None else source.gradient + part
                source.turn = self._passes, -source.birth

    def _key(self, given):
        node = given if isinstance(given, Node) else getattr(given, "node", None)
        if node:
            return node
        array = given.data if isinstance(given, Tensor) else given
        self._held.append(array)
        return id(array) if isinstance(array, np.ndarray) else object()

    def _place(self, given):
        """Return the place of an op's argument, or of a node."""
        key = self._key(given)
        if key not in self._places:
            value = None if key is given else array_of(given).copy()
            self._places[key] = Place(getattr(key, "op", "constant"), value,
                                      type_of(given if value is None else value),
                                      getattr(key, "birth", 0))
        return self._places[key]


def _table(places):
    """Return a row for each place; value and gradient are on a second line if one is too short."""
    if not places:
        return "nothing was recorded"
    rows = [("", "in the order of backward", "type", "value", "gradient")]
    sums = [p for p in places if len(p.parts) > 1 and p.gradient is not None]
    for p in places:
        label = p.label
        made = p.title
        gradient = numbers(p.gradient)
        if p.kind == "op":
            made += f"({', '.join(edge.source.label for edge in p.inputs)})"
        elif p.name:
            made += f", {p.op}"
        if p in sums and p.gradient.size == 1:
            gradient += " = " + " + ".join(map(numbers, p.parts)).replace("+ -", "- ")
        elif p in sums:
            label += "*"
        rows.append((label, made, p.type, numbers(p.value), gradient))
    lines = aligned(rows)
    if max(map(len, lines)) > WIDTH:
        above = aligned([row[:3] for row in rows])
        below = aligned([row[3:] for row in rows])
        lines = [f"{one}\n     {two}" for one, two in zip(above, below)]
    if any(p.gradient.size > 1 for p in sums):
        lines.append("*  the sum of what came back from several places")
    return "\n".join(lines)


def _lines(places):
    """Return the places that each line of source made, in the order in which the lines ran."""
    made = {}
    for place in places:
        if place.line:
            made.setdefault(place.line, []).append(place.label)
    rows = [(", ".join(labels), line.place, line.text) for line, labels in made.items()]
    lines = aligned([("made", "by the line", ""), *rows]) if rows else []
    return "\n".join(row if len(row) <= WIDTH else f"{row[:WIDTH - 4]} ..." for row in lines)


def _rules(places):
    """Return what each op computes and the rule of its gradient, from its own source."""
    rules = []
    for op in dict.fromkeys(p.op for p in places if p.op in OPS):
        back = ", ".join(derivatives(op))
        says = [meaning(op), f"Back: {back}" if back else "", f"({definition(OPS[op]).place})"]
        rules.append(textwrap.fill(f"{op}: " + ".  ".join(filter(None, says)), WIDTH,
                                   initial_indent="  ", subsequent_indent="      "))
    return "\n".join([RULES, *rules]) if rules else ""


def _boxes(places):
    boxes = {}
    for p in places:
        tip = [p.op]
        if p.kind == "op":
            tip = [f"{p.op}: {meaning(p.op)}", *derivatives(p.op)]
            tip += [f"{p.line.place}: {p.line.text}"] if p.line else []
        lines = [("head", p.title), ("faint", p.type), ("", f"value {numbers(p.value)}")]
        if p.turn:
            lines.append(("gradient", f"grad  {numbers(p.gradient)}"))
        boxes[p] = Box(p.kind, lines, p.label.strip("#") if p.turn else "", "\n".join(tip),
                       [_arrow(boxes[edge.source], edge) for edge in p.inputs])
    return list(boxes.values())


def _arrow(box, edge):
    if edge.part is None:
        return Arrow(box)
    in_a_sum = len(edge.source.parts) > 1 and edge.part.size == 1
    return Arrow(box, numbers(edge.part) if in_a_sum else "", f"sends back {numbers(edge.part)}")
