"""One training step as a guided tour: python train.py --explain

The step is the run's own and is watched while it runs, so that every number, shape or line of
source shown here is the one that trains.
"""
import copy
import inspect
import math
import textwrap
from collections.abc import Callable, Iterable
from itertools import groupby, takewhile
from typing import Any, NamedTuple

import numpy as np

import data
import minigrad as mg
from data.tokenizer import CharTokenizer
from minigrad.core import Added, Event, Tensor, watch_ops
from minigrad.optim import Optimizer, warmup_cosine, warmup_linear
from minigrad.watch.graph import arrays_of
from minigrad.watch.source import Line, callers, definition, line_of, meaning
from model.training.state import State
from model.transformer import Transformer

WIDTH = 98          # of the tour, in characters
FIRST = 12          # positions of the first sequence that are shown with their ids
HARD = "\xa0"       # a space at which no line is broken


def explain(take_step: Callable[[], tuple[float, float]], s: Any, model: Transformer,
            optimizer: Optimizer, tokenizer: CharTokenizer, state: State,
            counted: dict[str, float]) -> None:
    """Take the next step of a run, and print it from the text to the changed weights.

    Parameters
    ----------
    take_step : runs forward and backward, steps the optimiser, and returns the loss and the norm of
        the gradient.
    s : the settings of the run: steps, learning_rate, schedule, grad_clip.
    counted : the losses of n-grams, by name.
    """
    witness, number = Witness(model), state.iteration + 1
    before = {name: p.data.copy() for name, p in model.named_parameters()}
    same_dropout = copy.deepcopy(state.dropout)
    with watch_ops(witness.note):
        loss, _ = take_step()
    which = (f"{number:,}" if s.steps == math.inf else
             f"{number:,} of {s.steps:,}" if number <= s.steps else
             f"{number:,}, after the end of a run of {s.steps:,}")
    print(f"Step {which}, from the text to the changed weights.  Nothing is saved.")
    show_batch(witness, tokenizer)
    show_forward(witness, model)
    show_loss(loss, tokenizer.vocab_size, counted)
    show_backward(witness, model)
    show_clipping(witness, s.grad_clip)
    show_update(model, optimizer, before, s)
    show_loss_again(loss, model, witness.batches, same_dropout)


class Ran(NamedTuple):
    """An op that ran forward."""
    op: str
    block: int | None       # the model's block in which it ran; None outside of them
    lines: list[Line]       # of source that led to it, the outermost first
    given: str              # the arguments' shapes, and the names of those that are parameters
    made: str               # the value's shape
    numbers: str            # what is in it


class Visited(NamedTuple):
    """An op that backward visited."""
    op: str
    block: int | None
    norm: float             # of the gradient that arrived


class Witness:
    """A record of a step: the ops of its first batch, and the gradients of all batches."""

    def __init__(self, model: Transformer) -> None:
        self.names = {p.node: name for name, p in model.named_parameters()}
        self.blocks = {id(block): i for i, block in enumerate(model.blocks)}
        self.batches = []           # (ids, targets), each (B, T)
        self.ran, self.visited = [], []
        self.gradients = {}         # by the parameter's name, before clipping
        self.backward_line = None   # the line of source that started backward
        self._block_of = {}         # node -> block
        self._passed = set()        # nodes of ops that did nothing
        self._integers = []         # integer arrays of this forward pass so far

    def note(self, event: Event) -> None:
        """Record an op; watch_ops calls this."""
        if event.direction == "forward":
            if passes_on(event):                # as dropout does if nothing is dropped
                self._passed |= {out.node for out in event.outputs}
                return
            self._integers += [a for a in arrays_of(event) if isinstance(a, np.ndarray)
                               and a.dtype.kind in "iu" and a.ndim == 2]
            if not self.batches:
                self._note_forward(event)
            return
        if self._integers:          # the first are the model's ids, the last the loss's targets
            self.batches.append((self._integers[0], self._integers[-1]))
            self._integers = []
            self.backward_line = line_of(next(callers()))
        if len(self.batches) == 1 and event.node not in self._passed:
            self.visited.append(Visited(event.op, self._block_of.get(event.node),
                                        norm(event.inputs)))
        for node, part in event.outputs:
            if node in self.names:
                total = self.gradients.setdefault(self.names[node],
                                                  np.zeros(node.shape, node.dtype))
                if isinstance(part, Added):
                    part.add(total)
                else:
                    total += part

    def _note_forward(self, event):
        frames = list(takewhile(lambda frame: frame.f_code.co_filename != __file__, callers()))
        modules = [id(frame.f_locals.get("self")) for frame in frames]
        block = next((self.blocks[module] for module in modules if module in self.blocks), None)
        lines = [line_of(frame) for frame in reversed(frames)]
        given = ", ".join(self._described(array, block) for array in arrays_of(event))
        for out in event.outputs:
            self.ran.append(Ran(event.op, block, lines, given, self._described(out, block),
                                numbers(out.data)))
            self._block_of[out.node] = block

    def _described(self, array, block):
        name = self.names.get(getattr(array, "node", None), "").removeprefix(f"blocks.{block}.")
        shape = str(array.shape) if isinstance(array, (Tensor, np.ndarray)) else str(array)
        return f"{name} {shape}".strip().replace(" ", HARD)


