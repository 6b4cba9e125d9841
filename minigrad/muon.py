"""Muon: momentum, made orthogonal matrix by matrix before each step."""
import math
from collections.abc import Iterable

from minigrad import formulas
from minigrad.core import timed
from minigrad.optim import Optimizer, by_type


class Muon(Optimizer):
    """Momentum, orthogonalised:  m = momentum * m + g;  for U S V^T = g + momentum * m,
    p -= lr * (weight_decay * p + sqrt(max(1, rows / columns)) * U V^T).

    It is for matrices that multiply activations.  A step of a given length changes their outputs
    equally in every direction; without it, the largest directions of the gradient would dominate.
    Embeddings, norms and biases belong to AdamW.  `formulas.muon` approximates U V^T: its singular
    values lie between 0.7 and 1.2.  The state: `momentum`, one array for each parameter.

    Parameters
    ----------
    ns_steps : steps of the Newton-Schulz iteration, which makes matrices orthogonal.
    sections : a setting of a group: the numbers of rows into which each of its matrices is split.
        The parts, such as packed queries, keys and values, are stepped as separate matrices.  Else
        the part with the largest gradient would keep the others from moving, as U V^T of all of
        them has only as many directions as there are columns.

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks".
    """
    STATE = "momentum",

    def __init__(self, parameters: Iterable, lr: float = 0.02, momentum: float = 0.95,
                 weight_decay: float = 0.0, ns_steps: int = 5) -> None:
        super().__init__(parameters, dict(lr=lr, momentum=momentum, weight_decay=weight_decay,
                                          sections=None))
        self.ns_steps = ns_steps
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(f"Muon steps matrices, and this has the shape {list(p.shape)};"
                                     " give it to another optimiser")
                if sum(group["sections"] or p.shape[:1]) != len(p.data):
                    raise ValueError(f"sections of {group['sections']} rows are not those of a "
                                     f"matrix of the shape {list(p.shape)}")

    @timed("Muon")
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self.step_matrices([section for group, p, m in self._with_gradients()
                            for section in _sections(group, p, m)])

    def step_matrices(self, matrices: list[tuple]) -> None:
        """Update matrices in place, each given as (p, g, m, settings)."""
        for of_one_type in by_type(matrices):
            formulas.muon(*of_one_type, self.ns_steps)


def _sections(group, p, m):
    """Yield (p, g, m, settings) of each section of a parameter."""
    start, lr = 0, group["lr"]
    for rows in group["sections"] or p.shape[:1]:
        there = slice(start, start := start + rows)
        settings = (group["momentum"], 1 - lr * group["weight_decay"],
                    lr * math.sqrt(max(1, rows / max(1, p.shape[1]))))
        yield p.data[there], p.grad[there], m[there], settings
