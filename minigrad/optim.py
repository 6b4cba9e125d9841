"""Optimisers that update parameters in place, gradient clipping, and learning-rate schedules.

Their formulas are `adamw` and `muon` in `formulas.py`.
"""
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from numbers import Integral, Real
from typing import Any, NoReturn
from weakref import ref

import numpy as np

from minigrad import changes, formulas, habits
from minigrad.core import Tensor, brief, timed
from minigrad.gradients import is_held_elsewhere, kept_numbers
from minigrad.words import first_of, number_of

NUMBER = float, int, Real       # the usual ones first, as to ask of Real takes long
# Whether a step can update an array in place; its shape and type.
LAYOUT = operator.attrgetter("flags.carray", "shape", "dtype")
WRITABLE = operator.attrgetter("flags.carray")
KEPT = 64       # lists of arrays of which something is known, before all are forgotten


def __getattr__(name: str) -> NoReturn:
    raise habits.missing("minigrad.optim", name, habits.OF_NAMESPACE)


class Optimizer:
    """The base of optimisers: parameters in groups with their own settings, as in PyTorch.

    Between steps, settings such as `param_groups[0]["lr"]` may be changed, and so may the groups:
    state belongs to a parameter, and follows it into another group.  A new parameter begins with
    zeros; one that is taken out keeps its state, and finds it again.
    A parameter's `.data` may be changed, too, to an array of its shape and type; one that no step
    can update in place is replaced by a dense copy.
    A parameter that is frozen, by p.requires_grad = False, stays as it is, also where there is
    weight decay, until it is True again.
    Where parameters are given with their names, as in AdamW(model.named_parameters()), a state that
    is loaded finds them by name, else by their order.
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
        self.names = {}         # of parameters, as far as they are given
        self.param_groups = [group | {"params": self._named(group)} for group in groups]
        self.missed = {}        # of each parameter, the steps while no group had it
        self._checked = []      # the parameters when they were last checked
        for kind in self.STATE:
            setattr(self, kind, {})
        self._pairs()

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Add a group of parameters, with settings of its own; the others are the defaults."""
        self.param_groups.append(group | {"params": self._named(group)})
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
        pairs = [
            (group, p)
            for group in self.param_groups
            for p in group["params"]]
        parameters = [p for _, p in pairs]
        if not are_those(parameters, self._checked):
            check_parameters(parameters)
            for group, p in pairs:
                self._check(group, p)
            for p in parameters:
                if p.node is not None:
                    self._begin(p)
            self._checked = parameters
        return pairs

    def _complete(self, group):
        """Give a group the settings that it lacks, and check all."""
        group["params"] = parameters_of(group)
        for name, value in self.defaults.items():
            group.setdefault(name, value)
        check_settings(group)

    def _check(self, group, p):
        """Raise a ValueError for a parameter that this optimiser cannot step."""

    def _begin(self, p):
        """Give a parameter its state, if it is new."""
        if p not in self.missed:
            self.missed[p] = self.steps
            for kind in self.STATE:
                getattr(self, kind)[p] = np.zeros_like(p.data)

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self._step(self._with_gradients(self._pairs()))

    def _step(self, with_gradients):
        """Take a step, if `_with_gradients` has returned a parameter."""
        if with_gradients:
            data = [each[1]._data for each in with_gradients]
            changes.note_all(data, "leaf", f"by a step of {type(self).__name__}")
            self.update(with_gradients)

    def update(self, with_gradients: list[tuple]) -> None:
        """Update the data of parameters in place, each given as (group, parameter, *arrays of its
        state).  Its data, gradient and state have one shape and type, and all but the gradient can
        be written into."""
        raise NotImplementedError(f"{type(self).__name__} has no update")

    def _with_gradients(self, pairs):
        """Return what `update` takes, of those (group, parameter) that have a gradient."""
        stepped = [
            (group, p)
            for group, p in pairs
            if p.node is not None and p.node.grad is not None]
        groups = [group for group, _ in stepped]
        parameters = [p for _, p in stepped]
        for p in parameters:
            if p not in self.missed:
                self._begin(p)              # it was frozen until now
        data = [p._data for p in parameters]
        states = [[*map(getattr(self, kind).__getitem__, parameters)] for kind in self.STATE]
        if not _can_be_stepped(parameters, [data, *states]):
            self._make_dense(pairs)
            return self._with_gradients(pairs)
        return [*zip(groups, parameters, *states)]

    def _make_dense(self, pairs):
        """Replace data and state that a step cannot update in place by dense copies."""
        for i, (_, p) in enumerate(pairs):
            if p.node is None or p.node.grad is None:
                continue
            p._data = dense(
                p,
                number=i,
                kind="data",
                array=p._data)
            for kind in self.STATE:
                arrays = getattr(self, kind)
                arrays[p] = dense(
                    p,
                    number=i,
                    kind=kind,
                    array=arrays[p])

    def state(self) -> Iterator[tuple[str, Tensor, np.ndarray]]:
        """Yield its state: (kind, parameter, array)."""
        self._pairs()
        for part in self.parts:
            pairs = part._pairs()
            for kind in part.STATE:
                arrays = getattr(part, kind)
                for _, p in pairs:
                    if p in arrays:     # not if it was always frozen
                        yield kind, p, arrays[p]

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of its state, from which `load_state_dict` goes on to the bit: settings of
        each group, and, by the number of each parameter, its arrays and the steps that it missed.

        What only the constructor takes, such as Muon's ns_steps, is not in it.
        """
        numbers = {p: i for i, (_, p) in enumerate(self._pairs())}
        groups = []
        for group in self.param_groups:
            parameters = group["params"]
            saved = group | {"params": [numbers[p] for p in parameters]}
            if all(p in self.names for p in parameters):
                saved["param_names"] = [self.names[p] for p in parameters]
            groups.append(saved)
        state = {i: {} for i in numbers.values()}
        for kind, p, array in self.state():
            state[numbers[p]][kind] = array.copy()
        for p, i in numbers.items():
            if p in self.missed:
                state[i]["missed"] = self.missed[p]
        return {"steps": self.steps, "param_groups": groups, "state": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, as `state_dict` returned it.  Groups have as many parameters as in
        it, of the same shapes, and take its settings.

        Raises
        ------
        ValueError : the state does not fit.  Nothing is changed then.
        """
        self._take(self._fitting(state))

    def _fitting(self, state):
        """Return the steps of a state, and for each group (settings, [(parameter, arrays, steps
        that it missed)]); check that they fit."""
        self._pairs()
        check_keys(state, ("steps", "param_groups", "state"), type(self).__name__)
        steps = state["steps"]
        if not (isinstance(steps, Integral) and steps >= 0):
            raise ValueError(f"steps are a whole number of at least 0, not {steps!r}")
        groups = state["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(f"the state has {number_of(len(groups), 'group')} of parameters, and "
                             f"this {type(self).__name__} {len(self.param_groups)}")
        fitting = []
        for i, (group, saved) in enumerate(zip(self.param_groups, groups)):
            settings = {
                name: value
                for name, value in saved.items()
                if name not in ("params", "param_names")}
            check_settings(settings)
            parameters = group["params"]
            numbers = self._numbers(i, parameters, saved)
            parts = []
            for p, number in zip(parameters, numbers):
                saved_arrays = state["state"].get(number, {})
                arrays, missed = self._arrays(p, saved_arrays, number)
                parts.append((p, arrays, missed))
            fitting.append((settings, parts))
        return steps, fitting

    def _numbers(self, i, parameters, saved):
        """Return the numbers that the parameters of group i have in a state."""
        numbers = saved["params"]
        if len(numbers) != len(parameters):
            raise ValueError(f"group {i} has {number_of(len(parameters), 'parameter')}, and "
                             f"{len(numbers)} in the state")
        names = [self.names.get(p) for p in parameters]
        if "param_names" not in saved or None in names:
            return numbers
        by_name = dict(zip(saved["param_names"], numbers))
        if unknown := [name for name in names if name not in by_name]:
            raise ValueError(f"group {i} of the state does not have {first_of(unknown)}; it has "
                             f"{first_of([*by_name])}")
        return [by_name[name] for name in names]

    def _arrays(self, p, saved, number):
        """Return copies of a parameter's arrays, by kind, and the steps that it missed."""
        if not saved:                       # it was always frozen
            return {}, None
        what = f"parameter {number}"
        check_keys(saved, (*self.STATE, "missed"), what)
        arrays = {}
        for kind in self.STATE:
            array = np.asarray(saved[kind])
            if array.shape != p.shape or array.dtype.kind != "f":
                raise ValueError(f"{what} is {brief(p.data)}, and its {kind} in the state is "
                                 f"{brief(array)}")
            arrays[kind] = array.astype(p.dtype)
        return arrays, saved["missed"]

    def _take(self, fitting):
        """Take the place of what `_fitting` has returned."""
        steps, groups = fitting
        self.steps = steps
        for group, (settings, parts) in zip(self.param_groups, groups):
            group |= settings
            for p, arrays, missed in parts:
                self.missed.pop(p, None)
                for kind in self.STATE:
                    getattr(self, kind).pop(p, None)
                if missed is not None:
                    self.missed[p] = missed
                    for kind in self.STATE:
                        getattr(self, kind)[p] = arrays[kind]
                elif p.node is not None:
                    self._begin(p)

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for _, p in self._pairs():
            if p.node is not None:
                p.node.grad = None

    def _named(self, group):
        """Return the parameters of a group as a list, and keep the names of those that come as
        (name, parameter)."""
        parameters = []
        for entry in parameters_of(group):
            match entry:
                case str(name), Tensor() as p:
                    self.names[p] = name
                    parameters.append(p)
                case _:
                    parameters.append(entry)
        return parameters


