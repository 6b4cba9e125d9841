"""Judge what a student has written: right, or which mistake it is.

An answer is compared with the exercise's own, values and gradients.  Where they differ, the known
mistakes are tried: the one that gives the student's numbers is the student's.
"""
import ast
import contextlib
import copy
import difflib
import faulthandler
import importlib
import inspect
import io
import json
import linecache
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import traceback
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

from minigrad import Tensor
from minigrad.kernels.build import compiling
from model.console import startup
from model.walk import trial
from model.walk.outcomes import (REFUSED, Outcome, agree, as_array, broken, described, difference,
                                 differentiated, expected, named, outcome, place)
from model.walk.practice import Exercise, exercises, op

SECONDS = 10        # for the cases of an exercise; what takes longer is an endless loop
TRAINING = trial.SECONDS + 180      # with compiling, and what comes before and after


class Verdict(NamedTuple):
    """Whether an answer is right, and paragraphs that say so; one with line breaks is a table."""
    right: bool
    said: list[str]

    def text(self) -> str:
        """Return what there is to say, in lines of 80 columns."""
        return "\n".join(part if "\n" in part else
                         textwrap.fill(part, 80, break_long_words=False) for part in self.said)


class Fault(Exception):
    """An answer is wrong; the arguments are the paragraphs to say."""


