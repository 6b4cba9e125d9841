"""Judge what a student has written: right, or which mistake it is.

An answer is compared with the exercise's own, values and gradients.  Where they differ, the known
mistakes are tried: the one that gives the student's numbers is the student's.
"""
import ast
import contextlib
import copy
import importlib
import io
import os
import pathlib
import re
import stat
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from minigrad import Tensor
from model.command import any_of, first_of, in_a_line
from model.walk import trial
from model.walk.outcomes import (Outcome, agree, as_array, broken, cut, described, difference,
                                 differentiated, expected, gradient_of, listed, named, outcome)
from model.walk.practice import Exercise, exercises, op

SECONDS = 10        # for the cases of an exercise; what takes longer is an endless loop
PRINTED = 10        # lines that are shown of what a wrong answer prints
WIDTH = 200         # characters of such a line
TRAINING = trial.SECONDS + 180      # with compiling, and what comes before and after
LARGEST = 1 << 20   # bytes of a student's file
JUDGING = ["builtins", "numpy", "minigrad", "minigrad.core", "minigrad.gradcheck",
           "model.walk.outcomes", "model.walk.practice", "model.walk.trial", __name__]


class Verdict(NamedTuple):
    """Whether an answer is right, and paragraphs that say so; one with line breaks is a table."""
    right: bool
    said: list[str]

    def text(self) -> str:
        """Return what there is to say, in lines of 80 columns that a terminal can show."""
        lines = []
        for part in self.said:
            rows = [in_a_line(row) for row in part.split("\n")]
            lines += rows if rows[1:] else textwrap.wrap(rows[0], 80, break_long_words=False)
        return "\n".join(lines)


class Fault(Exception):
    """An answer is wrong; the arguments are the paragraphs to say."""


class Printed(io.RawIOBase):
    """Keeps the beginning of what is printed."""

    def __init__(self) -> None:
        self.kept = b""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        self.kept += bytes(data[:PRINTED * WIDTH - len(self.kept)])
        return len(data)


def judge(path: str | os.PathLike, limited: Callable = contextlib.nullcontext,
          tell: Callable = print) -> Verdict:
    """Judge a student's file in this process; what the student wrote runs in `limited(seconds)`.
    `tell` gets a line on each part of a long training.

    At first the exercises that it imports are ours, so that it is judged alone.  Then it is judged
    with those of the student's that are right themselves.
    """
    path = pathlib.Path(os.path.abspath(path))
    theirs, remarks = [], []
    try:
        exercise = recognised(path)
        remarks += compared(path, exercise, [], limited)
        for name in imported_by(path, {exercise.name}):
            part = path.with_name(f"{name}.py")
            try:
                compared(part, recognised(part), [], limited)
                theirs.append(name)
            except Fault:
                remarks.append(f"{part.name} is {'not right yet' if part.exists() else 'not here'},"
                               " so ours stood in for it.")
        if theirs:
            compared_together(path, exercise, theirs, limited)
        if exercise.function == "model":
            with limited(TRAINING), importable(path, theirs):
                f = loaded(path, exercise)
                try:
                    right, said = trial.run(f, tell)
                except BaseException as error:
                    raise Fault("It is right for short texts, and fails in the training, on texts "
                                f"of {trial.T} characters: {broken(error, path)}") from None
            return Verdict(right, said + remarks)
    except Fault as fault:
        return Verdict(False, list(fault.args) + remarks)
    gradients = ("; the gradient by every argument, entry by entry, also by central differences"
                 if exercise.tensors else "")
    with_theirs = f"  It works with your {', '.join(theirs)} too." if theirs else ""
    return Verdict(True, [
        f"Right.  Checked: the value for {len(exercise.cases)} inputs, small, large and in float32"
        f"{gradients}.{with_theirs}", *remarks,
        f"Next: {exercises()[exercises().index(exercise) + 1].name}.py"])


def recognised(path: pathlib.Path) -> Exercise:
    """Return the exercise that a file answers, by the function it defines."""
    try:
        tree = ast.parse(source_of(path), str(path))
    except (RecursionError, MemoryError):
        raise Fault("Python cannot read the file: it is nested too deeply.") from None
    except (SyntaxError, ValueError) as error:      # the latter of a zero byte
        text = getattr(error, "text", None)
        raise Fault(f"Python cannot read the file: {error}"
                    + (f": {cut(text.strip())}" if text else ".")) from None
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    meant = [exercise for exercise in exercises() if exercise.name == path.stem] or exercises()
    for exercise in meant:
        if exercise.function in defined:
            return exercise
    raise Fault(f"{path.name} defines {first_of(defined) or 'no function'}, and should define "
                f"{any_of([exercise.function for exercise in meant])}.")