def _can_be_stepped(parameters, columns):
    """Whether a step can update the arrays of these columns in place, and they have the shapes and
    types of the parameters.  The latter is asked once, of arrays that stay from step to step."""
    arrays = [*chain(*columns)]
    if _steppable.knows(arrays):
        return all(map(WRITABLE, arrays))
    expected = [(True, p.node.shape, p.node.dtype) for p in parameters]
    for column in columns:
        if list(map(LAYOUT, column)) != expected:
            return False
    _steppable.keep(arrays, True)
    return True


class Known(dict):
    """What is known of lists of arrays that stay from step to step, by the ids of the arrays.  Once
    an array is freed, whose id another may get, it is forgotten."""

    def knows(self, arrays: list[np.ndarray]) -> Any:
        """Return what is known of arrays, or None."""
        return self.get(tuple(map(id, arrays)), (None,))[0]

    def keep(self, arrays: list[np.ndarray], value: Any) -> None:
        """Keep what is known of arrays, until one of them is freed, or too many others came."""
        if len(self) >= KEPT:
            self.clear()
        key = tuple(map(id, arrays))
        forget = partial(self._forget, key)
        self[key] = value, [ref(x, forget) for x in arrays]

    def _forget(self, key, _):
        self.pop(key, None)


_steppable = Known()      # arrays that have the shapes and types of their parameters