def passes_on(event: Event) -> bool:
    """Whether an op has only passed on its input."""
    value = event.outputs[0].data
    return any(isinstance(x, Tensor) and x.data is value for x in event.inputs)


def show_batch(witness: Witness, tokenizer: CharTokenizer) -> None:
    """Show characters as ids, and the character that follows each of them."""
    stage("From the text to a batch", definition(data.random_batch))
    (ids, targets), n = witness.batches[0], len(witness.batches)
    B, T = ids.shape
    say(f"{B} sequences of {T} characters, from random places of the training text.  Each "
        f"character has a number, its id, from 0 to {tokenizer.vocab_size - 1}; the target at a "
        "position is the character that follows there."
        + (f"  The step has {n} such batches; this is the first." if n > 1 else ""))
    say(f"The first sequence: {tokenizer.decode(ids[0])!r}")
    rows = [["position", *map(str, range(T))], ["character", *map(repr, tokenizer.decode(ids[0]))],
            ["its id", *map(str, ids[0])], ["the target's", *map(str, targets[0])],
            ["target", *map(repr, tokenizer.decode(targets[0]))]]
    table([row[:1 + FIRST] + ["..."] * (T > FIRST) for row in rows])


def show_forward(witness: Witness, model: Transformer) -> None:
    """Show each op outside the blocks and in the first of them, and a line for each other block."""
    stage("Forward, op by op")
    (B, T), config = witness.batches[0][0].shape, model.config
    say(f"B = {B} sequences, T = {T} positions, C = {config.n_embd} channels, H = {config.n_head} "
        f"heads, V = {config.vocab_size} characters.  Below the lines of source that led to it, "
        "each op with the shapes that it was given and made, what it does, and the numbers made.")
    told, above, first = set(), [], None
    for block, ops in groupby(witness.ran, lambda ran: ran.block):
        ops = list(ops)
        names = [ran.op for ran in ops]
        if block and first:
            say(f"block {block}: " + (f"the same {len(ops)} ops" if names == first else
                                      ", ".join(names))
                + f" -> {ops[-1].made}\n| {ops[-1].numbers}", 1)
            continue
        first = names if block == 0 else first
        for ran in ops:
            for depth, line in enumerate(ran.lines):
                if above[:depth + 1] != ran.lines[:depth + 1]:
                    show_line(line, depth)
            above = ran.lines
            does = "" if ran.op in told else f"\n{meaning(ran.op)}"
            say(f"{ran.op}  {ran.given} -> {ran.made}{does}\n{ran.numbers}", len(above), "| ")
            told.add(ran.op)


def show_loss(loss: float, vocab_size: int, counted: dict[str, float]) -> None:
    """Show what the loss means, and what to compare it with."""
    stage("The loss")
    say(f"{loss:.4f} nats a character: what came next had, in the geometric mean, a probability of "
        f"{math.exp(-loss):.2%}.  To hold it against:")
    rows = [(math.log(vocab_size), f"a guess without a text, ln {vocab_size}"),
            (loss, "this model, on what it was shown  <--"),
            *((x, f"counted {name}, on the validation text") for name, x in counted.items())]
    for x, what in sorted(rows, key=lambda row: -row[0]):
        print(f"   {x:8.3f}  {what}")


def show_backward(witness: Witness, model: Transformer) -> None:
    """Show the order of backward's visits, and the norm of each parameter's gradient."""
    stage("Backward, the youngest op first", witness.backward_line)
    say("Gradients are shown by their norm: that with which backward comes to the first op of a "
        "line, and that which it leaves in a parameter"
        + (f", of the first of {len(witness.batches)} batches and of all of them."
           if len(witness.batches) > 1 else "."))
    print(f"   {'':16}{'its gradient':14}ops, in the order of the visits")
    for block, ops in groupby(witness.visited, lambda visited: visited.block):
        ops = list(ops)
        where = "outside blocks" if block is None else f"block {block}"
        print(textwrap.fill(", ".join(visited.op for visited in ops), WIDTH,
                            initial_indent=f"   {where:16}{ops[0].norm:<14.3g}",
                            subsequent_indent=" " * 33))
    print()
    norms = {name: norm([g]) for name, g in witness.gradients.items()}
    rows = [["parameter", "numbers", "its gradient"]]
    for name, parameters in grouped(model):
        rows.append([name, f"{sum(p.size for _, p in parameters):,}",
                     f"{math.hypot(*(norms.get(path, 0.0) for path, _ in parameters)):.4g}"])
    table(rows, "<>>")


