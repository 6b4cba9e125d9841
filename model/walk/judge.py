"""Judge a student's file: is it right, and if not, which mistake is in it?

Values and gradients are compared with those of our answer.  Where they differ, the known mistakes
are tried in our answer: the one that gives the student's numbers is the student's.
"""
import ast
import contextlib
import importlib
import os
import pathlib
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from minigrad import Tensor
from minigrad.words import any_of, first_of, in_a_line
from model.walk import scalars, trial
from model.walk.outcomes import Outcome, agree, find_mistakes, outcome, outcome_of_ours
from model.walk.practice import Exercise, exercises
from model.walk.words import describe, describe_error, first_difference, shorten

SECONDS = 10        # for the cases of an exercise; what takes longer is an endless loop
TRAINING = trial.SECONDS + 180      # with compiling, and what comes before and after


class Verdict(NamedTuple):
    """Whether an answer is right, and paragraphs that say so; one with line breaks is a table."""
    right: bool
    said: list[str]

    def text(self) -> str:
        """Return the paragraphs in lines of 80 columns that a terminal can show."""
        lines = []
        for paragraph in self.said:
            rows = [in_a_line(row) for row in paragraph.split("\n")]
            if len(rows) == 1:
                rows = textwrap.wrap(rows[0], 80, break_long_words=False)
            lines += rows
        return "\n".join(lines)


class Fault(Exception):
    """An answer is wrong; the arguments are the paragraphs that say why."""


def judge(path: str | os.PathLike, limit: Callable = contextlib.nullcontext,
          report: Callable = print) -> Verdict:
    """Judge a student's file in this process.  The student's code runs inside `limit(seconds)`;
    `report` gets a line on each part of a long training.

    First the exercises that the file imports are ours, so that it is judged alone.  Then it is
    judged with the student's own, if they are right themselves.  The modules that it imports, and
    their folder in sys.path, stay.
    """
    own = []
    remarks = []
    try:
        answer = Answer(pathlib.Path(path).absolute(), limit)
        remarks += answer.compare()
        for part in imported_by(answer):
            try:
                Answer(part, limit).compare()
                own.append(part.stem)
            except Fault:
                state = "not right yet" if part.exists() else "not here"
                remarks.append(f"{part.name} is {state}, so ours stood in for it.")
        if own:
            answer.compare_together(own)
        if answer.exercise.function == "model":
            right, said = answer.train(report)
            return Verdict(right, said + remarks)
    except Fault as fault:
        return Verdict(False, [*fault.args, *remarks])
    number = exercises().index(answer.exercise)
    following = [f"Next: {later.name}.py" for later in exercises()[number + 1:number + 2]]
    return Verdict(True, [praise(answer.exercise, own), *remarks, *following])


def praise(exercise: Exercise, own: list[str]) -> str:
    """Say that an answer is right, and what was checked."""
    what = "the value"
    if exercise.tensors:
        what += " and the gradient by every argument"
    inputs = scalars.CHECKED if exercise.is_class else "inputs, large ones and float32 among them"
    said = f"Right.  Checked: {what} for {len(exercise.cases)} {inputs}."
    if own:
        said += f"  It works with your {', '.join(own)} too."
    return said


class Answer:
    """A student's file as the answer to an exercise.  Its code runs inside `limit(seconds)`."""

    def __init__(self, path: pathlib.Path, limit: Callable) -> None:
        self.path = path
        self.limit = limit
        self.exercise = find_exercise(path)

    def compare(self, own: Sequence[str] = ()) -> list[str]:
        """Compare the answer with ours, while the file imports the student's own exercises that are
        named, and else ours.  Return remarks on it, or raise a Fault."""
        ours = [outcome_of_ours(self.exercise, (), i) for i in range(len(self.exercise.cases))]
        remarks = []
        use_parts(self.path.parent, own)
        try:
            with self.limit(SECONDS), warnings.catch_warnings(action="ignore"):
                answers = self.run_cases(ours)
                if self.exercise.is_class:
                    remarks += scalars.three_ways(*answers[-1])
        except Fault:
            raise
        except BaseException as error:
            raise Fault(f"It cannot be judged: {describe_error(error, self.path)}") from None
        if any(map(is_widened, answers, ours)):
            remarks.append("It turns float32 into float64, which takes twice the memory.  NumPy's "
                           "numbers and arrays, such as np.sqrt(2) or a mask of np.ones, do that; "
                           "Python's numbers, such as math.sqrt(2), do not.")
        return remarks

    def compare_together(self, own: list[str]) -> None:
        """Compare the answer together with the student's own parts; each is right alone."""
        try:
            self.compare(own)
        except Fault as fault:
            raise Fault(
                f"{self.path.stem} and your {' and '.join(own)} are right alone, but together they "
                "are not: look at how they call each other.", *fault.args) from None

    def train(self, report: Callable) -> tuple[bool, list[str]]:
        """Train the model of the last exercise; return as `trial.run` does."""
        with self.limit(TRAINING):
            try:
                return trial.run(self.load(), report)
            except BaseException as error:
                raise Fault("It is right for short texts, and fails in the training, on texts of "
                            f"{trial.T} characters: {describe_error(error, self.path)}") from None

    def load(self) -> Callable:
        """Run the file, and return the function in it that answers the exercise."""
        names = {"__name__": self.path.stem, "__file__": str(self.path)}
        try:
            with np.errstate():             # what it sets ends here
                exec(compile(source_of(self.path), str(self.path), "exec"), names)
        except BaseException as error:
            raise Fault(f"The file does not run: {describe_error(error, self.path)}") from None
        f = names.get(self.exercise.function)
        if not callable(f):
            wanted = "class" if self.exercise.is_class else "function"
            raise Fault(f"{self.exercise.function} is {describe(f)}, and should be a {wanted}.")
        return f

    def run_cases(self, ours: list[Outcome]) -> list[Outcome]:
        """Return what the answer makes of the cases; raise a Fault if it differs from ours."""
        f = self.load()
        answers = [outcome(f, self.exercise, case) for case in self.exercise.cases]
        for answer in answers:
            check_form(self.exercise, answer, self.path)
        wrong = [name for name in answers[0].numbers
                 if not all(agree(a, b, name) for a, b in zip(answers, ours))]

        if not wrong:
            return answers
        if "value" in wrong:
            wrong = ["value"]                   # its gradients mean nothing
        reasons = list(find_mistakes(self.exercise, answers, wrong))
        for name in [] if reasons else wrong:   # each gradient may have a mistake of its own
            reasons += find_mistakes(self.exercise, answers, [name]) or [
                first_difference(answers, ours, name, self.path)]
        raise Fault(*dict.fromkeys(reasons))


