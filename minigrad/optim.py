"""Optimisers that update parameters in place, gradient clipping, and learning-rate schedules.

Their formulas are `adamw` and `muon` in `formulas.py`.
"""
import math
import operator
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np

from minigrad import changes, formulas
from minigrad.core import Tensor, brief, timed
from minigrad.gradients import Rows


class Optimizer:
    """The base of optimisers: parameters in groups with their own settings, as in PyTorch.

    Between steps, settings such as `param_groups[0]["lr"]` may be changed, and so may the groups:
    state belongs to a parameter, and follows it into another group.  A new parameter begins with
    zeros; one that is taken out keeps its state, and finds it again.
    A parameter's `.data` may be changed, too, to an array of its shape and type; one that no step
    can update in place is replaced by a dense copy.
    `parts` are the optimisers inside: those of `Optimizers`; of a single one, itself.

    Raises
    ------
    ValueError : a parameter is no leaf, is given twice or has another float type than the first; a
        setting is no finite number from 0 on; or, from `step`, a parameter's data, gradient or
        state has another shape or type than the parameter was made with.  Nothing is stepped then.
    """
    steps = 0           # the number taken, where the next step depends on it
    STATE = ()          # names of attributes, each a dict: parameter -> array, which is first 0

    def __init__(self, parameters, defaults):
        groups = list(parameters)
        self.parts = [self]
        if not groups:
            raise ValueError("there is no parameter to optimise")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        self.defaults = defaults
        self.param_groups = [group | {"params": [*parameters_of(group)]} for group in groups]
        self.missed = {}        # of each parameter, the steps while no group had it
        self._checked = []      # the parameters when they were last checked
        for kind in self.STATE:
            setattr(self, kind, {})
        self._pairs()

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Add a group of parameters, with settings of its own; the others are the defaults."""
        self.param_groups.append(group | {"params": [*parameters_of(group)]})
        try:
            self._pairs()
        except ValueError:
            self.param_groups.pop()
            raise

    def _pairs(self):
        """Return (group, parameter) of each parameter.  Where the parameters have changed, check
        all, and give new ones their state."""
        for group in self.param_groups:
            self._complete(group)
        pairs = [(group, p) for group in self.param_groups for p in group["params"]]
        parameters = [p for _, p in pairs]
        if not are_those(parameters, self._checked):
            check_parameters(parameters)
            for group, p in pairs:
                self._check(group, p)
            for p in parameters:
                self._begin(p)
            self._checked = parameters
        return pairs

    def _complete(self, group):
        """Give a group the settings that it lacks, and check all."""
        group["params"] = parameters_of(group)
        if not self.defaults.keys() <= group.keys():
            group |= self.defaults | group
        check_settings(group)

    def _check(self, group, p):
        """Raise a ValueError for a parameter that this optimiser cannot step."""

    def _begin(self, p):
        """Give a new parameter its state."""
        for kind in self.STATE:
            if p not in getattr(self, kind):
                getattr(self, kind)[p] = np.zeros_like(p.data)
                self.missed[p] = self.steps

    def _with_gradients(self):
        """Return (group, parameter, *arrays of its state) of each parameter that has a gradient.
        Its data, gradient and state have one shape and type, and can be updated in place."""
        found = []
        for i, (group, p) in enumerate(self._pairs()):
            if p.node.grad is None:
                continue
            p._data = dense(p, i, "data", p.data)
            state = []
            for kind in self.STATE:
                arrays = getattr(self, kind)
                arrays[p] = dense(p, i, kind, arrays[p])
                state.append(arrays[p])
            found.append((group, p, *state))
        how = f"by a step of {type(self).__name__}"
        for _, p, *_ in found:
            changes.note(p._data, "leaf", how)
        return found

    def state(self) -> Iterator[tuple[str, Tensor, np.ndarray]]:
        """Yield its state: (kind, parameter, array)."""
        self._pairs()
        for part in self.parts:
            pairs = part._pairs()
            for kind in part.STATE:
                for _, p in pairs:
                    yield kind, p, getattr(part, kind)[p]

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for _, p in self._pairs():
            p.grad = None


def parameters_of(group: dict[str, Any]) -> list[Tensor]:
    """Return the parameters of a group as a list, the group's own if it has one."""
    if not (isinstance(group, dict) and "params" in group):
        raise ValueError('a group is a dict with its parameters as "params", beside settings; this '
                         f"is a {type(group).__name__}")
    parameters = group["params"]
    if isinstance(parameters, list):
        return parameters
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def are_those(parameters: list[Tensor], others: list[Tensor]) -> bool:
    """Return whether these are the same parameters, in the same order."""
    return len(parameters) == len(others) and all(map(operator.is_, parameters, others))