def show_clipping(witness: Witness, grad_clip: float) -> None:
    """Show how a gradient that is too large is clipped."""
    stage("Clipping", definition(mg.clip_grad_norm_))
    total = norm(witness.gradients.values())
    if grad_clip and total > grad_clip:
        say(f"All gradients together have the norm {total:.4g}, and --grad_clip is {grad_clip:g}: "
            f"each is multiplied by {grad_clip / total:.4g}.")
    else:
        say(f"All gradients together have the norm {total:.4g}, and --grad_clip is {grad_clip:g}"
            + (": they stay as they are." if grad_clip else ", which clips nothing."))


def show_update(model: Transformer, optimizer: Optimizer, before: dict[str, np.ndarray],
                s: Any) -> None:
    """Show how far the weights moved."""
    lr = optimizer.param_groups[0]["lr"]
    for part in optimizer.parts:
        stage(f"The step of {type(part).__name__}", definition(part.step))
        show_rate(part, lr / s.learning_rate if s.learning_rate else 1.0,
                  warmup_linear if s.schedule == "linear" else warmup_cosine)
    rows = [["parameter", "weights, rms", "step, rms", "of the weights", "of the rate"]]
    for name, parameters in grouped(model):
        weights = rms([before[path] for path, _ in parameters])
        moved = rms([p.data - before[path] for path, p in parameters])
        rows.append([name, f"{weights:.4g}", f"{moved:.4g}",
                     f"{100 * moved / weights:.3g}%" if weights else "from 0",
                     f"{moved / lr:.3f}" if lr else "-"])
    table(rows, "<>>>>")


def show_rate(optimizer: Optimizer, share: float, schedule: Callable[..., float]) -> None:
    """Show what an optimiser does, its learning rate, its share of the highest, and what decays."""
    lr = optimizer.param_groups[0]["lr"]
    decays = " and ".join(f"{group['weight_decay']:g} on {sum(p.size for p in group['params']):,}"
                          for group in optimizer.param_groups if group["params"])
    say(f"{inspect.getdoc(optimizer).splitlines()[0]}  The learning rate is {lr:.4g}, "
        f"{share:.1%} of the highest ({definition(schedule).place}); weight decay is "
        f"{decays} numbers."
        + ("  At the first step a gradient's size cancels and its sign remains: every number that "
           "has a gradient moves by about the learning rate." if optimizer.steps == 1 else ""))


def show_loss_again(loss: float, model: Transformer, batches: list, rng: np.random.Generator
                    ) -> None:
    """Show the loss after the step on its own batches, with the same dropout from `rng`."""
    stage("The same characters again")
    with mg.no_grad():
        again = float(np.mean([mg.cross_entropy(model(ids, rng=rng), targets).item()
                               for ids, targets in batches]))
    say(f"The loss was {loss:.4f}; with the changed weights it is {again:.4f}, "
        f"{abs(again - loss):.4f} {'lower' if again < loss else 'higher'}.")


def grouped(model: Transformer) -> list[tuple[str, list[tuple[str, Tensor]]]]:
    """Return parameters with paths: each alone, but those of blocks after the first together."""
    def group(named):
        parts = named[0].split(".")
        return ".".join(parts[:2]) if parts[0] == "blocks" and parts[1] != "0" else named[0]
    return [(name, list(parameters))
            for name, parameters in groupby(model.named_parameters(), group)]


def stage(title: str, line: Line | None = None) -> None:
    """Print the head of a stage of the tour, and the place of its source."""
    print(f"\n{title}\n{'-' * len(title)}")
    if line:
        show_line(line, 0)


def show_line(line: Line, depth: int) -> None:
    """Print a line of source on the left, and its place on the right."""
    room = WIDTH - len(line.place) - 2
    text = "   " + "  " * depth + line.text
    print(f"{text if len(text) <= room else text[:room - 4] + ' ...':{room}}  {line.place}")


def say(text: str, depth: int = 0, mark: str = "") -> None:
    """Print paragraphs, with a mark before each of their lines."""
    for paragraph in text.split("\n"):
        filled = textwrap.fill(paragraph, WIDTH - 3 - 2 * depth - len(mark))
        print(textwrap.indent(filled.replace(HARD, " "), "   " + "  " * depth + mark))


def table(rows: list[list[str]], sides: str = "") -> None:
    """Print columns, each aligned left (<) or right (>)."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("   " + "  ".join(f"{cell:{side}{width}}" for cell, side, width in
                                zip(row, sides or "<" + ">" * len(row), widths)).rstrip())


def numbers(a: np.ndarray) -> str:
    """Summarise the numbers in an array."""
    return (f"{a:.6g}" if a.size == 1 else
            f"mean {a.mean():.3g}, std {a.std():.3g}, from {a.min():.3g} to {a.max():.3g}")


def norm(arrays: Iterable[np.ndarray]) -> float:
    """Return the square root of the sum of all squares."""
    return math.sqrt(sum(float(np.square(a, dtype=np.float64).sum()) for a in arrays))


def rms(arrays: list[np.ndarray]) -> float:
    """Return the square root of the mean of all squares."""
    return norm(arrays) / math.sqrt(sum(a.size for a in arrays))
