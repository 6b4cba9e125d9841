"""What the losses of runs show, in a sentence: which counted n-grams a model beats, and when; and
the tables and sentences that stand beside their chart."""
from collections.abc import Sequence

import numpy as np

from data import Text
from minigrad.words import number_of
from model.look.shell import table
from model.scoring import yardstick

WORSE = 0.02        # nats above the lowest loss from which a run is said to get worse

# Of log.csv; the last column is there if a run may skip steps.
COLUMNS = ("step", "training loss (nats)", "validation loss (nats)", "learning rate",
           "{unit}s a second", "seconds", "steps skipped")

Log = Sequence[Sequence[float | None]]      # the lines of a log.csv


def describe_finding(log: Log, counted: dict[str, float] | None, unit: str = "character") -> str:
    """Return what the validation losses of a log show, beside those of counted n-grams if these are
    known; "" if there was no evaluation."""
    if not log:
        return ""
    losses = {int(line[0]): line[2] for line in log}
    last, *_ = reversed(losses)
    if len(losses) == 1:
        return f"One evaluation so far: the validation loss at step {last:,} is {losses[last]:.3f}."
    if not counted:
        return _describe_fall(losses, last)
    crossings = _crossings(losses, counted)
    if not crossings:
        return (f"After {number_of(last, 'step')}, counting {unit}s still predicts the text better "
                f"({max(counted.values()):.3f}) than the model ({losses[last]:.3f}).")
    first, *more = [*crossings.items()][-2:]
    words = f"{_after(first[0])} it beats {first[1]}s"
    for step, name in more:
        words += f", after {step:,} {name}s"
    return f"{words[0].upper()}{words[1:]}; {_describe_end(losses, last, counted)}."


def counted_losses(text: Text) -> list[tuple[str, float]]:
    """Return the losses of n-grams, by their names, counted on one part of a text and measured on
    the other."""
    losses = yardstick(text.train, text.val, text.tokenizer.vocab_size)
    return [(name, round(loss, 3)) for name, loss in losses.items()]


def describe_counts(counted: object, no_counts: str) -> str:
    """Return what the dotted lines of a chart are, or why there are none."""
    if counted is None:
        return f"There are no counted n-grams beside it, because {no_counts}."
    return ("The dotted lines are what n-grams reach, counted on the training part and measured on "
            "the validation part.")


def log_table(log: Log, unit: str) -> str:
    """Return the log of a run as a table in HTML."""
    columns = [name.format(unit=unit) for name in COLUMNS]
    lines = [[loss_cell(x) if column in (1, 2) else number_cell(x) for column, x in enumerate(line)]
             for line in log]
    return table(columns[:len(lines[0])] if lines else [], lines)


def loss_cell(loss: float | None) -> str:
    """Return a loss as it stands in a table."""
    return "–" if loss is None else f"{loss:.3f}"


def number_cell(number: float) -> str:
    """Return a number in three digits, or a large one in all."""
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return np.format_float_positional(float(f"{number:.3g}"), trim="-")


def _crossings(losses, counted):
    """Return the steps after which the model was first below a counted n-gram, in their order, each
    with the best n-gram of those that it was below there."""
    crossings = {}
    for name in sorted(counted, key=counted.get, reverse=True):
        below = [step for step, loss in losses.items() if loss < counted[name]]
        if below:
            crossings[below[0]] = name
    return crossings


def _describe_end(losses, last, counted):
    """Return how a run ends, or how far it is."""
    best = min(losses, key=losses.get)
    if losses[last] > losses[best] + WORSE:
        return f"since step {best:,} it gets worse, from {losses[best]:.3f} to {losses[last]:.3f}"
    ahead = [name for name in counted if counted[name] <= losses[best]]
    if ahead:
        nearest = max(ahead, key=counted.get)
        return (f"{nearest}s are {losses[last] - counted[nearest]:.3f} nats ahead of it at step "
                f"{last:,}")
    return f"at step {last:,} its loss is {losses[last]:.3f}"


def _describe_fall(losses, last):
    first = next(iter(losses.values()))
    if f"{first:.3f}" == f"{losses[last]:.3f}":
        return f"In {number_of(last, 'step')} the validation loss stays at {first:.3f}."
    verb = "falls" if losses[last] < first else "rises"
    return (f"In {number_of(last, 'step')} the validation loss {verb} from {first:.3f} to "
            f"{losses[last]:.3f}.")


def _after(step):
    return f"after {number_of(step, 'step')}" if step else "before any step"


def describe_comparison(runs: dict[str, Log]) -> str:
    """Return which of several runs, by name, has the lowest validation loss, and by how much."""
    lowest = {name: min(line[2] for line in log) for name, log in runs.items()}
    names = sorted(lowest, key=lowest.get)
    best, *others = names
    if all(f"{lowest[name]:.3f}" == f"{lowest[best]:.3f}" for name in others):
        return f"All of them reach the same loss, {lowest[best]:.3f}."
    rest = ", ".join(f"{name} {lowest[name]:.3f}" for name in others)
    return f"{best} has the lowest loss, {lowest[best]:.3f}; {rest}.{_describe_same_step(runs)}"


def _describe_same_step(runs):
    """Return the losses at the last step at which all were evaluated, if some went on after it."""
    losses = {name: {int(line[0]): line[2] for line in log} for name, log in runs.items()}
    common = set.intersection(*map(set, losses.values()))
    last = {max(each) for each in losses.values()}
    if not common or max(common) == 0 or last == {max(common)}:
        return ""
    step = max(common)
    at_step = ", ".join(f"{name} {each[step]:.3f}" for name, each in losses.items())
    return f"  At step {step:,}, where all were evaluated: {at_step}."