def check_settings(group: dict[str, Any]) -> None:
    """Raise a ValueError unless the settings of a group are numbers of which a step can be made."""
    for name in ("lr", "momentum", "eps", "weight_decay"):
        value = group.get(name, 0)
        if not (isinstance(value, Real) and 0 <= value < math.inf):
            raise ValueError(f"{name} is a finite number of at least 0, not {value!r}")
    betas = group.get("betas", (0, 0))
    if not (isinstance(betas, (tuple, list)) and len(betas) == 2
            and all(isinstance(beta, Real) and 0 <= beta < 1 for beta in betas)):
        raise ValueError(f"betas are two numbers of at least 0 and below 1, not {betas!r}")


def check_parameters(parameters: list[Tensor]) -> None:
    """Raise a ValueError unless these are different leaves of one float type; make their data
    dense, so that a step can update it."""
    for i, p in enumerate(parameters):
        if not isinstance(p, Tensor) or p.node is None or p.node.op != "leaf":
            raise ValueError("a parameter is a Tensor that was made with requires_grad=True; "
                             f"parameter {i} is {brief(p)}")
    check_once(parameters)
    for i, p in enumerate(parameters):
        if p.node.dtype != parameters[0].node.dtype:
            raise ValueError("an optimiser steps parameters of one float type; parameter 0 is "
                             f"{parameters[0].node.dtype}, and parameter {i} {p.node.dtype}; "
                             "make an optimiser for each type")
        p._data = dense(p, i, "data", p.data)


def check_once(parameters: list[Tensor]) -> None:
    """Raise a ValueError if one of these is given twice."""
    places = {}             # of their nodes
    for i, p in enumerate(parameters):
        if p.node in places:
            raise ValueError(f"parameter {i} is parameter {places[p.node]} again, and would be "
                             "stepped twice; give each once")
        places[p.node] = i


def dense(p: Tensor, i: int, kind: str, array: np.ndarray) -> np.ndarray:
    """Return an array of parameter i, or a copy that a step can update.  Raise a ValueError unless
    it has the shape and type that p was made with, as its gradients have."""
    shape = p.node.shape
    dtype = p.node.dtype
    if not array.flags.carray:
        array = np.require(array, requirements="CAW")
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"parameter {i} was made as {dtype}{list(shape)}, and its {kind} is "
                         f"{array.dtype}{list(array.shape)}; give it that shape and type again, as "
                         f"with array.astype(np.{dtype}), or make a new Tensor and a new optimiser")
    return array


