"""Find the first op that made a nan or an inf, in a step that is run again.

    python train.py --replay out/nan.npz

Only the loss and the norm of the gradient of each step are checked.  If one of them is not finite,
the step is run again with the same batches, weights and generators, and each op is watched forward
and backward.
"""
import copy
import functools
import inspect
import math
import os
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg
from minigrad.core import OPS, Added, Array, Event, Tensor, watch_ops
from minigrad.kernels import ahead
from minigrad.kernels.build import compiling
from minigrad.watch.source import Line, callers, definition, line_of
from model.module import Module
from model.sampling.scoring import evaluate
from model.storage.checkpoint import CheckpointError, load_checkpoint
from model.training.state import State
from model.transformer import Transformer

WIDTH = 98          # of a report, in characters
HEAD = 14           # of those, before the text


class Numbers(NamedTuple):
    """A summary of an array."""
    name: str
    type: str           # its dtype and shape
    size: int
    bad: int            # how many are nan or inf
    low: float          # of the others, nan if there are none
    high: float

    @classmethod
    def of(cls, name: str, array: Any) -> "Numbers":
        """Return the summary of an array."""
        a = np.asarray(array)
        finite = a[np.isfinite(a)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (math.nan,) * 2
        return cls(name, f"{a.dtype}{list(a.shape)}", a.size, a.size - finite.size, low, high)

    def __str__(self) -> str:
        reach = f"{self.low:.4g} to {self.high:.4g}" if self.low < self.high else f"{self.low:.4g}"
        if self.bad == self.size:
            reach = "all nan or inf"
        elif self.bad:
            reach += f", but for {self.bad:,} of {self.size:,} that are nan or inf"
        return f"{self.name}  {self.type}: {reach}".strip()


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

    @property
    def way(self) -> str:
        """The direction in words."""
        return "going forward" if self.direction == "forward" else "going back, in its gradient"

    def __str__(self) -> str:
        place = "" if self.line is None else f" at {self.line.place}"
        rows = [("first in", f"{self.op}, {self.way}{place}"
                 + (f", in {self.module}" if self.module else ""))]
        if self.line and self.line.text:
            rows.append(("", self.line.text))
        rows += [("given" if not i else "", str(numbers)) for i, numbers in enumerate(self.given)]
        rows += [("made", str(self.made)), ("because", self.why)]
        return "\n".join(textwrap.fill(text, WIDTH, initial_indent=f"   {head:{HEAD - 3}}",
                                       subsequent_indent=" " * (HEAD + 2))
                         for head, text in rows)


class Detective:
    """Finds the first op that makes a nan or an inf.

    Run forward and backward inside `with detective:`.  Its `finding` is then that op, or None.  An
    op to which the program itself gives -inf may return -inf: masks do.
    """

    def __init__(self, model: Module) -> None:
        self.finding = None
        self._parameters = {p.node: name for name, p in model.named_parameters()}
        self._modules = {id(module): path for path, module in model.named_modules()}
        self._ran = {}          # node -> line, module and inputs' Numbers of its op
        self._branches = {}     # node -> line of the mg.where that its gradient came back through
        self._said = []         # messages of NumPy since the last op

    def __enter__(self) -> "Detective":
        self._contexts = [np.errstate(divide="log", over="log", invalid="log", call=self),
                          watch_ops(self._note)]
        for context in self._contexts:
            context.__enter__()
        return self

    def __exit__(self, *error) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*error)

    def write(self, text: str) -> None:
        """Receive NumPy's message on a division by zero, an overflow or an invalid operation."""
        self._said.append(text.strip().removeprefix("Warning: "))

    def look_at_gradients(self) -> None:
        """Check the gradients at the end: if no op made it, a sum of them or of their squares
        did."""
        if self.finding:
            return
        gradients = {name: node.grad for node, name in self._parameters.items()
                     if node.grad is not None}
        for name, g in gradients.items():
            if not np.isfinite(g).all():
                self.finding = Finding(
                    "sum", "backward", None, "", [], Numbers.of(f"the gradient of {name}", g),
                    "overflow", f"the gradients of {name} from several places or batches are "
                    f"finite, and their sum is beyond the largest {g.dtype}")
                return
        if gradients and not math.isfinite(mg.clip_grad_norm_(self._leaves(), math.inf)):
            name, g = max(gradients.items(), key=lambda item: np.abs(item[1]).max())
            self.finding = Finding(
                "clip_grad_norm_", "backward", definition(mg.clip_grad_norm_), "",
                [Numbers.of(f"the gradient of {name}", g)], Numbers("norm", "float", 1, 1, 0, 0),
                "overflow", "every gradient is finite, but the sum of their squares is beyond the "
                f"largest {g.dtype}")

    def _leaves(self):
        for node in self._parameters:
            leaf = Tensor(np.empty(0))
            leaf.node = node
            yield leaf

    def _note(self, event):
        said, self._said = self._said, []
        if self.finding:
            self._note_left_out(event)
        elif event.direction == "forward":
            self._note_forward(event, said)
        else:
            self._note_backward(event, said)

    def _note_left_out(self, event):
        """Check whether a mg.where leaves out what was found forward, so that it did harm only in
        backward."""
        if (event.op == "where" and event.direction == "forward" and not self.finding.left_out
                and self.finding.cause not in ("weight", "input")
                and any(not np.isfinite(x.data).all() for x in event.inputs[1:]
                        if isinstance(x, Tensor) and x.node)
                and np.isfinite(event.outputs[0].data).all()):
            self.finding = self.finding._replace(left_out=line_of(next(callers())))

    def _note_forward(self, event, said):
        frames = list(callers())
        module = next((self._modules[id(frame.f_locals["self"])] for frame in frames
                       if id(frame.f_locals.get("self")) in self._modules), "")
        line, arguments = line_of(frames[0]), list(named_arguments(event))
        given = [Numbers.of(self._parameters.get(getattr(x, "node", None), name), array_of(x))
                 for name, x in arguments]
        allowed = any(np.isneginf(array_of(x)).any() for _, x in arguments
                      if getattr(x, "node", None) not in self._parameters)
        for out in event.outputs:
            if out.node is not None:
                self._ran[out.node] = line, module, given
            if out.dtype.kind != "f" or np.isfinite(out.data).all():
                continue
            if allowed and not (np.isnan(out.data) | np.isposinf(out.data)).any():
                continue
            made = Numbers.of("", out.data)
            self.finding = Finding(event.op, "forward", line, module, given, made,
                                   *self._cause(event.op, "forward", given, made, said))
            return

    def _note_backward(self, event, said):
        line, module, given = self._ran.get(event.node, (None, "", []))
        arrived = Numbers.of("the gradient of its value", event.inputs[0])
        if arrived.bad:
            self.finding = Finding(
                "sum", "backward", line, module, given, arrived, "overflow",
                f"the gradients that came back to the value of {event.op} from several places are "
                f"finite, and their sum is beyond the largest {event.node.dtype}")
            return
        branch = line if event.op == "where" else self._branches.get(event.node)
        self._branches |= {source: branch for source, _ in event.outputs if branch}
        for source, part in event.outputs:
            if isinstance(part, Added):
                add, part = part.add, np.zeros(source.shape, source.dtype)
                add(part)
            if np.isfinite(part).all():
                continue
            given, name = [*given, arrived], self._parameters.get(source, "an input")
            made = Numbers.of(f"the gradient of {name}", part)
            self.finding = Finding(event.op, "backward", line, module, given, made,
                                   *self._cause(event.op, "backward", given, made, said))
            g = event.inputs[0]
            if branch and g.shape == part.shape and not g[~np.isfinite(part)].any():
                self.finding = self.finding._replace(left_out=branch)
            return

    def _cause(self, op, direction, given, made, said):
        names = set(self._parameters.values())
        dtype = np.finfo(made.type.split("[")[0])
        sizes = [abs(x) for n in (*given, made) for x in (n.low, n.high) if math.isfinite(x)]
        largest = max(sizes, default=0.0)
        bad = [n for n in given if n.bad]
        if weight := next((n for n in bad if n.name in names), None):
            return "weight", (f"the weight {weight.name} is not finite before the step: "
                              f"{weight.bad:,} of its {weight.size:,} numbers are nan or inf")
        if bad and direction == "forward":
            return "input", f"it was given nan or inf, as {bad[0].name}, which no op made"
        if said:
            kind, _, where = said[0].partition(" encountered in ")
            if kind == "divide by zero":
                return "zero", (f"the log of 0 ({where})" if "log" in where else
                                f"a division by 0 ({where})")
            if kind == "invalid value":
                return "domain", (f"{where} of what it is not defined for, such as 0 / 0, "
                                  "inf - inf, or the log or root of a negative number")
            return "overflow", (f"{where} has a result beyond the largest {dtype.dtype}, "
                                f"{dtype.max:.2g}")
        if largest > 1e-3 * math.sqrt(dtype.max):
            return "overflow", (f"numbers as large as {largest:.2g} multiply to one beyond the "
                                f"largest {dtype.dtype}, {dtype.max:.2g}")
        where = f"; it is defined at {definition(OPS[op]).place}" if op in OPS else ""
        return "op", (f"{'its value' if direction == 'forward' else 'its gradient'} is not finite, "
                      f"though nothing that it was given is large or not finite{where}")


