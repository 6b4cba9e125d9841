"""Judge a student's file: is it right, and if not, which mistake is in it?

Values and gradients are compared with those of our answer.  Where they differ, the known mistakes
are tried in our answer: the one that gives the student's numbers is the student's.
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
from model.walk import scalars, trial
from model.walk.outcomes import (Outcome, agree, as_list, find_mistakes, gradient_of, outcome,
                                 outcome_of_ours)
from model.walk.practice import Exercise, exercises, op
from model.walk.words import describe, describe_error, first_difference, shorten

SECONDS = 10        # for the cases of an exercise; what takes longer is an endless loop
PRINTED = 10        # lines that are shown of what a wrong answer prints
WIDTH = 200         # characters of such a line
TRAINING = trial.SECONDS + 180      # with compiling, and what comes before and after
LARGEST = 1 << 20   # bytes of a student's file
JUDGING = ["builtins", "numpy", "minigrad", "minigrad.core", "minigrad.gradcheck", __name__,
           "model.walk.outcomes", "model.walk.practice", "model.walk.scalars", "model.walk.trial",
           "model.walk.words"]


class Verdict(NamedTuple):
    """Whether an answer is right, and paragraphs that say so; one with line breaks is a table."""
    right: bool
    said: list[str]

    def text(self) -> str:
        """Return the paragraphs in lines of 80 columns that a terminal can show."""
        lines = []
        for part in self.said:
            rows = [in_a_line(row) for row in part.split("\n")]
            lines += rows if rows[1:] else textwrap.wrap(rows[0], 80, break_long_words=False)
        return "\n".join(lines)


class Fault(Exception):
    """An answer is wrong; the arguments are the paragraphs that say why."""


class Printed(io.RawIOBase):
    """Keeps the beginning of what is printed."""
    kept = b""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        self.kept += bytes(data[:PRINTED * WIDTH - len(self.kept)])
        return len(data)


def judge(path: str | os.PathLike, limit: Callable = contextlib.nullcontext,
          report: Callable = print) -> Verdict:
    """Judge a student's file in this process.  The student's code runs inside `limit(seconds)`;
    `report` gets a line on each part of a long training.

    First the exercises that the file imports are ours, so that it is judged alone.  Then it is
    judged with the student's own, if they are right themselves.
    """
    path = pathlib.Path(os.path.abspath(path))
    own, remarks = [], []
    try:
        answer = Answer(path, limit)
        remarks += answer.compare([])
        for name in imported_by(path, {answer.exercise.name}):
            part = path.with_name(f"{name}.py")
            try:
                Answer(part, limit).compare([])
                own.append(name)
            except Fault:
                remarks.append(f"{part.name} is {'not right yet' if part.exists() else 'not here'},"
                               " so ours stood in for it.")
        if own:
            answer.compare_together(own)
        if answer.exercise.function == "model":
            right, said = answer.train(own, report)
            return Verdict(right, said + remarks)
    except Fault as fault:
        return Verdict(False, list(fault.args) + remarks)
    exercise = answer.exercise
    inputs = (scalars.CHECKED if exercise.is_class else
              "inputs, large ones and float32 among them")
    with_own = f"  It works with your {', '.join(own)} too."
    return Verdict(True, [
        f"Right.  Checked: the value{' and the gradient by every argument' * exercise.tensors} for "
        f"{len(exercise.cases)} {inputs}.{with_own * bool(own)}", *remarks,
        *(f"Next: {later.name}.py" for later in exercises()[exercises().index(exercise) + 1:][:1])])


class Answer:
    """A student's file as the answer to an exercise.  Its code runs inside `limit(seconds)`."""

    def __init__(self, path: pathlib.Path, limit: Callable) -> None:
        self.path, self.limit, self.exercise = path, limit, find_exercise(path)

    def compare(self, own: list[str]) -> list[str]:
        """Compare the answer with ours, while the file imports the student's own exercises that are
        named, and else ours.  Return remarks on it, or raise a Fault."""
        ours = [outcome_of_ours(self.exercise, (), i) for i in range(len(self.exercise.cases))]
        printed = Printed()
        out = io.TextIOWrapper(printed, "utf-8", "backslashreplace", write_through=True)
        try:
            with (guard(), self.limit(SECONDS), contextlib.redirect_stdout(out),
                  contextlib.redirect_stderr(out), imports_of(self.path, own)):
                answers = self.run_cases(ours)
                remarks = scalars.three_ways(*answers[-1]) if self.exercise.is_class else []
        except BaseException as error:
            said = (error.args if isinstance(error, Fault) else
                    [f"It cannot be judged: {describe_error(error, self.path)}"])
            lines = printed.kept.decode("utf-8", "replace").splitlines()[:PRINTED]
            shown = ["It printed:", *(shorten(line, WIDTH) for line in lines)]
            raise Fault(*said, *["\n    ".join(shown)] * bool(lines)) from None
        if printed.kept:
            remarks.append("It prints something.  That helps while you look for a mistake; you can "
                           "remove it now.")
        if any(x.dtype == np.float64 and y.dtype == np.float32 for a, b in zip(answers, ours)
               for x, y in zip(a.numbers["value"], b.numbers["value"])):
            remarks.append("It turns float32 into float64, which takes twice the memory.  NumPy's "
                           "numbers and arrays, such as np.sqrt(2) or a mask of np.ones, do that; "
                           "Python's numbers, such as math.sqrt(2), do not.")
        return remarks

    def compare_together(self, own: list[str]) -> None:
        """Compare the answer together with the student's own parts; each is right alone."""
        try:
            self.compare(own)
        except Fault as fault:
            guilty = []
            for name in own:
                with contextlib.suppress(Fault):
                    self.compare([other for other in own if other != name])
                    guilty.append(name)
            raise Fault(
                f"{self.path.stem} and your {' and '.join(own)} are right alone, but together they "
                "are not.  " + f"With our {' or '.join(guilty)} it is right: look at how the two "
                "call each other." * bool(guilty), *fault.args) from None

    def train(self, own: list[str], report: Callable) -> tuple[bool, list[str]]:
        """Train the model of the last exercise; return as `trial.run` does."""
        with self.limit(TRAINING), imports_of(self.path, own):
            f = self.load()
            try:
                return trial.run(f, report)
            except BaseException as error:
                raise Fault("It is right for short texts, and fails in the training, on texts of "
                            f"{trial.T} characters: {describe_error(error, self.path)}") from None

    def load(self) -> Callable:
        """Run the file, and return the function in it that answers the exercise."""
        names = {"__name__": self.path.stem, "__file__": str(self.path)}
        try:
            with np.errstate(), warnings.catch_warnings(action="ignore"):   # what it sets ends here
                exec(compile(source_of(self.path), str(self.path), "exec"), names)
        except BaseException as error:
            raise Fault(f"The file does not run: {describe_error(error, self.path)}") from None
        f = names.get(self.exercise.function)
        if not callable(f):
            raise Fault(f"{self.exercise.function} is {describe(f)}, and should be a "
                        f"{'class' if self.exercise.is_class else 'function'}.")
        if self.exercise.is_op and not hasattr(f, "__wrapped__"):
            f = op(f)                       # the line above it is gone
        return f

    def run_cases(self, ours: list[Outcome]) -> list[Outcome]:
        """Return what the answer makes of the cases; raise a Fault if it differs from ours."""
        f = self.load()
        answers = [outcome(f, self.exercise, case) for case in self.exercise.cases]
        for answer in answers:
            check_form(self.exercise, answer, self.path)
        wrong = [name for name in answers[0].numbers
                 if not all(agree(a, b, name) for a, b in zip(answers, ours))]

        def reasons(*names):
            return find_mistakes(self.exercise, answers, names) or [
                first_difference(answers, ours, name, self.path) for name in names]
        if "value" in wrong:                    # its gradients mean nothing
            raise Fault(*reasons("value"))
        if wrong:                               # one mistake, or several in several gradients
            raise Fault(*find_mistakes(self.exercise, answers, wrong) or dict.fromkeys(
                sentence for name in wrong for sentence in reasons(name)))
        return answers


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