def check(path: str | os.PathLike) -> Verdict:
    """Judge a student's file in a process of its own: it may print, exit or never end."""
    path = os.path.abspath(path)
    with tempfile.TemporaryDirectory() as folder:
        verdict, stack = (pathlib.Path(folder, name) for name in ("verdict", "stack"))
        stack.touch()
        subprocess.run([sys.executable, "-m", "model.walk.judge", path, verdict, stack],
                       cwd=startup.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if verdict.exists():
            return Verdict(*json.loads(verdict.read_text(encoding="utf-8")))
        lines = re.findall(r'File "(.*)", line (\d+)', stack.read_text("utf-8", "replace"))
    if any(file == compiling.__file__ for file, _ in lines):
        return check(path)                  # it had to wait for the compiler; this is done now
    if not lines:
        return Verdict(False, ["The file ended the program before it was judged.  Take os._exit() "
                               "and the like out of it."])
    at = [f"  It was in line {number}: {linecache.getline(file, int(number)).strip()}"
          for file, number in lines if file == path][:1]
    return Verdict(False, ["It did not end in time.  Is there a loop without end?" + "".join(at)])


def main(path: str, verdict: str, stack: str) -> None:
    """Judge a file, and write the verdict into another; or, if it does not end, the stack."""
    sys.dont_write_bytecode = True          # leave nothing in the student's folder
    with open(stack, "w", encoding="utf-8") as file:

        @contextlib.contextmanager
        def limited(seconds):
            faulthandler.dump_traceback_later(seconds, exit=True, file=file)
            try:
                yield
            finally:
                faulthandler.cancel_dump_traceback_later()
        found = json.dumps(judge(path, limited))
    pathlib.Path(verdict).write_text(found, encoding="utf-8")


def judge(path: str | os.PathLike, limited: Callable = contextlib.nullcontext) -> Verdict:
    """Judge a student's file in this process; what the student wrote runs in `limited(seconds)`.

    At first the exercises that it imports are ours, so that it is judged alone.  Then it is judged
    with those of the student's that are right themselves.
    """
    path = pathlib.Path(os.path.abspath(path))
    theirs, remarks = [], []
    try:
        exercise, tree = recognised(path)
        remarks += compared(path, exercise, [], limited)
        for name in imported_by(tree, path, {exercise.name}):
            part = path.with_name(f"{name}.py")
            if passes(part, limited):
                theirs.append(name)
            else:
                remarks.append(f"{part.name} is {'not right yet' if part.exists() else 'not here'},"
                               " so ours stood in for it.")
        if theirs:
            compared_together(path, exercise, theirs, limited)
        if exercise.function == "model":
            with limited(TRAINING), importable(path, theirs):
                right, said = trial.run(loaded(path, exercise))
            return Verdict(right, said + remarks)
    except Fault as fault:
        return Verdict(False, list(fault.args) + remarks)
    inputs = "small, large and in float32" + (
        "; the gradient by every argument, entry by entry, also by central differences"
        if exercise.tensors else "")
    with_theirs = f"  It works with your {', '.join(theirs)} too." if theirs else ""
    following = exercises()[exercises().index(exercise) + 1]
    return Verdict(True, [
        f"Right.  Checked: the value for {len(exercise.cases)} inputs, {inputs}.{with_theirs}",
        *remarks, f"Next: {following.name}.py"])


def recognised(path: pathlib.Path) -> tuple[Exercise, ast.Module]:
    """Return the exercise that a file answers, by the function it defines, and its syntax tree."""
    try:
        source = path.read_bytes()
        tree = ast.parse(source, str(path))
    except OSError as error:
        raise Fault(f"{path} cannot be read: {error.strerror}.  Name one of the files that python "
                    "-m model.walk --exercise writes.") from None
    except (SyntaxError, ValueError) as error:      # the latter of a zero byte
        if line := getattr(error, "lineno", None):
            raise Fault(f"Python cannot read line {line}: {(error.text or '').strip()}  "
                        f"({error.msg})") from None
        raise Fault(f"Python cannot read the file: {error}.") from None
    if not source.strip():
        raise Fault(f"{path.name} is empty; without it, python -m model.walk --exercise writes it "
                    "anew.")
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    by_name = [exercise for exercise in exercises() if exercise.name == path.stem]
    for exercise in by_name + exercises():
        if exercise.function in defined:
            return exercise, tree
    if not by_name:
        raise Fault(f"No function in {path.name} is that of an exercise; they are "
                    f"{', '.join(exercise.function for exercise in exercises())}.")
    wanted = by_name[0].function
    near = difflib.get_close_matches(wanted, defined, 1)
    raise Fault(f"The function {wanted} is missing"
                + (f"; is it {near[0]}?  Keep its name as it was." if near else "."))


def imported_by(tree: ast.AST, path: pathlib.Path, seen: set[str]) -> Iterator[str]:
    """Yield the names of the exercises that a file imports, and that those import in turn."""
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) else [
            alias.name for alias in getattr(node, "names", []) if isinstance(node, ast.Import)]
        for exercise in exercises():
            if exercise.name in names and exercise.name not in seen:
                seen.add(exercise.name)
                yield exercise.name
                with contextlib.suppress(OSError, SyntaxError, ValueError):
                    part = path.with_name(f"{exercise.name}.py")
                    yield from imported_by(ast.parse(part.read_bytes()), part, seen)


def passes(path: pathlib.Path, limited: Callable) -> bool:
    """Whether a file is right by itself."""
    try:
        compared(path, recognised(path)[0], [], limited)
    except Fault:
        return False
    return True


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
            f"{path.stem} is right alone, and so are your {' and '.join(theirs)}, but together "
            "they are not.  " + (f"With our {' or '.join(guilty)} it is right: look at how the two "
                                 "call each other." if guilty else ""), *fault.args) from None


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
    module = types.ModuleType(path.stem)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except REFUSED as error:
        raise Fault(f"The file does not run: {broken(error, path)}") from None
    f = getattr(module, exercise.function, None)
    if not callable(f):
        raise Fault(f"{exercise.function} is {described(f)}, and should be a function.")
    if hasattr(exercise.answer, "__wrapped__") and not hasattr(f, "__wrapped__"):
        f = op(f)                           # the line above it is gone
    signature = inspect.signature(f).replace(return_annotation=inspect.Signature.empty)
    for case in exercise.cases:
        try:
            signature.bind(*case)
        except TypeError:
            called = ", ".join(exercise.parameters[:len(case)])
            raise Fault(f"It is called as {exercise.function}({called}), and yours is "
                        f"{exercise.function}{signature}; keep its first line as it was.") from None
    return f