class Case(NamedTuple):
    """A training step, or a batch of an evaluation, whose loss or gradient is not finite."""
    part: str               # "training" or "validation"
    step: int               # the step being taken, or the last one before the evaluation
    loss: float
    norm: float             # of the gradient; nan without a backward pass
    batches: list[tuple[np.ndarray, np.ndarray]]        # ids and targets, (B, T) each

    def __str__(self) -> str:
        if self.part == "validation":
            return f"the validation loss after step {self.step:,} is {self.loss}"
        if not math.isfinite(self.loss):
            return f"the loss of step {self.step:,} is {self.loss}"
        return (f"the loss of step {self.step:,} is {self.loss:.4g}, but the norm of its gradient "
                f"is {self.norm}")

    @classmethod
    def of_validation(cls, step: int, model: Transformer, x: np.ndarray, y: np.ndarray,
                      batch_size: int) -> "Case":
        """Return the first batch of an evaluation whose loss is not finite."""
        for at in range(0, len(x), batch_size):
            ids, targets = x[at:at + batch_size], y[at:at + batch_size]
            if not math.isfinite(loss := evaluate(model, ids, targets, len(ids))):
                break
        return cls("validation", step, loss, math.nan, [(ids, targets)])

    def again(self, model: Transformer, dropout: np.random.Generator
              ) -> tuple["Case", Finding | None]:
        """Run the case again, watched.  No gradient is left, and `dropout` keeps its state."""
        parameters, norm = model.parameters(), math.nan
        for p in parameters:
            p.grad = None
        with Detective(model) as detective:
            if self.part == "validation":
                (x, y), = self.batches
                loss = evaluate(model, x, y, len(x))
            else:
                loss, dropout = 0.0, copy.deepcopy(dropout)
                for x, y in self.batches:
                    part = mg.cross_entropy(model(x, rng=dropout), y) / len(self.batches)
                    part.backward()
                    loss += part.item()
        if self.part == "training":
            norm = mg.clip_grad_norm_(parameters, math.inf)
            detective.look_at_gradients()
        for p in parameters:
            p.grad = None
        return self._replace(loss=loss, norm=norm), detective.finding

    def saved(self) -> dict[str, Any]:
        """Return the case exactly, as JSON can hold it."""
        return self._asdict() | {"batches": [[x.tolist(), y.tolist()] for x, y in self.batches]}

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> "Case":
        """Return the case that `saved` stored.

        Raises
        ------
        ValueError : the data is not of that form.
        """
        try:
            case = cls(**saved | {"batches": [(np.array(x, np.int64), np.array(y, np.int64))
                                              for x, y in saved["batches"]]})
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError("its parts are not those of a step") from error
        if (case.part not in ("training", "validation") or type(case.step) is not int
                or not type(case.loss) is type(case.norm) is float
                or len(case.batches) != 1 and (case.part == "validation" or not case.batches)
                or any(x.ndim != 2 or x.shape != y.shape for x, y in case.batches)):
            raise ValueError("its parts are not those of a step")
        return case


