"""What is kept of a training step, or of an evaluation, whose loss or gradient is not finite.

`model.replay` reads it, and finds the op that made it so.
"""
import math
from typing import Any, NamedTuple

import numpy as np

from model.sampling.scoring import evaluate
from model.transformer import Transformer


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
            sound = (type(case.step) is int and type(case.loss) is type(case.norm) is float
                     and (case.part == "training" and case.batches
                          or case.part == "validation" and len(case.batches) == 1)
                     and all(x.ndim == 2 and x.shape == y.shape for x, y in case.batches))
        except (KeyError, OverflowError, TypeError, ValueError):
            sound = False
        if not sound:
            raise ValueError("its parts are not those of a step")
        return case