def find_exercise(path: pathlib.Path) -> Exercise:
    """Return the exercise that a file answers: by its name and by the function that it defines."""
    try:
        tree = ast.parse(source_of(path), str(path))
    except (RecursionError, MemoryError):
        raise Fault("Python cannot read the file: it is nested too deeply.") from None
    except (SyntaxError, ValueError) as error:      # the latter for a zero byte
        text = getattr(error, "text", None)
        raise Fault(f"Python cannot read the file: {error}"
                    + (f": {shorten(text.strip())}" if text else ".")) from None
    defined = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    possible = [exercise for exercise in exercises() if exercise.name == path.stem] or exercises()
    for exercise in possible:
        if exercise.function in defined:
            return exercise
    raise Fault(f"{path.name} defines {first_of(defined) or 'no function'}, and should define "
                f"{any_of([exercise.function for exercise in possible])}.")


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


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Raise a Fault if a file replaces what it is judged with, after putting that back."""
    before = [(module, dict(vars(module))) for module in map(sys.modules.get, JUDGING)]
    try:
        yield
    finally:
        replaced = [f"{module.__name__}.{name}" for module, names in before for name in names
                    if vars(module).get(name) is not names[name]]
        for module, names in before:
            vars(module).update(names)
        if replaced:
            raise Fault(f"It replaces {first_of(replaced)}, with which it is judged.  Give what "
                        "you make a name of your own.") from None


@contextlib.contextmanager
def imports_of(path: pathlib.Path, own: list[str]) -> Iterator[None]:
    """Let a file import the student's own exercises that are named; all others are ours."""
    ours = {exercise.name: exercise.module for exercise in exercises()}
    sys.modules.update({name: ours[name] for name in ours.keys() - set(own)})
    sys.path.append(str(path.parent))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(path.parent))
        for name in ours:
            sys.modules.pop(name, None)


