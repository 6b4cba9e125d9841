"""Explain one training step, from the text to the changed weights: python train.py --explain

The step is the run's own.  It is watched while it runs, so every number, shape and line of source
shown here is the one that trains.
"""
import copy
import inspect
import math
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby, takewhile
from typing import NamedTuple

import numpy as np

import data
import minigrad as mg
from minigrad.core import Tensor
from minigrad.watch.events import Watcher, arguments, gradients, owner, passes_on
from minigrad.watch.source import Line, callers, definition, line_of, meaning
from minigrad.watch.text import aligned, norm, rms
from model.run import Run, Step
from model.scoring import ladder
from model.transformer import Transformer

WIDTH = 98          # of the text, in characters
FIRST = 12          # positions of the first sequence that are shown with their ids
HARD = "\xa0"       # a space at which no line is broken


def explain(run: Run, steps: Iterator[Step], counted: dict[str, float]) -> None:
    """Take the next of a run's steps, and print it stage by stage, beside the losses of counted
    n-grams, by name.

    Raises
    ------
    ValueError : its loss or gradient is not finite.
    """
    s, model, witness = run.settings, run.model, Witness(run.model)
    before = {name: p.data.copy() for name, p in model.named_parameters()}
    same_dropout = copy.deepcopy(run.state.dropout)
    with witness:
        step = next(steps)
    if not step.taken:
        raise ValueError(f"the loss of step {step.number:,} is {step.loss}, and the norm of its "
                         f"gradient {step.norm}, so the step is not taken; without --explain, "
                         "train.py names the op that made it so")
    of = ("" if s.steps == math.inf else f" of {s.steps:,}" if step.number <= s.steps else
          f", after the end of a run of {s.steps:,}")
    print(f"Step {step.number:,}{of}, from the text to the changed weights.  Nothing is saved.")
    _show_batch(run, step)
    _show_forward(run, witness, *step.batches[0][0].shape)
    if not before.get("blocks.0.mlp.down.weight", np.ones(1)).any():       # an adapter has none
        _say("The last matrix of attention and that of the MLP begin as 0 (--zero_init).  So a "
             "block adds nothing yet, and no gradient comes through them to the weights before.")
    _show_loss(run, step, counted)
    _show_backward(witness, model, len(step.batches))
    _show_clipping(s.grad_clip, norm(witness.gradients.values()))
    _show_update(run, before)
    _show_loss_again(run, step, same_dropout)


class Ran(NamedTuple):
    """An op that ran forward."""
    op: str
    block: int | None       # the model's block in which it ran; None outside of them
    lines: list[Line]       # of source that led to it, the outermost first
    arguments: str              # the arguments' shapes, and the names of those that are parameters
    value: str               # the value's shape
    numbers: str            # what is in it


class Witness(Watcher):
    """Keeps the ops of a step's first batch, and the gradients of all its batches."""

    def __init__(self, model: Transformer) -> None:
        self.names = {p.node: name for name, p in model.named_parameters()}
        self.blocks = {id(block): i for i, block in enumerate(model.blocks)}
        self.ran = []
        self.visited = []           # by backward: (block, op, norm of the gradient that arrived)
        self.gradients = defaultdict(float)     # by the parameter's name, before clipping
        self.backward_line = None   # the line of source that started backward
        self._blocks = {}         # node -> block, for each op in `ran`

    def _note_forward(self, event):
        if self.backward_line or passes_on(event):
            return
        frames = list(takewhile(lambda frame: frame.f_code.co_filename != __file__, callers()))
        block = owner(self.blocks, frames)
        value = event.outputs[0]
        self.ran.append(Ran(
            event.op, block, [line_of(frame) for frame in reversed(frames)],
            ", ".join(self._describe(x, block) for _, x in arguments(event)),
            self._describe(value, block), _spread(value.data)))
        self._blocks |= {out.node: block for out in event.outputs}

    def _note_backward(self, event):
        self.backward_line = self.backward_line or line_of(next(callers()))
        if event.node in self._blocks:
            self.visited.append((self._blocks[event.node], event.op, norm(event.inputs)))
        for node, part in gradients(event):
            if name := self.names.get(node):
                self.gradients[name] += part

    def _describe(self, x, block):
        name = self.names.get(getattr(x, "node", None), "").removeprefix(f"blocks.{block}.")
        shape = str(getattr(x, "shape", x))     # of a number, itself
        return f"{name} {shape}".strip().replace(" ", HARD)