def parameters_of(group: dict[str, Any]) -> list[Tensor]:
    """Return the parameters of a group as a list, the group's own if it has one."""
    if not (isinstance(group, dict) and "params" in group):
        raise ValueError('a group is a dict with its parameters as "params", beside settings; this '
                         f"is a {type(group).__name__}")
    parameters = group["params"]
    if isinstance(parameters, list):
        return parameters
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def check_keys(state: Mapping, keys: tuple[str, ...], what: str) -> None:
    """Raise a ValueError unless a state has these keys."""
    if not isinstance(state, Mapping) or state.keys() != {*keys}:
        has = first_of([*map(str, state)]) if isinstance(state, Mapping) else brief(state)
        raise ValueError(f"the state of {what} has {', '.join(keys)}, and this has {has}; it is "
                         "made by state_dict()")


def are_those(parameters: list[Tensor], others: list[Tensor]) -> bool:
    """Return whether these are the same parameters, in the same order."""
    return len(parameters) == len(others) and all(map(operator.is_, parameters, others))


def check_settings(group: dict[str, Any]) -> None:
    """Raise a ValueError unless the settings of a group are numbers of which a step can be made."""
    for name in ("lr", "momentum", "eps", "weight_decay"):
        value = group.get(name, 0)
        if not (isinstance(value, NUMBER) and 0 <= value < math.inf):
            raise ValueError(f"{name} is a finite number of at least 0, not {value!r}")
    betas = group.get("betas", (0, 0))
    if not (isinstance(betas, (tuple, list)) and len(betas) == 2
            and is_beta(betas[0]) and is_beta(betas[1])):
        raise ValueError(f"betas are two numbers of at least 0 and below 1, not {betas!r}")


def is_beta(value: Any) -> bool:
    """Return whether a value can be a factor of a running mean."""
    return isinstance(value, NUMBER) and 0 <= value < 1


