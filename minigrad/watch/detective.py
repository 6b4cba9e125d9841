"""Find the first op that makes a nan or an inf: every op is watched, forward and backward."""
import math
import textwrap
from typing import NamedTuple

import numpy as np

from minigrad.core import OPS, Tensor
from minigrad.module import Module
from minigrad.optim import clip_grad_norm_
from minigrad.watch.events import Watcher, arguments, array_of, gradients, owner
from minigrad.watch.source import Line, callers, definition, line_of
from minigrad.watch.text import Numbers

WIDTH = 98          # of a report, in characters
HEAD = 14           # of those, before the text


class Finding(NamedTuple):
    """The first op that made a value that is not finite."""
    op: str
    direction: str          # "forward" or "backward"
    line: Line | None       # the line of source that ran the op
    module: str             # the module that contains it; empty outside the model
    given: list[Numbers]
    made: Numbers
    cause: str              # "weight", "input", "overflow", "zero", "domain" or "op"
    why: str                # the same in words
    left_out: Line | None = None    # a mg.where that took the other branch there

    def __str__(self) -> str:
        way = "going forward" if self.direction == "forward" else "going back, in its gradient"
        place = "" if self.line is None else f" at {self.line.place}"
        rows = [("first in", f"{self.op}, {way}{place}"
                 + (f", in {self.module}" if self.module else ""))]
        if self.line and self.line.text:
            rows.append(("", self.line.text))
        rows += [("given" if not i else "", str(numbers)) for i, numbers in enumerate(self.given)]
        rows += [("made", str(self.made)), ("because", self.why)]
        return "\n".join(textwrap.fill(text, WIDTH, initial_indent=f"   {head:{HEAD - 3}}",
                                       subsequent_indent=" " * (HEAD + 2))
                         for head, text in rows)