def replay(path: str | os.PathLike) -> None:
    """Run the step of a nan.npz again, and print what was found.

    Raises
    ------
    ValueError : there is no such file, or it holds no such step, or all is finite this time.
    """
    if not os.path.isfile(path):
        raise CheckpointError(f"--replay {path} is no file; give the out_dir/nan.npz that train.py "
                              "leaves where a loss is not finite")
    checkpoint = load_checkpoint(path, finite=False)
    settings = checkpoint.training.get("settings", {})
    if not ({"nan", "state"} <= checkpoint.training.keys()
            and {"learning_rate", "warmup_iters", "grad_clip"} <= settings.keys()):
        raise CheckpointError(f"{path} is a checkpoint, and holds no step that went wrong; "
                              "train.py leaves one in out_dir/nan.npz where a loss is not finite")
    state, config = State(seed=0), checkpoint.model.config
    try:
        state.restore(checkpoint.training["state"])
        then = Case.restored(checkpoint.training["nan"])
        compiling.announce(functools.partial(print, "compiling  ", flush=True))
        ahead.compile_ahead(then.batches[0][0].size * config.n_embd, qk_norm=config.qk_norm,
                            ngrams=config.ngrams > 1)
        now, finding = then.again(checkpoint.model, state.dropout)
    except (IndexError, ValueError) as error:
        raise CheckpointError(f"{path} holds no step that can be taken again: {error}") from error
    print(f"then        {then}\nnow         {now}, "
          + ("the same bit for bit" if np.array_equal(then[2:4], now[2:4], equal_nan=True) else
             "not the same: it was trained on another processor, or with other kernels")
          + f"\n\n{finding or ''}")
    if finding is None:
        raise ValueError(f"every value of the step in {path} is finite here")
    print(f"\n{advice(finding, settings)}")


