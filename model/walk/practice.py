"""The exercises (docs/walk.md, "To add an exercise"), and the files that a student fills in."""
import functools
import importlib
import inspect
import os
import pathlib
import re
from collections.abc import Callable

import numpy as np

import minigrad as mg
from data.files import replacing
from model.walk import scalars

PACKAGE = "model.walk.exercises"
FOLDER = pathlib.Path(__file__).with_name("exercises")
CHANGE = re.compile(r"((?:^-.*\n)+)((?:^\+.*\n)+)", re.M)      # lines that go, lines that come
EMPTY = 'raise NotImplementedError("write it here")'
BODY = re.compile(r'^( *def .*\n( +)"""(?:.|\n)*?"""\n)(?:\2.*\n|\n(?=\2))+', re.M)

op = functools.partial(mg.op, register=False)       # the engine may have an op of that name


class Exercise:
    """One exercise, read from its file, and from that of its mistakes.

    Attributes
    ----------
    name : of the file, such as "e1_softmax".
    function, answer : the name of the function to write, and the function as it should be.
    parameters : the names of its arguments.
    tensors : whether it works on Tensors, so that it has gradients; else on arrays.
    is_op, is_class : whether it returns its gradients too; or is a class, on which programs run.
    mistakes : for each known mistake, by its sentence, the changes of the answer that make it.
    cases : the arguments to try it with; they are copied before a student's code gets them.  The
        last are the second ones in float32, unless it is a class.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = importlib.import_module(f"{PACKAGE}.{name}")
        self.source = inspect.getsource(self.module)
        self.function = re.search(r"^(?:def|class) (\w+)", self.source, re.M)[1]
        self.answer = getattr(self.module, self.function)
        self.answer_source = inspect.getsource(self.answer)
        self.parameters = list(inspect.signature(self.answer).parameters)
        self.is_class = inspect.isclass(self.answer)
        self.tensors = getattr(self.module, "TENSORS", not self.is_class)
        self.is_op = hasattr(self.answer, "__wrapped__")
        self.mistakes = read_mistakes(name) | getattr(self.module, "more_mistakes", dict)()
        self.cases = list(self.module.cases(np.random.default_rng(0)))
        if not self.is_class:
            _, second, *_ = self.cases
            self.cases.append([map_leaves(in_float32, x, "") for x in second])

    def task(self) -> str:
        """Return the file that a student gets: the text, the imports, and what is to be written."""
        text = self.source.partition(self.code())[0].replace(f"{PACKAGE}.", "")
        return text + BODY.sub(rf"\1\2{EMPTY}\n", self.code())

    def code(self, *mistakes: str) -> str:
        """Return the source of the answer, with these mistakes.

        Raises
        ------
        LookupError : they cannot be made together.
        """
        code = self.answer_source
        for sentence in mistakes:
            for right, wrong in self.mistakes[sentence].items():
                if code.count(right) != 1:
                    raise LookupError(f"{right!r} is not once in {self.function}: {sentence}")
                code = code.replace(right, wrong)
        return code

    @functools.cache
    def with_mistakes(self, *mistakes: str) -> Callable:
        """Return the answer with these mistakes, or the engine; raise as `code` does."""
        if self.is_class and not mistakes:
            return scalars.ENGINE
        names = dict(vars(self.module))
        exec(self.code(*mistakes), names)
        return names[self.function]


def map_leaves(leaf: Callable, x: object, name: str) -> object:
    """Return x with leaf(value, path) in place of each value in its dictionaries and lists."""
    if isinstance(x, dict):
        return {key: map_leaves(leaf, part, f'{name}["{key}"]') for key, part in x.items()}
    if isinstance(x, list):
        return [map_leaves(leaf, part, f"{name}[{i}]") for i, part in enumerate(x)]
    return leaf(x, name)


def in_float32(x: object, _: str) -> object:
    """Return an array of floats in float32, and all else as it is."""
    is_float = isinstance(x, np.ndarray) and x.dtype.kind == "f"
    return x.astype(np.float32) if is_float else x


def read_mistakes(name: str) -> dict[str, dict[str, str]]:
    """Return the mistakes in the text beside an exercise: for each sentence, the pieces of the
    answer that change, and what they become."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    mistakes = {}
    for block in text.split("\n\n"):
        sentence, _, changes = block.partition("\n")
        mistakes[sentence] = {_unmarked(right): _unmarked(wrong)
                              for right, wrong in CHANGE.findall(f"{changes}\n")}
    return mistakes


def _unmarked(lines):
    return "\n".join(line[2:] for line in lines.splitlines())


@functools.cache
def exercises() -> list[Exercise]:
    """Return all exercises, in their order."""
    return [Exercise(path.stem) for path in sorted(FOLDER.glob("e*.py"))]


def write(folder: str | os.PathLike) -> list[pathlib.Path]:
    """Write the files to fill in, and return those that are new.  A file that is there already is
    not changed.

    Raises
    ------
    OSError : the folder or a file cannot be written.  No file is left half written.
    """
    folder = pathlib.Path(folder)
    new = []
    folder.mkdir(parents=True, exist_ok=True)
    for exercise in exercises():
        path = folder / f"{exercise.name}.py"
        if not os.path.lexists(path):
            with replacing(path) as file:
                file.write(exercise.task().encode())
            new.append(path)
    return new