def check_form(exercise: Exercise, answer: Outcome, path: pathlib.Path) -> None:
    """Raise a Fault if an answer has not the form of ours, whatever its numbers are."""
    returned, (_, *names) = answer.returned, answer.numbers
    if isinstance(returned, NotImplementedError):
        raise Fault("The line that stands for your answer is still there: put your lines in place "
                    "of " + describe_error(returned, path).partition("  ->  ")[0])
    if answer.changed:
        raise Fault(f"It changes its argument {answer.changed[0]}, which others use too; make a "
                    "new array, as in x = x - 1 in place of x -= 1.")
    if isinstance(returned, BaseException):     # the comparison of numbers says it
        return
    if exercise.is_op:
        back = ", ".join(f"d{name}" for name in names) + "," * (len(names) == 1)
        wanted = f"a value and a tuple of functions, as in return y, ({back})"
        fits = is_value_and_back(returned, len(names))
    elif exercise.is_class:
        return
    elif exercise.tensors:
        wanted, fits = "a Tensor", isinstance(returned, Tensor)
    else:
        wanted, fits = "three arrays, p, m, v", isinstance(returned, tuple) and len(returned) == 3
    if not fits:
        raise Fault(f"It returns {describe(returned)}, and should return {wanted}."
                    + "  Is return missing?" * (returned is None))
    if exercise.is_op:
        check_back(*returned)
    value = answer.numbers["value"]
    if isinstance(value, list) and any(x.dtype.kind != "f" for x in value):
        raise Fault(f"Its value is {describe(value[0])}, and should be of floats.")


def is_value_and_back(returned: object, count: int) -> bool:
    """Whether this is a value and its vjps: `count` functions, or one for all of several."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        return False
    back = returned[1]
    if callable(back):
        return count > 1
    return isinstance(back, (tuple, list)) and len(back) >= count and all(
        map(callable, back[:count]))


def check_back(value: np.ndarray, back: Callable | Sequence[Callable | None]) -> None:
    """Raise a Fault if the value is a list, or if a vjp changes its argument or returns another
    gradient at its second call."""
    if isinstance(value, (list, tuple)):
        raise Fault(f"Its value is a {type(value).__name__}, and should be an array; .tolist() is "
                    "not needed, and np.array() makes one of a list.")
    g = gradient_of(np.asarray(value))
    for f in [back] if callable(back) else filter(callable, back):
        given = g.copy()
        try:
            with np.errstate(all="ignore"):
                first, again = copy.deepcopy(f(given)), f(g.copy())
        except BaseException:               # the comparison of numbers says it
            continue
        if not np.array_equal(given, g):
            raise Fault("It changes g, the gradient that it gets, which others use too; make a new "
                        "array, as in g = g * y in place of g *= y.")
        if not all(np.array_equal(x, y, equal_nan=True)
                   for x, y in zip(as_list(first), as_list(again))):
            raise Fault("It returns another gradient when it is called a second time: it changes "
                        "an array that it has kept, as p[...] -= 1 does.  Make a new one.")
