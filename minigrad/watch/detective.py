"""Find the first op that makes a nan or an inf: watch every op, forward and backward."""
import math
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minigrad.core import OPS, Tensor
from minigrad.module import Module
from minigrad.optim import clip_grad_norm_
from minigrad.watch.events import Watcher, arguments, array_of, gradients, owner
from minigrad.watch.source import Line, callers, definition, line_of
from minigrad.watch.text import Numbers

WIDTH = 98          # of a report, in characters


class Finding(NamedTuple):
    """The first op that made a value that is not finite."""
    op: str
    direction: str          # "forward" or "backward"
    made: Numbers
    cause: str              # "weight", "input", "overflow", "zero", "domain" or "op"
    why: str                # the same in words
    line: Line | None = None        # the line of source that ran the op
    module: str = ""        # the module that contains it; empty outside the model
    given: Sequence[Numbers] = ()
    left_out: Line | None = None    # a mg.where that took the other branch there

    def __str__(self) -> str:
        found = f"{self.op}, going " + ("forward" if self.direction == "forward" else
                                        "back, in its gradient")
        found += f" at {self.line.place}" if self.line else ""
        found += f", in {self.module}" if self.module else ""
        rows = [("first in", found), ("", self.line.text if self.line else ""),
                *zip(("given", *[""] * len(self.given)), map(str, self.given)),
                ("made", str(self.made)), ("because", self.why)]
        return "\n".join(textwrap.fill(text, WIDTH, initial_indent=f"   {head:11}",
                                       subsequent_indent=" " * 16) for head, text in rows if text)


class Detective(Watcher):
    """Finds the first op that makes a nan or an inf.

    Run forward and backward inside `with detective:`.  Its `finding` is then that op, or None.  An
    op that gets -inf from the program itself, such as a mask, may return -inf.
    """

    def __init__(self, model: Module) -> None:
        self.finding = None
        self._model = model
        self._names = {p.node: name for name, p in model.named_parameters()}
        self._modules = {id(module): path for path, module in model.named_modules()}
        self._ran = {}          # node -> line, module and given numbers of its op
        self._branches = {}     # node -> line of the mg.where that its gradient came back through
        self._warnings = []     # of NumPy since the last op

    def __enter__(self) -> "Detective":
        super().__enter__()
        heard = np.errstate(divide="log", over="log", invalid="log", call=self)
        self._block.enter_context(heard)
        return self

    def write(self, text: str) -> None:
        """Receive NumPy's message on a division by zero, an overflow or an invalid operation."""
        self._warnings.append(text.strip().removeprefix("Warning: "))

    def look_at_gradients(self) -> None:
        """Check the gradients in `.grad`.  Where every op sent finite ones, their sum over several
        uses or batches may overflow, and so may the sum of their squares."""
        if self.finding:
            return
        found = [Numbers.of(f"the gradient of {name}", p.grad)
                 for name, p in self._model.named_parameters() if p.grad is not None]
        bad = [n for n in found if n.bad]
        if bad:
            self._find_overflow("sum", bad[0], f"the parts of {bad[0].name}, from several places "
                                "or batches, are finite, and their sum")
        elif not math.isfinite(clip_grad_norm_(self._model.parameters(), math.inf)):
            largest = max(found, key=lambda n: np.nan_to_num([-n.low, n.high]).max())
            self._find_overflow(
                "clip_grad_norm_", Numbers("norm", largest.dtype, 1, 1, 0, 0),
                "every gradient is finite, but the sum of their squares",
                definition(clip_grad_norm_), "", [largest])

    def _note(self, event):
        if not self.finding:
            super()._note(event)
        elif self._leaves_it_out(event):
            self.finding = self.finding._replace(left_out=line_of(next(callers())))
        self._warnings = []

    def _leaves_it_out(self, event):
        """Whether a mg.where takes the other branch, so that what was found forward does harm only
        in backward."""
        return (event.op == "where" and event.direction == "forward" and not self.finding.left_out
                and self.finding.cause not in ("weight", "input")
                and any(not np.isfinite(x.data).all() for x in event.inputs[1:]
                        if isinstance(x, Tensor) and x.node)
                and np.isfinite(event.outputs[0].data).all())

    def _note_forward(self, event):
        frames = list(callers())
        given = []
        masked = False
        for name, x in arguments(event):
            a = array_of(x)
            weight = self._names.get(getattr(x, "node", None))
            if a.dtype.kind == "f" or not a.ndim:       # neither ids nor a condition
                given.append(Numbers.of(weight or name, a))
                masked |= not weight and np.isneginf(a).any()
        ran = line_of(frames[0]), owner(self._modules, frames) or "", given
        for out in event.outputs:
            self._ran[out.node] = ran
            if not self.finding and out.dtype.kind == "f" and not (
                    np.isfinite(out.data) | masked & np.isneginf(out.data)).all():
                self._find(event, Numbers.of("", out.data), *ran)

    def _note_backward(self, event):
        line, module, given = self._ran.get(event.node, (None, "", []))
        g = event.inputs[0]
        arrived = Numbers.of("the gradient of its value", g)
        if arrived.bad:
            self._find_overflow(
                "sum", arrived, f"the gradients that came back to the value of {event.op} from "
                "several places are finite, and their sum", line, module, given)
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
        self.finding = Finding(event.op, event.direction, made, *self._cause(event, given, made),
                               line, module, given)

    def _find_overflow(self, op, made, what, *where):
        self.finding = Finding(op, "backward", made, "overflow",
                               f"{what} is beyond the largest {made.dtype}", *where)

    def _cause(self, event, given, made):
        """Return the cause in a word, and in a sentence."""
        limits = np.finfo(made.dtype)
        beyond = f"the largest {limits.dtype}, {limits.max:.2g}"
        bad = [n for n in given if n.bad]
        if weight := next((n for n in bad if n.name in self._names.values()), None):
            return "weight", (f"the weight {weight.name} is not finite before the step: "
                              f"{weight.bad:,} of its {weight.size:,} numbers are nan or inf")
        if bad and event.direction == "forward":
            return "input", f"nan or inf was given as {bad[0].name}, and no op made it"
        if self._warnings:
            kind, _, where = self._warnings[0].partition(" encountered in ")
            if kind == "divide by zero":
                return "zero", f"{'the log of' if 'log' in where else 'a division by'} 0 ({where})"
            if kind == "invalid value":
                return "domain", (f"{where} is not defined there, as in 0 / 0, inf - inf, or the "
                                  "log or root of a negative number")
            return "overflow", f"the result of {where} is beyond {beyond}"
        largest = max((abs(x) for n in (*given, made) for x in (n.low, n.high)
                       if math.isfinite(x)), default=0.0)
        if largest > 1e-3 * math.sqrt(limits.max):
            return "overflow", f"products of numbers as large as {largest:.2g} are beyond {beyond}"
        what = "its value" if event.direction == "forward" else "its gradient"
        where = f"; it is defined at {definition(OPS[event.op]).place}" if event.op in OPS else ""
        return "op", f"{what} is not finite, though all it was given is finite and small{where}"
