"""The exercises and the folder for the student: the answers are right, and no work is lost."""
import ast
import re

import numpy as np
import pytest

import minigrad as mg
from model.walk import __main__ as command
from model.walk import practice
from model.walk.outcomes import arguments, outcome_of_ours
from model.walk.practice import EMPTY, exercises, op, write
from tests.kit import ROOT, leaf, refused

pytestmark = pytest.mark.late
EXERCISES = exercises()
NAMES = [exercise.name for exercise in EXERCISES]


def test_exercises_are_counted_from_0_and_the_page_counts_mistakes_with_names_of_their_own():
    assert [name[:3] for name in NAMES] == [f"e{n}_" for n in range(len(NAMES))]
    sentences = {sentence for exercise in EXERCISES for sentence in exercise.mistakes}
    page = (ROOT / "docs/walk.md").read_text(encoding="utf-8")
    said = re.search(r"more than (\d+) mistakes have a name, (\d+) or more", " ".join(page.split()))
    many, few = map(int, said.groups())
    assert len(sentences) > many and min(len(e.mistakes) for e in EXERCISES) >= few
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in sentences)
    head, heads = (EXERCISES[n].mistakes for n in (3, 4))       # heads have those of a head, too
    assert "Softmax is applied twice." in head.keys() & heads.keys()


@pytest.mark.parametrize("exercise", EXERCISES[1:], ids=NAMES[1:])
def test_each_exercise_of_arrays_has_large_numbers_and_float32_among_its_cases(exercise):
    arrays = []
    for case in exercise.cases:
        arguments(lambda x, name: arrays.append(np.asarray(x)), exercise, case)
    assert any(x.dtype == np.float32 for x in arrays)
    assert max(abs(x).max() for x in arrays if x.dtype.kind == "f") > 100


@pytest.mark.parametrize("exercise", EXERCISES, ids=NAMES)
def test_an_answer_is_finite_and_has_the_gradients_of_central_differences(exercise):
    for i in range(len(exercise.cases)):
        numbers = outcome_of_ours(exercise, (), i).numbers
        assert all(np.isfinite(x).all() for arrays in numbers.values() for x in arrays)
    if exercise.tensors:                # every entry in the first case, and two directions
        for case, full in zip(exercise.cases, (True, False)):
            leaves = {}
            arguments(lambda x, name: leaves.update({name: x}), exercise, case)
            names = [name for name, x in leaves.items() if getattr(x, "dtype", int) == float]
            assert mg.gradcheck(lambda *tensors: exercise.answer(*arguments(
                lambda x, name: (leaves | dict(zip(names, tensors)))[name], exercise, case)),
                *(leaves[name] for name in names), full=full)


def test_the_worked_numbers_in_the_texts_are_right():
    softmax, cross_entropy, _, _, layer_norm, adamw = (e.answer for e in EXERCISES[1:7])
    assert np.allclose(softmax(mg.Tensor([0, 1.0986])).data, [1 / 4, 3 / 4], atol=1e-5)
    assert np.isclose(cross_entropy(mg.Tensor([[0.0, 0.0]]), np.array([1])).item(), 0.6931, 1e-4)
    assert np.allclose(layer_norm(mg.Tensor([[1.0, 3.0]]), np.ones(2), np.zeros(2)).data, [[-1, 1]],
                       atol=1e-4)
    assert np.isclose(adamw(1, 0.5, 0, 0, 1, 0.1, 0.9, 0.99, 1e-8, 0)[0], 0.9)


@pytest.mark.parametrize("exercise", EXERCISES, ids=NAMES)
def test_a_task_has_the_text_and_an_empty_function_and_nothing_of_the_answer(exercise):
    task = exercise.task()
    tree = ast.parse(task)
    assert ast.get_docstring(tree).startswith(f"Exercise {exercise.name[1]}: ")
    (f,) = (node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    assert f.name == exercise.function and ast.get_docstring(f) and practice.PACKAGE not in task
    assert all(len(part.body) == 2 for part in f.body[2:] or [f]) and task.endswith(f"  {EMPTY}\n")
    assert max(map(len, ast.get_docstring(tree).splitlines())) <= 80


def test_what_a_student_has_written_is_never_written_over(tmp_path):
    folder = tmp_path / "a" / "b"
    new = write(folder)
    assert [path.name for path in new] == [f"{name}.py" for name in NAMES]
    assert [path.read_text(encoding="utf-8") for path in new] == [e.task() for e in EXERCISES]
    new[1].write_text("mine", encoding="utf-8")
    new[2].unlink()
    assert write(folder) == [new[2]] and new[1].read_text(encoding="utf-8") == "mine"
    assert sorted(path.name for path in folder.iterdir()) == [path.name for path in new]


def test_a_full_disk_leaves_no_part_of_a_file_and_is_answered_in_a_line(tmp_path, full_disk,
                                                                        capsys):
    said = refused(capsys, "--exercise", tmp_path, main=command.main)
    assert "e0_scalars.py: No space left on device" in said and not list(tmp_path.iterdir())


def test_an_op_of_a_student_leaves_the_engine_s_op_of_that_name_alone():
    before = list(mg.OPS.items())

    @op
    def softmax(x):
        return 2 * x, (lambda g: 2 * g,)
    x = leaf(np.ones(3))
    softmax(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2] and list(mg.OPS.items()) == before
    assert mg.OPS["softmax"] is mg.softmax