def check_parameters(parameters: list[Tensor]) -> None:
    """Raise a ValueError unless these are different leaves of one float type, which may be frozen;
    make their data dense, so that a step can update it."""
    for i, p in enumerate(parameters):
        if not isinstance(p, Tensor) or not (is_frozen(p) or p.node and p.node.op == "leaf"):
            raise ValueError("a parameter is a Tensor that was made with requires_grad=True; "
                             f"parameter {i} is {brief(p)}")
    check_once(parameters)
    # The type that gradients have: of a frozen parameter, which has no node, that of its data
    dtypes = [p.dtype if p.node is None else p.node.dtype for p in parameters]
    for i, p in enumerate(parameters):
        if dtypes[i] != dtypes[0]:
            raise ValueError("an optimiser steps parameters of one float type; parameter 0 is "
                             f"{dtypes[0]}, and parameter {i} {dtypes[i]}; make an optimiser for "
                             "each type")
        if p.node is not None:
            p._data = dense(
                p,
                number=i,
                kind="data",
                array=p.data)


def check_once(parameters: list[Tensor]) -> None:
    """Raise a ValueError if one of these is given twice."""
    places = {}             # of their nodes
    for i, p in enumerate(parameters):
        place = places.setdefault(p.node or p, i)
        if place != i:
            raise ValueError(f"parameter {i} is parameter {place} again, and would be stepped "
                             "twice; give each once")


def dense(p: Tensor, number: int, kind: str, array: np.ndarray) -> np.ndarray:
    """Return an array of a parameter, or a copy that a step can update.  Raise a ValueError unless
    it has the shape and type that p was made with, as its gradients have."""
    shape = p.node.shape
    dtype = p.node.dtype
    if not array.flags.carray:
        array = np.require(array, requirements="CAW")
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"parameter {number} was made as {dtype}{list(shape)}, and its {kind} is "
                         f"{array.dtype}{list(array.shape)}; give it that shape and type again, as "
                         f"with array.astype(np.{dtype}), or make a new Tensor and a new optimiser")
    return array


def is_frozen(p: Tensor) -> bool:
    """Return whether a parameter was frozen, by p.requires_grad = False."""
    return getattr(p, "frozen", False)