class SGD(Optimizer):
    """Stochastic gradient descent:  b = momentum * b + g + weight_decay * p;  p -= lr * b."""
    STATE = "momentum_buffers",

    def __init__(self, parameters: Iterable, lr: float = 1e-3, momentum: float = 0.0,
                 weight_decay: float = 0.0) -> None:
        super().__init__(parameters, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @timed("SGD")
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        for group, p, b in self._with_gradients():
            b *= group["momentum"]
            b += p.grad + group["weight_decay"] * p.data
            data = p.data
            data -= group["lr"] * b


class AdamW(Optimizer):
    """Adam with decoupled weight decay  (Loshchilov & Hutter 2019, algorithm 2).

    The state: `m` and `v`, the running means of gradient and squared gradient, one array for each
    parameter; and `steps`, which are counted for all parameters together, without those `missed`
    while no group had the parameter.  PyTorch counts the steps of each: there, a parameter whose
    first gradient comes late takes larger steps at first.
    """
    STATE = "m", "v"

    def __init__(self, parameters: Iterable, lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2) -> None:
        super().__init__(parameters, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @timed("AdamW")
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        with_gradients = self._with_gradients()
        if with_gradients:
            self.steps += 1
            for p in self.missed.keys() - self._checked:
                self.missed[p] += 1
            formulas.adamw_of_each([(p.data, p.node.grad, m, v, self._settings(group, p))
                                    for group, p, m, v in with_gradients])

    def _settings(self, group, p):
        beta1, beta2 = group["betas"]
        return dict(
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            steps=self.steps - self.missed[p])


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
        if not (isinstance(ns_steps, Integral) and ns_steps >= 1):
            raise ValueError(f"ns_steps is a whole number of at least 1, not {ns_steps!r}")
        self.ns_steps = ns_steps

    def _check(self, group, p):
        if p.ndim != 2:
            raise ValueError(f"Muon steps matrices, and this has the shape {list(p.shape)}; give "
                             "it to another optimiser")
        check_sections(group, p)

    @timed("Muon")
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self.step_matrices([section for group, p, m in self._with_gradients()
                            for section in self._sections(group, p, m)])

    def step_matrices(self, matrices: list[tuple]) -> None:
        """Update matrices in place, each given as (p, g, m, settings)."""
        if matrices:
            formulas.muon_of_each(matrices)

    def _sections(self, group, p, m):
        """Yield (p, g, m, settings) of each section of a parameter."""
        check_sections(group, p)        # a schedule may have changed them
        settings = dict(
            lr=float(group["lr"]),
            momentum=float(group["momentum"]),
            weight_decay=float(group["weight_decay"]),
            ns_steps=self.ns_steps)
        end = 0
        for outputs in group["sections"] or p.shape[:1]:
            there = slice(end, end + outputs)
            end += outputs
            yield p.data[there], p.grad[there], m[there], settings


def check_sections(group: dict[str, Any], p: Tensor) -> None:
    """Raise a ValueError unless the sections of a group are the rows of its parameter."""
    if group["sections"] and sum(group["sections"]) != len(p.data):
        raise ValueError(f"sections of {group['sections']} rows are not those of a matrix of the "
                         f"shape {list(p.shape)}")


class Optimizers(Optimizer):
    """Several optimisers of different parameters that step as one.

    A group that is taken out of `param_groups`, or out of those of its part, is stepped no more.  A
    new one is given to a part: `optimizers.parts[0].add_param_group(group)`.
    """

    def __init__(self, parts: Iterable[Optimizer]) -> None:
        self.parts = list(parts)
        self.param_groups = []
        self._joined = []       # the groups when they were last compared with those of the parts
        self._checked = []
        self._pairs()

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Raise a ValueError: it is not known which optimiser is to step the group."""
        raise ValueError("a group is stepped by one of the optimisers: give it to that, as in "
                         "optimizers.parts[0].add_param_group(group)")

    def _pairs(self):
        joined = {id(group) for group in self._joined}
        ours = {id(group) for group in self.param_groups}
        for part in self.parts:
            part.param_groups[:] = [group for group in part.param_groups
                                    if id(group) in ours or id(group) not in joined]
        theirs = {id(group): group for part in self.parts for group in part.param_groups}
        for group in self.param_groups:
            if id(group) not in joined | theirs.keys():
                self.add_param_group(group)
        self.param_groups[:] = [group for group in self.param_groups if id(group) in theirs]
        self.param_groups += [group for key, group in theirs.items() if key not in ours]
        self._joined = list(self.param_groups)
        pairs = [pair for part in self.parts for pair in part._pairs()]
        parameters = [p for _, p in pairs]
        if not are_those(parameters, self._checked):
            check_once(parameters)
            self._checked = parameters
        return pairs

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self._pairs()
        for part in self.parts:
            part.step()


@timed("clipping")
def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients so that their common L2 norm is at most `max_norm`; return the norm
    before.  If that is not finite, the gradients stay as they are.  A parameter that is given twice
    counts once; a single one needs no list."""
    if not (isinstance(max_norm, Real) and max_norm >= 0):
        raise ValueError(f"max_norm is a number of at least 0, not {max_norm!r}")
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    gradients = {p.node: p.node.grad for p in parameters
                 if p.node and p.node.grad is not None}.values()
    norm = math.sqrt(formulas.sum_of_squares(gradients))
    if max_norm < norm < math.inf:
        for g in gradients:
            values = g.values if isinstance(g, Rows) else g
            changes.note(values, "gradient", "by clip_grad_norm_")
            values *= max_norm / norm
    return norm


# Learning-rate schedules.  Each returns a share of the highest rate, from 0 to 1.

def warm_up(iteration: int, warmup_iters: int) -> float:
    """Return the share in an iteration: it rises by equal parts, and is 1 from `warmup_iters` on.

    Source: nanoGPT, train.py.
    """
    return min(1.0, (iteration + 1) / (warmup_iters + 1))


def cosine(progress: float, warmup: float = 0.0) -> float:
    """Return the share after `progress` of a run, from 0 to 1: half a cosine from 1, at the end of
    the warm-up, which is a share of the run as well, down to 0.

    Source: Loshchilov & Hutter 2017, "SGDR", equation 5.
    """
    if progress >= 1:
        return 0.0
    if progress <= warmup:
        return 1.0
    return (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup))) / 2


def linear_decay(progress: float, decay_share: float = 1.0) -> float:
    """Return the share after `progress` of a run, from 0 to 1: 1, and over the last `decay_share`
    of the run a line down to 0.

    Source: Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
    Durations", section 3 (a trapezoid).
    """
    return min(1.0, max(0.0, 1 - progress) / decay_share)