def compared(path: pathlib.Path, exercise: Exercise, theirs: list[str], limited: Callable
             ) -> list[str]:
    """Compare a file's answer with ours; return remarks on it, or raise a Fault."""
    cases, printed = exercise.cases, io.StringIO()
    ours = [expected(exercise, (), i) for i in range(len(cases))]       # this may compile kernels
    with limited(SECONDS), contextlib.redirect_stdout(printed), importable(path, theirs):
        f = loaded(path, exercise)
        *made, again = [outcome(f, exercise, case) for case in [*cases, cases[0]]]
        check_form(f, exercise, made[0], again, path)
        wrong = [name for name in made[0].numbers
                 if not all(agree(a, b, name) for a, b in zip(made, ours))]
        if exercise.tensors and not wrong and (fault := differentiated(f, exercise)):
            raise Fault(fault)
    if "value" in wrong:
        wrong = ["value"]                   # its gradients mean nothing
    said = dict.fromkeys(named(exercise, made, wrong)) if wrong else {}
    for name in [] if said else wrong:      # several mistakes in several gradients
        said |= dict.fromkeys(named(exercise, made, [name]) or [difference(made, ours, name, path)])
    if said:
        raise Fault(*said)
    remarks = []
    if printed.getvalue():
        remarks.append("It prints something; that is fine while you look, and can go now.")
    if any(as_array(a.returned).dtype != as_array(b.returned).dtype for a, b in zip(made, ours)):
        remarks.append("It makes float64 of float32, which takes twice the room.  NumPy's numbers, "
                       "such as np.sqrt(2), do that; Python's, such as math.sqrt(2), do not.")
    return remarks


def check_form(f: Callable, exercise: Exercise, first: Outcome, again: Outcome, path: pathlib.Path
               ) -> None:
    """Raise a Fault if something is wrong before the numbers are looked at."""
    error, returned, wanted = first.numbers["value"], first.returned, "a Tensor"
    if isinstance(error, NotImplementedError):
        raise Fault("Nothing is written yet: put your lines in place of "
                    + place(traceback.extract_tb(error.__traceback__), path))
    if first.changed:
        raise Fault(f"It changes its argument {first.changed[0]}, which others use too; make a new "
                    "array, as in x = x - 1 in place of x -= 1.")
    if hasattr(exercise.answer, "__wrapped__"):     # look at what the engine gets
        wanted = "a value and a tuple of functions, as in return y, (dx,)"
        try:
            returned = f.__wrapped__(*copy.deepcopy(list(first.given.values())))
        except REFUSED:
            return
        fits = isinstance(returned, tuple) and len(returned) == 2
        if fits and callable(returned[1]) and len(first.numbers) == 2:
            raise Fault("The second thing it returns is a function, and should be a tuple of "
                        "functions: (dx,) with its comma.")
        if fits and not callable(returned[1]) and len(returned[1]) < len(first.numbers) - 1:
            raise Fault(f"It returns {len(returned[1])} functions that go back, and should return "
                        f"one for each argument: {', '.join(exercise.parameters[:3])}.")
    elif isinstance(error, REFUSED):
        return
    elif exercise.tensors:
        fits = isinstance(returned, Tensor)
    else:
        wanted, fits = "three arrays, p, m, v", isinstance(returned, tuple) and len(returned) == 3
    if returned is None:
        raise Fault(f"It returns nothing (None), and should return {wanted}.  Is return missing?")
    if not fits:
        raise Fault(f"It returns {described(returned)}, and should return {wanted}.")
    if isinstance(error, list) and any(x.dtype.kind != "f" for x in error):
        raise Fault(f"Its value is {described(error[0])}, and should be of floats.")
    if not agree(first, again, "value"):
        raise Fault("It gives two different values for the same arguments.  Does it use random "
                    "numbers, or keep something between calls?")


if __name__ == "__main__":
    main(*sys.argv[1:])