class SGD(Optimizer):
    """Stochastic gradient descent:  b = momentum * b + g + weight_decay * p;  p -= lr * b."""
    STATE = "momentum_buffers",

    def __init__(
            self,
            parameters: Iterable,
            lr: float = 1e-3,
            momentum: float = 0.0,
            weight_decay: float = 0.0) -> None:
        defaults = dict(
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay)
        super().__init__(parameters, defaults)

    @timed("SGD")
    def update(self, with_gradients: list[tuple]) -> None:
        for group, p, b in with_gradients:
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

    def __init__(
            self,
            parameters: Iterable,
            lr: float = 1e-3,
            betas: tuple[float, float] = (0.9, 0.999),
            eps: float = 1e-8,
            weight_decay: float = 1e-2) -> None:
        defaults = dict(
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay)
        super().__init__(parameters, defaults)

    @timed("AdamW")
    def update(self, with_gradients: list[tuple]) -> None:
        self.steps += 1
        for p in self.missed.keys() - self._checked:    # those that no group has now
            self.missed[p] += 1
        settings = {}           # one dict for all parameters that have the same
        updates = []
        for group, p, m, v in with_gradients:
            key = id(group), self.missed[p]
            of_p = settings.get(key)
            if of_p is None:
                of_p = settings[key] = self._settings(group, p)
            updates.append((
                p._data,
                p.node.grad,
                m,
                v,
                of_p))
        formulas.adamw_of_each(updates)

    def _settings(self, group, p):
        """Return what `formulas.adamw` takes besides arrays."""
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
    equal_rows : whether the rows of U V^T get the same length, so that each output of a layer
        moves equally far.
    sections : a setting of a group: the numbers of rows into which each of its matrices is split.
        The parts, such as packed queries, keys and values, are stepped as separate matrices.  Else
        the part with the largest gradient would keep the others from moving, as U V^T of all of
        them has only as many directions as there are columns.

    Sources: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; equal
    rows: Li et al. 2025, "NorMuon: Making Muon more efficient and scalable".
    """
    STATE = "momentum",

    def __init__(
            self,
            parameters: Iterable,
            lr: float = 0.02,
            momentum: float = 0.95,
            weight_decay: float = 0.0,
            ns_steps: int = 5,
            equal_rows: bool = False) -> None:
        defaults = dict(
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            sections=None)
        super().__init__(parameters, defaults)
        if not (isinstance(ns_steps, Integral) and ns_steps >= 1):
            raise ValueError(f"ns_steps is a whole number of at least 1, not {ns_steps!r}")
        self.ns_steps = ns_steps
        self.equal_rows = equal_rows

    def _check(self, group, p):
        if p.ndim != 2:
            raise ValueError(f"Muon steps matrices, and this has the shape {list(p.shape)}; give "
                             "it to another optimiser")
        check_sections(group, p)

    @timed("Muon")
    def update(self, with_gradients: list[tuple]) -> None:
        matrices = []
        for group, p, m in with_gradients:
            matrices += self._sections(group, p, m)
        self.step_matrices(matrices)

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
            ns_steps=self.ns_steps,
            equal_rows=self.equal_rows)
        end = 0
        for outputs in group["sections"] or p.shape[:1]:
            section = slice(end, end + outputs)
            end += outputs
            yield (
                p.data[section],
                p.grad[section],
                m[section],
                settings)


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
        self.parts = []
        for part in parts:
            self.parts += part.parts        # of an Optimizers, those inside
        self.param_groups = []
        self._joined = []       # the groups when they were last compared with those of the parts
        self._checked = []
        self._pairs()

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Raise a ValueError: it is not known which optimiser is to step the group."""
        raise ValueError("a group is stepped by one of the optimisers: give it to that, as in "
                         "optimizers.parts[0].add_param_group(group)")

    def _pairs(self):
        pairs = []
        for pairs_of_part in self._pairs_of_parts():
            pairs += pairs_of_part
        return pairs

    def _pairs_of_parts(self):
        """Return what `_pairs` of each part returns, after the groups have been compared, and no
        parameter is in two parts."""
        joined = {id(group) for group in self._joined}
        ours = {id(group) for group in self.param_groups}
        for part in self.parts:
            part.param_groups[:] = [
                group
                for group in part.param_groups
                if id(group) in ours or id(group) not in joined]
        theirs = {
            id(group): group
            for part in self.parts
            for group in part.param_groups}
        for group in self.param_groups:
            if id(group) not in joined | theirs.keys():
                self.add_param_group(group)
        self.param_groups[:] = [group for group in self.param_groups if id(group) in theirs]
        self.param_groups += [group for key, group in theirs.items() if key not in ours]
        self._joined = list(self.param_groups)
        pairs_of_parts = [part._pairs() for part in self.parts]
        parameters = [
            p
            for pairs in pairs_of_parts
            for _, p in pairs]
        if not are_those(parameters, self._checked):
            check_once(parameters)
            self._checked = parameters
        return pairs_of_parts

    def step(self) -> None:
        stepped = []
        for part, pairs in zip(self.parts, self._pairs_of_parts()):
            stepped.append(part._with_gradients(pairs))
        for part, with_gradients in zip(self.parts, stepped):   # all of them can be stepped
            part._step(with_gradients)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each part, as "parts"; `load_state_dict` takes it."""
        self._pairs()
        return {"parts": [part.state_dict() for part in self.parts]}

    def _fitting(self, state):
        check_keys(state, ("parts",), "Optimizers")
        self._pairs()
        states = state["parts"]
        if len(states) != len(self.parts):
            raise ValueError(f"the state is that of {number_of(len(states), 'optimiser')}, and "
                             f"these are {len(self.parts)}")
        return [part._fitting(part_state) for part, part_state in zip(self.parts, states)]

    def _take(self, fitting):
        for part, part_fitting in zip(self.parts, fitting):
            part._take(part_fitting)


@timed("clipping")
def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients so that their common L2 norm is at most `max_norm`; return the norm
    before.  If that is not finite, the gradients stay as they are.  A parameter that is given twice
    counts once, and a gradient that two parameters share is scaled once; a single parameter needs
    no list."""
    if not (isinstance(max_norm, Real) and max_norm >= 0):
        raise ValueError(f"max_norm is a number of at least 0, not {max_norm!r}")
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    nodes = dict.fromkeys([p.node for p in parameters if p.node and p.node.grad is not None])
    norm = math.sqrt(formulas.sum_of_squares([node.grad for node in nodes]))
    if max_norm < norm < math.inf:
        nodes = {id(node.grad): node for node in nodes}.values()
        read = [kept_numbers(node.grad) for node in nodes if is_held_elsewhere(node)]
        changes.note_all(read, "gradient", "by clip_grad_norm_")
        formulas.scale([kept_numbers(node.grad) for node in nodes], max_norm / norm)
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
