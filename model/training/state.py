"""All that changes during a run but weights and optimiser: counts, losses, random generators."""
import math
import statistics

from minigrad.random import generator

RECENT = 100        # steps whose losses define the usual one
QUIET = 20          # a spike is reported only after this many steps without one
DEVIATIONS = 8.0    # a spike lies this many above the median of the usual losses
AT_LEAST = 0.3      # and above it by this share of the median
EXACT = 1 << 53     # integers below it are exact in float64


class State:
    """Everything that changes during a run, except weights and optimiser."""

    def __init__(self, seed: int) -> None:
        self.batches, self.dropout = generator(seed, "batches"), generator(seed, "dropout")
        self.iteration = 0          # optimiser steps done
        self.evaluated = -1         # the iteration of the last evaluation
        self.best = math.inf        # lowest validation loss, nats per character
        self.seconds = 0.0          # spent in steps
        self.evaluated_at = 0.0     # self.seconds at the last evaluation
        self.losses = []            # of the steps since then
        self.recent = []            # losses of the last steps, RECENT at most
        self.spiked = -QUIET        # the iteration of the last spike
        self.skipped = 0            # steps not taken, because their gradient was not finite
        self.skipped_in_row = 0     # the last steps that were skipped without a break

    def note_step(self, loss: float, seconds: float) -> None:
        """Count a step, with its training loss and its time."""
        self.iteration += 1
        self.losses.append(loss)
        self.recent = [*self.recent[1 - RECENT:], loss]
        self.seconds += seconds
        self.skipped_in_row = 0

    def note_skip(self, seconds: float) -> None:
        """Count a step that changed nothing."""
        self.iteration += 1
        self.seconds += seconds
        self.skipped += 1
        self.skipped_in_row += 1

    def spike(self, loss: float) -> float | None:
        """Return the usual loss if the next step's is far above it, without a recent spike; else
        None.

        Far above is DEVIATIONS standard deviations over the median of the RECENT losses, estimated
        from their median absolute deviation, and at least AT_LEAST of the median.  Nothing is
        reported before half of the RECENT losses are in.
        """
        if len(self.recent) < RECENT // 2:
            return None
        usual = statistics.median(self.recent)
        deviation = 1.4826 * statistics.median(abs(x - usual) for x in self.recent)     # normal's
        if loss <= usual + max(DEVIATIONS * deviation, AT_LEAST * usual):
            return None
        before, self.spiked = self.spiked, self.iteration
        return usual if self.iteration - before >= QUIET else None

    def note_evaluation(self, val_loss: float) -> bool:
        """Count an evaluation; return whether it is the best so far."""
        self.evaluated, self.evaluated_at, self.losses = self.iteration, self.seconds, []
        improved = val_loss < self.best
        self.best = min(self.best, val_loss)
        return improved

    def since_evaluation(self, tokens: int) -> tuple[float | None, float]:
        """Return the mean training loss (None before any step) and characters per second since the
        last evaluation, for steps of `tokens` characters."""
        if not self.losses:
            return None, 0.0
        mean = sum(self.losses) / len(self.losses)
        seconds = self.seconds - self.evaluated_at
        return mean, len(self.losses) * tokens / seconds if seconds else 0.0

    def saved(self) -> dict:
        """Return the state exactly, as JSON can hold it."""
        return vars(self) | {name: getattr(self, name).bit_generator.state
                             for name in ("batches", "dropout")}

    def restore(self, saved: dict) -> None:
        """Restore what `saved` returned.

        Raises
        ------
        ValueError : the data is not of that form.
        """
        for name, value in saved.items():
            try:
                if name in ("batches", "dropout"):
                    getattr(self, name).bit_generator.state = value
                elif _is_like(vars(self)[name], value):
                    setattr(self, name, value)
                else:
                    raise ValueError
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                raise ValueError(f"no run can go on from {name[:20]!r} in the state that was kept; "
                                 "train anew into another --out_dir") from error
        if not 0 <= self.skipped <= self.iteration:
            raise ValueError(f"no run can go on after {self.iteration} steps, {self.skipped} of "
                             "them skipped; train anew into another --out_dir")


def _is_like(now, value):
    """Whether a value from JSON has the type of `now`, a number or a list of numbers."""
    if isinstance(now, list):
        return isinstance(value, list) and all(_is_like(0.0, x) for x in value)
    if type(value) is int:
        return abs(value) < EXACT
    return type(value) is type(now) is float and not math.isnan(value)