def _show_batch(run, step):
    """Show characters or tokens as ids, and the one that follows each of them."""
    is_random, tokenizer = run.settings.windows == "random", run.text.tokenizer
    _stage("From the text to a batch",
           definition(data.random_batch if is_random else data.Shuffled.batch))
    (ids, targets), n, unit = step.batches[0], len(step.batches), tokenizer.unit
    B, T = ids.shape
    _say(f"{B} sequences of {T} {unit}s, from the training text.  Each {unit} has "
         f"a number, its id, from 0 to {tokenizer.vocab_size - 1}; the target at a position is the "
         f"{unit} that follows there."
         + (f"  The step has {n} such batches; this is the first." if n > 1 else ""))
    _say(f"The first sequence: {tokenizer.decode(ids[0])!r}")

    def named(ids):
        return [repr(tokenizer.vocabulary[i]) for i in ids]
    rows = {"position": np.arange(T), unit: named(ids[0]), "its id": ids[0],
            "the target's": targets[0], "target": named(targets[0])}
    more = ["..."] if T > FIRST else []
    _table([[name, *map(str, row[:FIRST]), *more] for name, row in rows.items()],
           "<" + ">" * (FIRST + 1))


def _show_forward(run, witness, B, T):
    """Show each op outside the blocks and in the first of them, and a line for each other block."""
    config = run.model.config
    _stage("Forward, op by op")
    _say(f"B = {B} sequences, T = {T} positions, C = {config.n_embd} channels, H = {config.n_head} "
         f"heads, V = {config.vocab_size} {run.text.tokenizer.unit}s.  Each op is below the lines "
         "of source that led to it, with the shapes of its arguments and its value, what it does, "
         "and its numbers.")
    explained, above, first_names = set(), [], []
    for block, ops in groupby(witness.ran, lambda ran: ran.block):
        ops = list(ops)
        names = [ran.op for ran in ops]
        if block:
            same = f"the same {len(ops)} ops" if names == first_names else ", ".join(names)
            _say(f"block {block}: {same} -> {ops[-1].value}\n| {ops[-1].numbers}", 1)
            continue
        first_names = names
        for ran in ops:
            for depth, line in enumerate(ran.lines):
                if above[:depth + 1] != ran.lines[:depth + 1]:
                    _show_line(line, depth)
            above = ran.lines
            does = "" if ran.op in explained else f"\n{meaning(ran.op)}"
            explained.add(ran.op)
            _say(f"{ran.op}  {ran.arguments} -> {ran.value}{does}\n{ran.numbers}", len(above), "| ")


def _show_loss(run, step, counted):
    """Show what the loss means, and what to compare it with."""
    tokenizer = run.text.tokenizer
    _stage("The loss")
    _say(f"{step.loss:.4f} nats a {tokenizer.unit}: what came next had a probability of "
         f"{math.exp(-step.loss):.2%}, in the geometric mean.  A blind guess has a loss of "
         f"ln {tokenizer.vocab_size} = {math.log(tokenizer.vocab_size):.3f}; counted n-grams, on "
         "the validation text:")
    print(ladder(step.loss, counted))


def _show_backward(witness, model, batches):
    """Show the order of backward's visits, and the norm of each parameter's gradient."""
    _stage("Backward, the youngest op first", witness.backward_line)
    _say("The norms of gradients: of the one with which backward comes to the first op of a line, "
         "and of the one that it leaves in a parameter"
         + (f"; of the first of {batches} batches, and of all of them." if batches > 1 else "."))
    print(f"   {'':16}{'its gradient':14}ops, in the order of the visits")
    for block, ops in groupby(witness.visited, lambda visited: visited[0]):
        _, names, norms = zip(*ops)
        where = "outside blocks" if block is None else f"block {block}"
        print(textwrap.fill(", ".join(names), WIDTH, subsequent_indent=" " * 33,
                            initial_indent=f"   {where:16}{norms[0]:<14.3g}"))
    print()
    rows = [["parameter", "numbers", "its gradient"]]
    for name, parameters in grouped(model):
        arrays = [witness.gradients[path] for path, _ in parameters]
        rows.append([name, f"{sum(p.size for _, p in parameters):,}", f"{norm(arrays):.4g}"])
    _table(rows, "<>>")


