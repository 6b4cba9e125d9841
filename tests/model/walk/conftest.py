"""What the tests of the judge share: students' files, and what is said of them."""
import sys

import pytest

from model.walk import judge, trial
from model.walk.practice import PACKAGE, exercises
from tests.kit import written

EXERCISES = {exercise.function: exercise for exercise in exercises()}
IMPORTS = """import math
import numpy as np
import minigrad as mg
from model.walk.practice import op
"""


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr(trial, "run", lambda *arguments: (True, ["It is trained."]))


def solved(function, *mistakes):
    """The source of a student's file with our answer, with these mistakes."""
    exercise = EXERCISES[function]
    before, _, after = exercise.source.partition(exercise.code())
    return (before + exercise.code(*mistakes) + after).replace(f"{PACKAGE}.", "")


@pytest.fixture(autouse=True)
def folders_are_forgotten(monkeypatch):
    """The judge leaves the student's folder in sys.path, as its process ends."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def said(tmp_path, no_training):
    """What the judge says about a source, beside files with the student's own parts; right answers
    begin with "Right"."""
    def judged(function, source, **parts):
        for part, text in (parts | {function: source}).items():
            path = written(tmp_path / f"{EXERCISES[part].name}.py", text)
        verdict = judge.judge(path)
        assert verdict.right == verdict.said[0].startswith(("Right.", "It is trained."))
        return verdict.said
    return judged


@pytest.fixture
def changed(said):
    """What the judge says about our answer with a piece of its file replaced."""
    return lambda function, right, wrong: said(function, solved(function).replace(right, wrong))
