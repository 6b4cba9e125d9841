"""Run a student's function on the cases, and find the known mistake that gives the same numbers."""
import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from minigrad import Tensor
from minigrad.gradients import unbroadcast
from minigrad.watch.events import array_of
from model.walk import scalars
from model.walk.practice import Exercise, map_leaves


class Outcome(NamedTuple):
    """What a function did with a case."""
    given: dict         # the arguments by name; those in dictionaries and lists have their path
    returned: object    # of an op its value and vjps; of one that raises, the exception
    numbers: dict       # of "value" and of the gradient by each argument: arrays, or an exception


def arguments(leaf: Callable, exercise: Exercise, case: tuple) -> list:
    """Return the arguments of a case with leaf(value, path) in place of each value."""
    return [map_leaves(leaf, *pair) for pair in zip(case, exercise.parameters)]


@np.errstate(all="ignore")
def outcome(f: Callable, exercise: Exercise, case: tuple, back: bool = True) -> Outcome:
    """Call a function on a case; with `back`, also run backward from a random gradient."""
    if exercise.is_class:
        return Outcome(*scalars.run(f, *case))
    given = {}
    leaves = {}

    def fresh(x, name):
        given[name] = x
        if isinstance(x, np.ndarray):
            x = unwritable(x.view())
            if exercise.tensors and x.dtype.kind == "f":
                leaves[name] = x = x if exercise.is_op else Tensor(x, requires_grad=True)
        return x
    args = arguments(fresh, exercise, case)
    returned = attempt(getattr(f, "__wrapped__", f) if exercise.is_op else f, *args)
    value = attempt(arrays_of, exercise, returned)
    numbers = dict.fromkeys(["value", *leaves], value)
    if back and isinstance(value, list) and value:
        numbers |= gradients(exercise, returned, leaves, gradient_of(value[0]))
    return Outcome(given, returned, numbers)


def unwritable(x: np.ndarray) -> np.ndarray:
    """Return the array, into which nobody can write from now on."""
    x.flags.writeable = False
    return x


def gradients(exercise: Exercise, returned: object, leaves: dict, g: np.ndarray) -> dict:
    """Return the gradient by each leaf, by its name: a list of an array, or an exception."""
    if exercise.is_op:
        return {name: attempt(pull, returned[1], i, g, x)
                for i, (name, x) in enumerate(leaves.items())}
    if isinstance(returned, Tensor) and returned.requires_grad:
        error = attempt(returned.backward, g)
        if error is not None:
            return dict.fromkeys(leaves, error)
    return {name: [np.zeros(x.shape) if x.grad is None else x.grad] for name, x in leaves.items()}


def attempt(f: Callable, *args: object) -> object:
    """Return what a call returns, or the exception that it raises."""
    try:
        return f(*args)
    except BaseException as error:
        return error


def arrays_of(exercise: Exercise, returned: object) -> list[np.ndarray]:
    """Return the arrays of the value that a function has returned; raise what it has raised."""
    if isinstance(returned, BaseException):
        raise returned
    value, _ = returned if exercise.is_op else (returned, None)
    return [array_of(x) for x in (value if isinstance(value, (tuple, list)) else [value])]


def pull(vjps: Callable | Sequence[Callable], i: int, g: np.ndarray, x: np.ndarray) -> list:
    """Return the gradient that an op sends back to its argument i, the array x, in a list."""
    dx = np.asarray(vjps(g)[i] if callable(vjps) else vjps[i](g))
    with contextlib.suppress(ValueError):       # a wrong shape stays as it is, to be shown
        dx = unbroadcast(dx, x.shape)
    return [dx]


def gradient_of(value: Tensor | np.ndarray) -> np.ndarray:
    """Return a random gradient of the value's shape and type; the same one at each call."""
    return unwritable(np.random.default_rng(1).standard_normal(value.shape).astype(value.dtype))


def agree(a: Outcome, b: Outcome, name: str, by_text: bool = False) -> bool:
    """Whether two outcomes have the same numbers, up to rounding, or fail alike."""
    a = a.numbers[name]
    b = b.numbers[name]
    if isinstance(a, BaseException) or isinstance(b, BaseException):
        return type(a) is type(b) and (not by_text or str(a) == str(b))
    return len(a) == len(b) and all(map(same, a, b))


def same(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays have one shape and the same numbers, up to rounding."""
    return x.shape == y.shape and bool(close(x, y).all())


def close(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return where two arrays are equal up to the rounding of the less exact one."""
    rtol = 1e-3 if np.float32 in (x.dtype, y.dtype) else 1e-7
    size = np.abs(y[np.isfinite(y)]).max(initial=1e-3)
    return np.isclose(x, y, rtol=rtol, atol=rtol / 10 * size, equal_nan=True)


@functools.cache
def outcome_of_ours(exercise: Exercise, mistakes: tuple[str, ...], number: int,
                    back: bool = True) -> Outcome:
    """Return the outcome of our answer, with these mistakes, for a case."""
    return outcome(exercise.with_mistakes(*mistakes), exercise, exercise.cases[number], back)


def find_mistakes(exercise: Exercise, answers: list[Outcome], names: Sequence[str]
                  ) -> tuple[str, ...]:
    """Return the known mistake, or the two at once, that make these values, and gradients of these
    names; () if none do."""
    names = dict.fromkeys(["value", *names])
    places = list(itertools.product(range(len(answers)), names))

    def agrees(mistakes, i, name, by_text=False):
        ours = outcome_of_ours(exercise, mistakes, i, back=len(names) > 1)
        return agree(answers[i], ours, name, by_text)
    only_errors = all(isinstance(answers[i].numbers[name], BaseException) or agrees((), i, name)
                      for i, name in places)
    candidates = [(mistake,) for mistake in exercise.mistakes]
    if not only_errors and all_have_numbers(answers):       # an error may have any cause
        candidates += itertools.combinations(exercise.mistakes, 2)
    for mistakes in candidates:
        with contextlib.suppress(LookupError, SyntaxError):     # not to be made together
            if all(agrees(mistakes, *place, by_text=only_errors) for place in places):
                return mistakes
    return ()


def all_have_numbers(answers: list[Outcome]) -> bool:
    """Whether each array of the values has a finite number; arrays that are all nan look alike."""
    values = [answer.numbers["value"] for answer in answers]
    return all(np.isfinite(x).any() for value in values if isinstance(value, list) for x in value)