def _show_clipping(most, total):
    """Show how gradients of a total norm are clipped."""
    if not most:
        does = ", which clips nothing"
    elif total <= most:
        does = ": they stay as they are"
    else:
        does = f": each is multiplied by {most / total:.4g}"
    _stage("Clipping", definition(mg.clip_grad_norm_))
    _say(f"All gradients together have the norm {total:.4g}, and --grad_clip is {most:g}{does}.")


def _show_update(run, before):
    """Show what each optimiser does, its learning rate and weight decay, and how far the weights
    moved."""
    highest = run.settings.learning_rate
    share = run.optimizer.param_groups[0]["lr"] / highest if highest else 1.0
    rates = {p: group["lr"] for group in run.optimizer.param_groups for p in group["params"]}
    for part in run.optimizer.parts:
        name = type(part).__name__
        _stage(f"The step of {name}", definition(part.step))
        decays = " and ".join(f"{group['weight_decay']:g} on {sum(p.size for p in ps):,}"
                              for group in part.param_groups if (ps := group["params"]))
        does = (inspect.getdoc(part) or f"{name}.").split("\n\n")[0]
        _say(f"{does}  The learning rate is "
             f"{part.param_groups[0]['lr']:.4g}, {share:.1%} of the highest "
             f"({definition(run.multiplier).place}); weight decay is {decays} numbers."
             + ("  At the first step a gradient's size cancels and its sign remains: every number "
                "that has a gradient moves by about the learning rate." if part.steps == 1 else ""))
    rows = [["parameter", "weights, rms", "step, rms", "of the weights", "of the rate"]]
    for name, parameters in grouped(run.model):
        weights = rms([before[path] for path, _ in parameters])
        moved = rms([p.data - before[path] for path, p in parameters])
        lr = rates[parameters[0][1]]
        rows.append([name, f"{weights:.4g}", f"{moved:.4g}",
                     f"{100 * moved / weights:.3g}%" if weights else "from 0",
                     f"{moved / lr:.3f}" if lr else "-"])
    _table(rows, "<>>>>")


def _show_loss_again(run, step, rng):
    """Show the loss after the step on its own batches, with the same dropout from `rng`."""
    _stage(f"The same {run.text.tokenizer.unit}s again")
    with mg.no_grad():
        losses = [mg.cross_entropy(run.model(ids, rng), targets).item()
                  for ids, targets in step.batches]
    loss = float(np.mean(losses))
    change = "the same"
    if loss != step.loss:
        side = "lower" if loss < step.loss else "higher"
        change = f"{loss:.4f}, {abs(loss - step.loss):.4f} {side}"
    _say(f"The loss was {step.loss:.4f}; with the changed weights it is {change}.")


def grouped(model: Transformer) -> list[tuple[str, list[tuple[str, Tensor]]]]:
    """Return parameters with paths: each alone, but those of blocks after the first together."""
    groups = {}
    for name, p in model.named_parameters():
        group = re.match(r"blocks\.[1-9]\d*|.*", name)[0]
        groups.setdefault(group, []).append((name, p))
    return list(groups.items())


def _stage(title, line=None):
    """Print the head of a stage, and the place of its source."""
    print(f"\n{title}\n{'-' * len(title)}")
    if line:
        _show_line(line, 0)


def _show_line(line, depth):
    """Print a line of source on the left, and its place on the right."""
    room = WIDTH - len(line.place) - 2
    text = textwrap.fill(line.text, room, max_lines=1, placeholder=" ...",
                         initial_indent="   " + "  " * depth)
    print(f"{text:{room}}  {line.place}")


def _say(text, depth=0, mark=""):
    """Print paragraphs, with a mark before each of their lines."""
    margin = "   " + "  " * depth + mark
    for paragraph in text.split("\n"):
        print(textwrap.fill(paragraph, WIDTH, initial_indent=margin,
                            subsequent_indent=margin).replace(HARD, " "))


def _table(rows, sides):
    """Print columns, each aligned left (<) or right (>)."""
    print(textwrap.indent("\n".join(aligned(rows, sides)), "   "))


def _spread(a):
    """Summarise the numbers in an array."""
    return (f"{a.item():.6g}" if a.size == 1 else
            f"mean {a.mean():.3g}, std {a.std():.3g}, from {a.min():.3g} to {a.max():.3g}")