def advice(finding: Finding | None, settings: dict[str, Any]) -> str:
    """Return what to do about it, in a sentence."""
    slower = f"a lower --learning_rate (it was {settings['learning_rate']:g})"
    if settings["warmup_iters"] < 100:
        slower += f", a longer --warmup_iters (it was {settings['warmup_iters']})"
    if not settings["grad_clip"]:
        slower += ", or --grad_clip 1 (nothing was clipped)"
    if finding and finding.left_out:
        return (f"The value of {finding.op} is left out by mg.where at {finding.left_out.place}, "
                "and its gradient there is 0 times inf, which is nan: make what it is given safe "
                "inside, too, as in mg.where(c, mg.sqrt(mg.where(c, x, 1)), 0) with c = x.data > 0")
    if finding is None or finding.cause in ("weight", "overflow"):
        return f"Train with {slower}"
    if finding.cause == "input":
        return f"Look at what {finding.op} is given at {finding.line.place}"
    where = f", at {definition(OPS[finding.op]).place}" if finding.op in OPS else ""
    if finding.cause in ("zero", "domain"):
        return f"Keep what {finding.op} is given away from there, or look at the op{where}"
    return f"Look at the op{where}; mg.gradcheck compares its gradient with differences"


def named_arguments(event: Event) -> Iterator[tuple[str, Any]]:
    """Yield the array arguments of an op that hold floats, each with its name; numbers given in
    place of arrays are included."""
    parameters = inspect.signature(OPS[event.op]).parameters.values()
    for parameter, given in zip(parameters, event.inputs):
        for x in given if isinstance(given, (list, tuple)) else [given]:
            array = parameter.annotation in (Array, parameter.empty)
            if (array and type(x) in (int, float)
                    or isinstance(array_of(x), np.ndarray) and array_of(x).dtype.kind == "f"):
                yield parameter.name, x


def array_of(x: Any) -> Any:
    """Return the data of a Tensor; anything else is returned as it is."""
    return x.data if isinstance(x, Tensor) else x
