"""Exercises: what a file of one holds, and the folder of files that a student fills in.

An exercise is one file in model/walk/exercises:

- its docstring is the text for the student;
- its first function is the answer.  The student gets it without its body;
- `cases(rng)` returns the arguments to try it with, the first of them small enough to be shown;
- `MISTAKES` has a sentence for each mistake that has a name, and where it is in the answer:
  {right: wrong}, pieces of its source.  The answer with these pieces exchanged is the mistake;
- `TENSORS`, if it is there and false, says that the answer takes and returns plain arrays.
"""
import ast
import functools
import importlib
import inspect
import os
import pathlib
import pkgutil
from collections.abc import Callable

import numpy as np

import minigrad as mg
from model.storage.files import replacing

PACKAGE = "model.walk.exercises"
EMPTY = 'raise NotImplementedError("write it here")'


def op(f: Callable) -> Callable:
    """Make `f(*arrays) -> value, vjps` an op on Tensors, as `mg.op` does.  It is not listed in
    `mg.OPS`, where an op of the engine may have its name."""
    listed = dict(mg.OPS)
    mg.OPS.clear()
    lifted = mg.op(f)
    mg.OPS.clear()
    mg.OPS.update(listed)
    return lifted


class Exercise:
    """One exercise, read from its file.

    Attributes
    ----------
    name : of the file, such as "e1_softmax".
    function, answer : the name of the function to write, and the function as it should be.
    parameters : the names of its arguments.
    tensors : whether it works on Tensors, so that it has gradients; else on arrays.
    mistakes : a sentence for each known mistake.
    cases : the arguments to try it with; they are copied before a student's code gets them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = importlib.import_module(f"{PACKAGE}.{name}")
        self.source = inspect.getsource(self.module)
        self._definition = next(node for node in ast.parse(self.source).body
                                if isinstance(node, ast.FunctionDef))
        self.function = self._definition.name
        self.answer = getattr(self.module, self.function)
        self.parameters = list(inspect.signature(self.answer).parameters)
        self.tensors = getattr(self.module, "TENSORS", True)
        self.mistakes = list(self.module.MISTAKES)
        self.cases = self.module.cases(np.random.default_rng(0))

    def task(self) -> str:
        """Return the file that a student gets: the text, the imports, and the function to write."""
        head = self.source.splitlines()[:self._definition.body[0].end_lineno]
        return "\n".join(head).replace(f"{PACKAGE}.", "") + f"\n    {EMPTY}\n"

    def code(self, *mistakes: str) -> str:
        """Return the source of the answer, with these mistakes.

        Raises
        ------
        LookupError : they cannot be made together.
        """
        start = min(node.lineno for node in (self._definition, *self._definition.decorator_list))
        code = "\n".join(self.source.splitlines()[start - 1:self._definition.end_lineno])
        for sentence in mistakes:
            for right, wrong in self.module.MISTAKES[sentence].items():
                if code.count(right) != 1:
                    raise LookupError(f"{right!r} is not once in {self.function}: {sentence}")
                code = code.replace(right, wrong)
        return code

    @functools.cache
    def mistaken(self, *mistakes: str) -> Callable:
        """Return the answer with these mistakes; raise as `code` does."""
        names = dict(vars(self.module))
        exec(self.code(*mistakes), names)
        return names[self.function]


@functools.cache
def exercises() -> list[Exercise]:
    """Return all exercises, in their order."""
    folder = importlib.import_module(PACKAGE).__path__
    return [Exercise(name) for name in sorted(file.name for file in pkgutil.iter_modules(folder))]


def write(folder: str | os.PathLike) -> list[pathlib.Path]:
    """Write the files to fill in, and return those that are new.  What has the name of one stays as
    it is.

    Raises
    ------
    OSError : the folder or a file cannot be written.  No file is left half written.
    """
    folder, new = pathlib.Path(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    for exercise in exercises():
        path = folder / f"{exercise.name}.py"
        if not os.path.lexists(path):
            with replacing(path) as file:
                file.write(exercise.task().encode())
            new.append(path)
    return new
