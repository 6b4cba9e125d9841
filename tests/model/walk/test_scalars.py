"""Exercise 0: its programs, how any class of scalars is judged on them, and the three ways."""
import re

import numpy as np
import pytest

import minigrad as mg
from model.walk import judge, scalars
from model.walk.practice import exercises
from tests.kit import written

EXERCISE = exercises()[0]
SOURCE = EXERCISE.source
RIGHT = {
    "closures, the youngest first, as in minigrad": """
import heapq, itertools, math
births = itertools.count()
class Value:
    def __init__(self, data, parents=(), back=lambda g: ()):
        self.data, self.grad, self.parents, self.back = data, None, parents, back
        self.birth = next(births)
    def __lt__(self, other):
        return self.birth > other.birth
    def __add__(self, other):
        return Value(self.data + other.data, [self, other], lambda g: (g, g))
    def __mul__(self, other):
        return Value(self.data * other.data, [self, other],
                     lambda g: (g * other.data, g * self.data))
    def tanh(self):
        z = math.tanh(self.data)
        return Value(z, [self], lambda g: (g * (1 - z ** 2),))
    def backward(self):
        waiting, sums = [self], {self: 1.0}
        while waiting:
            value = heapq.heappop(waiting)
            value.grad = sums.pop(value)
            for parent, g in zip(value.parents, value.back(value.grad)):
                if parent not in sums:
                    heapq.heappush(waiting, parent)
                sums[parent] = sums.get(parent, 0) + g
""",
    "a list in place of a set, and NumPy": SOURCE.replace("order, seen = [], set()", "order = []")
    .replace("value not in seen", "value not in order").replace("seen.add(value)", "pass")
    .replace("math.tanh", "np.tanh").replace("import math", "import math\nimport numpy as np")}
CASE = "program 'y = a + b; y.backward()', a 3.0, b -2.0"
# A change of our answer, and words of the first paragraph that answers it.
CHANGED = [
    ("return Value(self.data + other.data,", "Value(self.data + other.data,",
     f"The value cannot be made for {CASE}, c 0.5: TypeError: y is NoneType, and should be a Valu"),
    ("Value(self.data + other.data,", "Value([self.data],", "TypeError: y.data is not a number"),
    ("self.grad = 1.0", "self.grad = Value(1.0)", "'float' object has no attribute 'data'"),
    ("self.grad = 1.0", "self.grad = 1.5",
     f"The gradient by a is wrong for {CASE},\nc 0.5: it is 1.5, and should be 1.  All of its "
     "numbers are 1.5 times what they\nshould be.\n"
     "    program = 'y = a + b; y.backward()'\n    a = 3.\n    b = -2.\n    c = 0.5\n"
     "    yours = 1.5\n    right = 1."),
    ("self.grad = 1.0", "raise NotImplementedError", "The line that stands for your answer is st"),
    ("reversed(order)", "reversed(orders)", "reversed(orders):  ->  NameError: name 'orders' is"),
    ("        visit(self)\n", "        while True:\n            visit(self)\n",
     "def visit(value):  ->  RecursionError: more than 50,000 functions are called")]


@pytest.fixture
def said(tmp_path):
    return lambda source: judge.judge(written(tmp_path / "e0_scalars.py", source)).said


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_class_written_differently_is_accepted_and_shown_beside_the_engine(name, said):
    checked, shown, apart, following = said(RIGHT[name])
    assert checked == f"Right.  Checked: the value for {len(EXERCISE.cases)} {scalars.CHECKED}."
    assert len(re.findall(r"  0\.34571400982514  0\.86736990353464$", shown, re.M)) == 3
    assert float(apart[len("They differ by at most "):-1]) < 1e-15
    assert following == "Next: e1_softmax.py"


@pytest.mark.parametrize("right, wrong, words", CHANGED)
def test_what_no_mistake_explains_is_described_with_its_program(right, wrong, words, said):
    assert words in said(SOURCE.replace(right, wrong))[0]


@pytest.mark.parametrize("wrong, apart", [(lambda x: x * 0.7, "0.16"),
                                          (lambda x: mg.log(x * 0) * 0, "nan"),
                                          (lambda x: x + mg.sqrt(x * 0) * 0, "nan")])
def test_three_ways_that_differ_are_an_error(said, monkeypatch, wrong, apart):
    monkeypatch.setattr(mg, "gelu", lambda x, approximate: wrong(x))
    with np.errstate(all="ignore"):
        (paragraph,) = said(SOURCE)
    assert f"ArithmeticError: three ways to the GELU are {apart}" in paragraph


def test_the_worked_number_of_the_text_is_right():
    program = "c = a * a; y = c * a; y.backward()"
    _, _, numbers = scalars.run(EXERCISE.answer, program, 3.0, 0.0)
    assert numbers["value"] == numbers["a"] == [27] and numbers["c"] == [3]


def test_each_drawn_program_uses_every_result_and_has_one_that_is_used_twice():
    drawn = [program for program, *_ in EXERCISE.cases if program.count(" = ") > 3]
    assert len(drawn) == 5
    for program in drawn:
        uses = re.findall(r"\b[a-z]\b(?! =)", program)
        assert {*re.findall(r"\b\w(?= =)", program)} <= {*uses}
        assert max(uses.count(name) for name in uses) > 1
