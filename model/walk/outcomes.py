"""Run a student's function on the cases, and find the known mistake that gives the same numbers."""
import contextlib
import functools
import itertools
import pathlib
import textwrap
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

import minigrad as mg
from minigrad import Tensor
from model.walk import scalars
from model.walk.practice import Exercise

TINY = 20           # so many numbers of a case can be shown


class Outcome(NamedTuple):
    """What a function did with a case."""
    given: dict         # the arguments by name; those in dictionaries and lists have their path
    returned: object
    numbers: dict       # of "value" and of the gradient by each argument: arrays, or an exception
    changed: list       # names of arguments that it wrote into


def map_leaves(leaf: Callable, x: object, name: str) -> object:
    """Return x with leaf(value, path) in place of each value in its dictionaries and lists."""
    if isinstance(x, dict):
        return {key: map_leaves(leaf, part, f'{name}["{key}"]') for key, part in x.items()}
    if isinstance(x, list):
        return [map_leaves(leaf, part, f"{name}[{i}]") for i, part in enumerate(x)]
    return leaf(x, name)


def arguments(leaf: Callable, exercise: Exercise, case: tuple) -> list:
    """Return the arguments of a case with leaf(value, path) in place of each value."""
    return [map_leaves(leaf, *pair) for pair in zip(case, exercise.parameters)]


@np.errstate(all="ignore")
def outcome(f: Callable, exercise: Exercise, case: tuple, back: bool = True) -> Outcome:
    """Call a function on a case; with `back`, also run backward from a random gradient."""
    if exercise.is_class:
        return Outcome(*scalars.run(f, *case))
    given, inputs, returned, numbers = {}, {}, None, {}

    def fresh(x, name):
        given[name] = inputs[name] = x
        if isinstance(x, np.ndarray):
            inputs[name] = x.copy()
            if exercise.tensors and x.dtype.kind == "f":
                inputs[name] = Tensor(inputs[name], requires_grad=True)
        return inputs[name]
    args = arguments(fresh, exercise, case)
    leaves = {name: x for name, x in inputs.items() if isinstance(x, Tensor)}
    try:
        with warnings.catch_warnings(action="ignore"):
            returned = f(*args)
            numbers["value"] = [as_array(x) for x in as_list(returned)]
            if back and isinstance(returned, Tensor) and returned.requires_grad:
                returned.backward(gradient_of(returned))
            for name, x in leaves.items():
                numbers[name] = [np.zeros(x.shape) if x.grad is None else x.grad]
    except BaseException as error:
        numbers = dict.fromkeys(["value", *leaves], error) | numbers
    changed = [name for name, x in inputs.items() if isinstance(x, (np.ndarray, Tensor))
               and not np.array_equal(as_array(x), given[name])]
    return Outcome(given, returned, numbers, changed)


def gradient_of(value: Tensor) -> np.ndarray:
    """Return a random gradient of the value's shape; the same one at each call."""
    return np.random.default_rng(1).standard_normal(value.shape)


def as_list(x: object) -> list | tuple:
    """Return a tuple or list as it is, and anything else as a list of one."""
    return x if isinstance(x, (tuple, list)) else [x]


def as_array(x: object) -> np.ndarray:
    """Return the array of a Tensor, or anything else as an array."""
    return x.data if isinstance(x, Tensor) else np.asarray(x)


def agree(a: Outcome, b: Outcome, name: str) -> bool:
    """Whether two outcomes have the same numbers, up to rounding, or fail alike."""
    a, b = a.numbers[name], b.numbers[name]
    if isinstance(a, BaseException) or isinstance(b, BaseException):
        return type(a) is type(b)
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
    names = ["value", *(name for name in names if name != "value")]
    values = [answer.numbers["value"] for answer in answers]
    finite = all(np.isfinite(x).any() for value in values if isinstance(value, list)
                 for x in value)            # otherwise two mistakes could make anything nan
    pairs = itertools.combinations(exercise.mistakes, 2) if finite else []
    for mistakes in [*zip(exercise.mistakes), *pairs]:
        with contextlib.suppress(LookupError):
            if all(agree(answer, outcome_of_ours(exercise, mistakes, i, len(names) > 1), name)
                   for i, answer in enumerate(answers) for name in names):
                return mistakes
    return ()