def source_of(path: str | os.PathLike) -> bytes:
    """Return the contents of a student's file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):     # to open a named pipe takes for ever
            raise OSError(None, "it is no regular file")
        with open(path, "rb") as file:
            source = file.read(LARGEST + 1)
        if len(source) > LARGEST:
            raise OSError(None, "it has more than 1 MB")
        return source
    except OSError as error:
        raise Fault(f"{path} cannot be read: {error.strerror}.  Name one of the files that python "
                    "-m model.walk --exercise writes.") from None


def imported_by(path: pathlib.Path, seen: set[str]) -> Iterator[str]:
    """Yield the names of the exercises that a file imports, and that those import in turn."""
    source = ""
    with contextlib.suppress(Fault):        # it is not there
        source = source_of(path).decode("utf-8", "replace")
    for name in [exercise.name for exercise in exercises()]:
        if name not in seen and re.search(rf"^[ \t]*(from|import)\b.*\b{name}\b", source, re.M):
            seen.add(name)
            yield name
            yield from imported_by(path.with_name(f"{name}.py"), seen)


def compared_together(path: pathlib.Path, exercise: Exercise, theirs: list[str],
                      limited: Callable) -> None:
    """Compare a file that imports the student's own parts; each of them is right alone."""
    try:
        compared(path, exercise, theirs, limited)
    except Fault as fault:
        guilty = []
        for name in theirs:
            with contextlib.suppress(Fault):
                compared(path, exercise, [other for other in theirs if other != name], limited)
                guilty.append(name)
        raise Fault(
            f"{path.stem} and your {' and '.join(theirs)} are right alone, but together they are "
            "not.  " + f"With our {' or '.join(guilty)} it is right: look at how the two "
            "call each other." * bool(guilty), *fault.args) from None


@contextlib.contextmanager
def importable(path: pathlib.Path, theirs: list[str]) -> Iterator[None]:
    """Let a file import the student's exercises that are named; all others are ours."""
    known = {exercise.name: exercise.module for exercise in exercises()}
    sys.modules.update({name: known[name] for name in known.keys() - set(theirs)})
    sys.path.append(str(path.parent))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(path.parent))
        for name in known:
            sys.modules.pop(name, None)


def loaded(path: pathlib.Path, exercise: Exercise) -> Callable:
    """Run a file, and return the function in it that answers the exercise."""
    names = {"__name__": path.stem, "__file__": str(path)}
    try:
        with np.errstate(), warnings.catch_warnings(action="ignore"):   # what it sets ends here
            exec(compile(source_of(path), str(path), "exec"), names)
    except BaseException as error:
        raise Fault(f"The file does not run: {broken(error, path)}") from None
    f = names.get(exercise.function)
    if not callable(f):
        raise Fault(f"{exercise.function} is {described(f)}, and should be a function.")
    if hasattr(exercise.answer, "__wrapped__") and not hasattr(f, "__wrapped__"):
        f = op(f)                           # the line above it is gone
    return f


def compared(path: pathlib.Path, exercise: Exercise, theirs: list[str], limited: Callable
             ) -> list[str]:
    """Compare a file's answer with ours; return remarks on it, or raise a Fault."""
    printed = Printed()
    try:
        with trusted():
            made, ours = outcomes_of(path, exercise, theirs, limited, printed)
    except BaseException as error:
        said = (error.args if isinstance(error, Fault) else
                [f"It cannot be judged: {broken(error, path)}"])
        lines = printed.kept.decode("utf-8", "replace").splitlines()[:PRINTED]
        shown = [cut(line, WIDTH) for line in lines]
        raise Fault(*said, *["\n    ".join(["It printed:", *shown])] * bool(shown)) from None
    remarks = []
    if printed.kept:
        remarks.append("It prints something.  That helps while you look for a mistake; you can "
                       "remove it now.")
    if any(as_array(a.returned).dtype == np.float64 and as_array(b.returned).dtype == np.float32
           for a, b in zip(made, ours)):
        remarks.append("It makes float64 of float32, which takes twice the room.  NumPy's numbers "
                       "and arrays, such as np.sqrt(2) or a mask of np.ones, do that; Python's "
                       "numbers, such as math.sqrt(2), do not.")
    return remarks


@contextlib.contextmanager
def trusted() -> Iterator[None]:
    """Raise a Fault if a file replaces what it is judged with, after putting that back."""
    before = [(module, dict(vars(module))) for module in map(sys.modules.get, JUDGING)]
    replaced = []
    try:
        yield
    finally:
        for module, names in before:
            replaced += [f"{module.__name__}.{name}" for name, value in names.items()
                         if vars(module).get(name) is not value]
            vars(module).update(names)
        if replaced:
            raise Fault(f"It replaces {first_of(replaced)}, with which it is judged.  Give what "
                        "you make a name of your own.") from None