def is_widened(answer: Outcome, ours: Outcome) -> bool:
    """Whether a value has float64 where ours has float32."""
    values = zip(answer.numbers["value"], ours.numbers["value"])
    return any(x.itemsize > y.itemsize for x, y in values)


def source_of(path: pathlib.Path) -> bytes:
    """Return the contents of a student's file."""
    try:
        if path.exists() and not path.is_file():        # to open a named pipe takes for ever
            raise OSError(None, "it is no regular file")
        return path.read_bytes()
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
        said = f"Python cannot read the file: {error}"
        text = getattr(error, "text", None)
        if text:
            raise Fault(f"{said}: {shorten(text.strip())}") from None
        raise Fault(f"{said}.") from None
    defined = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    possible = [exercise for exercise in exercises() if exercise.name == path.stem] or exercises()
    for exercise in possible:
        if exercise.function in defined:
            return exercise
    raise Fault(f"{path.name} defines {first_of(defined) or 'no function'}, and should define "
                f"{any_of([exercise.function for exercise in possible])}.")


def imported_by(answer: Answer) -> list[pathlib.Path]:
    """Return the student's files of the exercises that an answer imports, and that those import in
    turn, the last exercise first: each may import earlier ones."""
    source = source_of(answer.path)
    found = []
    for exercise in reversed(exercises()):
        line = rf"^[ \t]*(from|import)\b.*\b{exercise.name}\b"
        if exercise is not answer.exercise and re.search(line.encode(), source, re.M):
            part = answer.path.with_name(f"{exercise.name}.py")
            found.append(part)
            source += b"\n" + part.read_bytes() if part.is_file() else b""
    return found


def use_parts(folder: pathlib.Path, own: Sequence[str]) -> None:
    """From here on, import the exercises that are named from the student's folder; all others are
    ours."""
    for exercise in exercises():
        sys.modules[exercise.name] = exercise.module
    for name in own:
        del sys.modules[name]
    sys.path.append(str(folder))
    importlib.invalidate_caches()


def check_form(exercise: Exercise, answer: Outcome, path: pathlib.Path) -> None:
    """Raise a Fault if an answer has not the form of ours, whatever its numbers are."""
    returned = answer.returned
    if isinstance(returned, NotImplementedError):
        place, _, _ = describe_error(returned, path).partition("  ->  ")
        raise Fault("The line that stands for your answer is still there: put your lines in place "
                    f"of {place}")
    if exercise.is_class or isinstance(returned, BaseException):
        return                                  # the comparison of numbers says it
    if exercise.is_op:
        _, *names = answer.numbers              # the first is "value"
        fits = is_value_and_back(returned, len(names))
        vjps = ", ".join(f"d{name}" for name in names)
        if len(names) == 1:
            vjps += ","                         # a tuple of one
        wanted = f"a value and a tuple of functions, as in return y, ({vjps})"
    elif exercise.tensors:
        fits = isinstance(returned, Tensor)
        wanted = "a Tensor"
    else:
        fits = isinstance(returned, tuple) and len(returned) == 3
        wanted = "three arrays, p, m, v"
    if not fits:
        missing = "  Is return missing?" if returned is None else ""
        raise Fault(f"It returns {describe(returned)}, and should return {wanted}.{missing}")
    if exercise.is_op and isinstance(returned[0], (list, tuple)):
        raise Fault(f"Its value is a {type(returned[0]).__name__}, and should be an array; "
                    ".tolist() is not needed, and np.array() makes one of a list.")
    value = answer.numbers["value"]
    if isinstance(value, list) and any(x.dtype.kind != "f" for x in value):
        raise Fault(f"Its value is {describe(value[0])}, and should be of floats.")


def is_value_and_back(returned: object, count: int) -> bool:
    """Whether this is a value and its vjps: `count` functions, or one for all of several."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        return False
    _, back = returned
    if callable(back):
        return count > 1
    return isinstance(back, (tuple, list)) and len(back) >= count and all(
        map(callable, back[:count]))