def first_difference(answers: list[Outcome], ours: list[Outcome], name: str,
                     path: pathlib.Path) -> str:
    """Return a paragraph on the first number of this name that is wrong."""
    wrong = [(a, b) for a, b in zip(answers, ours) if not agree(a, b, name)]
    a, b = wrong[0]
    case = ", ".join(f"{key} {describe(x)}" for key, x in a.given.items())
    numbers, what = a.numbers[name], "The value" if name == "value" else f"The gradient by {name}"
    if isinstance(numbers, BaseException):
        return f"{what} cannot be made for {case}: {describe_error(numbers, path)}"
    i, x, y = next((i, x, y) for i, (x, y) in enumerate(zip(numbers, b.numbers[name]), 1)
                   if not same(x, y))
    what += f" of returned array {i}" * (len(numbers) > 1)
    if x.shape != y.shape:
        return f"{what} has shape {list(x.shape)} for {case}; it should be {list(y.shape)}."
    at = tuple(np.argwhere(~close(x, y))[0].tolist())
    said = (f"{what} is wrong for {case}: {f'at index {at} ' if at else ''}it is {x[at]:.6g}, and "
            f"should be {y[at]:.6g}.")
    if all(b.numbers["value"][0].dtype == np.float32 for _, b in wrong):
        said += ("  It is right in float64.  The largest float32 is 3.4e38, so exp(89) is infinite "
                 "there, and about 7 digits are kept.")
    if sum(np.size(x) for x in a.given.values()) > TINY:
        return said
    g = {} if name == "value" or a.returned is None else {"g": gradient_of(a.returned)}
    return "\n".join([textwrap.fill(said, 80), *(
        f"    {key} = {np.array2string(np.asarray(x), precision=4, prefix=' ' * (len(key) + 7))}"
        for key, x in (a.given | g | {"yours": x, "right": y}).items())])


@np.errstate(all="ignore")
def check_gradients(f: Callable, exercise: Exercise) -> str:
    """Compare gradients with central differences: every entry in the first case, along random
    directions in the second.  Return what is wrong, or ""."""
    for number, full in enumerate((True, False)):
        given, _, (_, *names), _ = outcome_of_ours(exercise, (), number)

        def of_tensors(*tensors):
            now = given | dict(zip(names, tensors))
            return f(*arguments(lambda x, name: now[name], exercise, exercise.cases[number]))
        try:
            mg.gradcheck(of_tensors, *(given[name] for name in names), full=full)
        except mg.GradcheckError as error:
            return f"Central differences contradict the gradient: {error}."
    return ""


def describe(x: object) -> str:
    """Return the type and shape of an array or Tensor, a number or text itself, the parts of a
    tuple, or the type of anything else."""
    if isinstance(x, tuple):
        return shorten(f"({', '.join(map(describe, x))})")
    if isinstance(x, (np.ndarray, Tensor)):
        return "Tensor of " * isinstance(x, Tensor) + f"{x.dtype}{list(x.shape)}"
    return shorten(repr(x) if isinstance(x, (int, float, str, type(None))) else type(x).__name__)


def describe_error(error: BaseException, path: pathlib.Path) -> str:
    """Return an error in one line: its place in the student's file, its type and its text."""
    at = [""]
    for frame in traceback.extract_tb(error.__traceback__):
        if (file := pathlib.Path(frame.filename)).parent == path.parent:
            of = "" if file == path else f" of {file.name}"
            at.append(f"line {frame.lineno}{of}: {shorten(frame.line)}  ->  ")
    try:
        said = str(error) or "it says no more"
    except BaseException:
        said = "its text cannot be made"
    of_numpy = "ufuncs" in said             # the engine's Tensor refuses NumPy's functions
    return f"{at[-1]}{shorten(type(error).__name__)}: {' '.join(shorten(said).split())}" + (
        ".  NumPy's functions do not take a Tensor: use mg.exp, mg.softmax and the like" * of_numpy)


def shorten(text: str, most: int = 300) -> str:
    """Return the beginning of a text that may be of any length."""
    return text if len(text) <= most else f"{text[:most]} ..."