class Detective(Watcher):
    """Finds the first op that makes a nan or an inf.

    Run forward and backward inside `with detective:`.  Its `finding` is then that op, or None.  An
    op to which the program itself gives -inf may return -inf: masks do.
    """

    def __init__(self, model: Module) -> None:
        self.finding = None
        self._model = model
        self._names = {p.node: name for name, p in model.named_parameters()}
        self._modules = {id(module): path for path, module in model.named_modules()}
        self._ran = {}          # node -> line, module and inputs' Numbers of its op
        self._branches = {}     # node -> line of the mg.where that its gradient came back through
        self._said = []         # messages of NumPy since the last op
        self._errors = np.errstate(divide="log", over="log", invalid="log", call=self)

    def __enter__(self) -> "Detective":
        self._errors.__enter__()
        return super().__enter__()

    def __exit__(self, *error) -> None:
        super().__exit__(*error)
        self._errors.__exit__(*error)

    def write(self, text: str) -> None:
        """Receive NumPy's message on a division by zero, an overflow or an invalid operation."""
        self._said.append(text.strip().removeprefix("Warning: "))

    def look_at_gradients(self) -> None:
        """Check the gradients at the end: if no op made it, a sum of them or of their squares
        did."""
        if self.finding:
            return
        found = {name: p.grad for name, p in self._model.named_parameters() if p.grad is not None}
        bad = next((name for name, g in found.items() if not np.isfinite(g).all()), None)
        if bad:
            self.finding = _overflow(
                "sum", Numbers.of(f"the gradient of {bad}", found[bad]), found[bad].dtype,
                f"the gradients of {bad} from several places or batches are finite, and their sum")
        elif not math.isfinite(clip_grad_norm_(self._model.parameters(), math.inf)):
            name, g = max(found.items(), key=lambda item: np.abs(item[1]).max(initial=0))
            self.finding = _overflow(
                "clip_grad_norm_", Numbers("norm", "float", 1, 1, 0, 0), g.dtype,
                "every gradient is finite, but the sum of their squares",
                definition(clip_grad_norm_), "", [Numbers.of(f"the gradient of {name}", g)])

    def _note(self, event):
        if self.finding:
            self._note_left_out(event)
        else:
            super()._note(event)
        self._said = []

    def _note_left_out(self, event):
        """Check whether a mg.where leaves out what was found forward, so that it did harm only in
        backward."""
        if (event.op == "where" and event.direction == "forward" and not self.finding.left_out
                and self.finding.cause not in ("weight", "input")
                and any(not np.isfinite(x.data).all() for x in event.inputs[1:]
                        if isinstance(x, Tensor) and x.node)
                and np.isfinite(event.outputs[0].data).all()):
            self.finding = self.finding._replace(left_out=line_of(next(callers())))

    def _note_forward(self, event):
        frames = list(callers())
        given, masked = [], False
        for name, x in arguments(event):
            a, weight = array_of(x), self._names.get(getattr(x, "node", None))
            if a.dtype.kind == "f" or not a.ndim:       # neither ids nor a condition
                given.append(Numbers.of(weight or name, a))
                masked |= not weight and np.isneginf(a).any()
        ran = line_of(frames[0]), owner(self._modules, frames) or "", given
        for out in event.outputs:
            self._ran[out.node] = ran
            if out.dtype.kind == "f" and not (np.isfinite(out.data)
                                              | masked & np.isneginf(out.data)).all():
                self._find(event, Numbers.of("", out.data), *ran)
                return

    def _note_backward(self, event):
        line, module, given = self._ran.get(event.node, (None, "", []))
        g, arrived = event.inputs[0], Numbers.of("the gradient of its value", event.inputs[0])
        if arrived.bad:
            self.finding = _overflow(
                "sum", arrived, g.dtype, f"the gradients that came back to the value of {event.op} "
                "from several places are finite, and their sum", line, module, given)
            return
        branch = line if event.op == "where" else self._branches.get(event.node)
        self._branches |= {source: branch for source, _ in event.outputs if branch}
        for source, part in gradients(event):
            if not np.isfinite(part).all():
                made = Numbers.of(f"the gradient of {self._names.get(source, 'an input')}", part)
                self._find(event, made, line, module, [*given, arrived])
                if branch and g.shape == part.shape and not g[~np.isfinite(part)].any():
                    self.finding = self.finding._replace(left_out=branch)
                return

    def _find(self, event, made, line, module, given):
        cause, why = self._cause(event, given, made)
        self.finding = Finding(event.op, event.direction, line, module, given, made, cause, why)

    def _cause(self, event, given, made):
        names = set(self._names.values())
        dtype = np.finfo(made.type.split("[")[0])
        beyond = f"the largest {dtype.dtype}, {dtype.max:.2g}"
        largest = max((abs(x) for n in (*given, made) for x in (n.low, n.high)
                       if math.isfinite(x)), default=0.0)
        bad = [n for n in given if n.bad]
        if weight := next((n for n in bad if n.name in names), None):
            return "weight", (f"the weight {weight.name} is not finite before the step: "
                              f"{weight.bad:,} of its {weight.size:,} numbers are nan or inf")
        if bad and event.direction == "forward":
            return "input", f"it was given nan or inf, as {bad[0].name}, which no op made"
        if self._said:
            kind, _, where = self._said[0].partition(" encountered in ")
            if kind == "divide by zero":
                return "zero", (f"the log of 0 ({where})" if "log" in where else
                                f"a division by 0 ({where})")
            if kind == "invalid value":
                return "domain", (f"{where} of what it is not defined for, such as 0 / 0, "
                                  "inf - inf, or the log or root of a negative number")
            return "overflow", f"{where} has a result beyond {beyond}"
        if largest > 1e-3 * math.sqrt(dtype.max):
            return "overflow", f"numbers as large as {largest:.2g} multiply to one beyond {beyond}"
        what = "its value" if event.direction == "forward" else "its gradient"
        where = f"; it is defined at {definition(OPS[event.op]).place}" if event.op in OPS else ""
        return "op", (f"{what} is not finite, though nothing that it was given is large or not "
                      f"finite{where}")


def _overflow(op, made, dtype, what, line=None, module="", given=()):
    return Finding(op, "backward", line, module, list(given), made, "overflow",
                   f"{what} is beyond the largest {dtype}")