def outcomes_of(path: pathlib.Path, exercise: Exercise, theirs: list[str], limited: Callable,
                printed: Printed) -> tuple[list[Outcome], list[Outcome]]:
    """Return what a file's answer and ours make of the cases; raise a Fault if they differ."""
    ours = [expected(exercise, (), i) for i in range(len(exercise.cases))]  # may compile kernels
    out = io.TextIOWrapper(printed, "utf-8", "backslashreplace", write_through=True)
    with (limited(SECONDS), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out),
          importable(path, theirs)):
        f = loaded(path, exercise)
        made = [outcome(f, exercise, case) for case in exercise.cases]
        for one in made:
            check_form(f, exercise, one, path)
        wrong = [name for name in made[0].numbers
                 if not all(agree(a, b, name) for a, b in zip(made, ours))]
        if exercise.tensors and not wrong and (fault := differentiated(f, exercise)):
            raise Fault(fault)
    if "value" in wrong:                    # its gradients mean nothing
        raise Fault(*named(exercise, made, []) or [difference(made, ours, "value", path)])
    if wrong:                               # at last, several mistakes in several gradients
        raise Fault(*named(exercise, made, wrong) or dict.fromkeys(
            sentence for name in wrong for sentence in (
                named(exercise, made, [name]) or [difference(made, ours, name, path)])))
    return made, ours


def check_form(f: Callable, exercise: Exercise, made: Outcome, path: pathlib.Path) -> None:
    """Raise a Fault if something is wrong with a case before the numbers are looked at."""
    error, returned, (_, *names) = made.numbers["value"], made.returned, made.numbers
    if isinstance(error, NotImplementedError):
        raise Fault("The line that stands for your answer is still there: put your lines in place "
                    "of " + broken(error, path).partition("  ->  ")[0])
    if made.changed:
        raise Fault(f"It changes its argument {made.changed[0]}, which others use too; make a new "
                    "array, as in x = x - 1 in place of x -= 1.")
    if hasattr(exercise.answer, "__wrapped__"):     # look at what the engine gets
        back = ", ".join(f"d{name}" for name in names) + "," * (len(names) == 1)
        wanted = f"a value and a tuple of functions, as in return y, ({back})"
        try:
            returned = f.__wrapped__(*copy.deepcopy(list(made.given.values())))
        except BaseException:
            return
        fits = isinstance(returned, tuple) and len(returned) == 2 and (
            len(returned[1]) >= len(names) and all(f is None or callable(f) for f in returned[1])
            if isinstance(returned[1], (tuple, list)) else
            callable(returned[1]) and len(names) > 1)
        if fits and isinstance(returned[0], (list, tuple)):
            raise Fault(f"Its value is a {type(returned[0]).__name__}, and should be an array; "
                        ".tolist() is not needed, and np.array() makes one of a list.")
        if fits:
            check_back(*returned)
    elif isinstance(error, BaseException):
        return
    elif exercise.tensors:
        wanted, fits = "a Tensor", isinstance(returned, Tensor)
    else:
        wanted, fits = "three arrays, p, m, v", isinstance(returned, tuple) and len(returned) == 3
    if not fits:
        raise Fault(f"It returns {described(returned)}, and should return {wanted}."
                    + "  Is return missing?" * (returned is None))
    if isinstance(error, list) and any(x.dtype.kind != "f" for x in error):
        raise Fault(f"Its value is {described(error[0])}, and should be of floats.")


def check_back(value: np.ndarray, back: Callable | Sequence[Callable | None]) -> None:
    """Raise a Fault if a function that goes back changes what it gets, or gives another gradient at
    its second call."""
    g, kept, same = gradient_of(np.asarray(value)), True, True
    for f in [back] if callable(back) else back:
        with contextlib.suppress(BaseException), np.errstate(all="ignore"):
            # What goes wrong here is said where the numbers are looked at.
            given = g.copy()
            first = copy.deepcopy(f(given))
            kept &= np.array_equal(given, g)
            for x, y in zip(listed(first), listed(f(g.copy()))):
                same &= np.array_equal(x, y, equal_nan=True)
    if not kept:
        raise Fault("It changes g, the gradient that it gets, which others use too; make a new "
                    "array, as in g = g * y in place of g *= y.")
    if not same:
        raise Fault("It goes back to another gradient when it is called twice: it changes an array "
                    "that it has kept, as p[...] -= 1 does.  Make a new one.")
