"""The judge: every mistake that has a name is named; right answers, however written, are accepted;
and careless files get a line each."""
import re

import pytest

from model.walk import judge, trial
from tests.kit import written
from tests.model.walk.conftest import EXERCISES, IMPORTS, solved

pytestmark = pytest.mark.late
EVERYTHING = ("Right.  Checked: the value and the gradient by every argument for {} inputs, large "
              "ones and float32 among them.")


@pytest.mark.parametrize("function", EXERCISES)
def test_each_mistake_is_named_and_no_other(function, said):
    for sentence in EXERCISES[function].mistakes:
        assert said(function, solved(function, sentence)) == [sentence]
        assert max(map(len, judge.Verdict(False, [sentence]).text().split("\n"))) <= 80


@pytest.mark.parametrize("function", EXERCISES)
def test_our_answer_is_right_and_the_file_that_students_get_is_not_written_yet(function, said):
    assert said(function, solved(function))[0].startswith(("Right", "It is trained"))
    (line,) = said(function, EXERCISES[function].task())
    assert line.startswith("The line that stands for your answer is still there: ")


def mistake(function, words):
    """The sentence that has these words."""
    (sentence,) = (s for s in EXERCISES[function].mistakes if words in s)
    return sentence


@pytest.mark.parametrize("function, words", [
    ("softmax", ["Each column has the sum 1", "exp overflows for large scores"]),
    ("adamw_step", ["eps is added inside", "The weight decay has the wrong sign"]),
    ("block", ["The first residual is missing", "The GELU is missing"]),
    ("layer_norm", ["the term mean(dz) is missing", "The gradient of the gain uses x",      # one in
                    "gradient of the bias is the mean"])])                          # each gradient
def test_two_mistakes_in_a_value_and_one_in_each_gradient_are_all_named(function, words, said):
    several = {mistake(function, some) for some in words}
    assert set(said(function, solved(function, *several))) == several


RIGHT = {
    "softmax without the decorator, by loops and the Jacobian": """
def softmax(x):
    rows = x.reshape(-1, x.shape[-1])
    y = np.empty_like(rows)
    for i, row in enumerate(rows):
        e = [np.exp(number - max(row)) for number in row]
        y[i] = np.array(e) / sum(e)
    def dx(g):
        d = [(np.diag(p) - np.outer(p, p)) @ g_row
             for p, g_row in zip(y, g.reshape(y.shape))]
        return np.array(d).reshape(x.shape)
    return y.reshape(x.shape), (dx,)
""",
    "a head by a mask that is added, and another order of the products": """
def causal_head(x, w_query, w_key, w_value):
    T, D = x.shape[-2], w_key.shape[1]
    scores = (x @ (w_query * D ** -0.5)) @ (x @ w_key).swapaxes(-2, -1)
    mask = np.where(np.arange(T)[:, None] >= np.arange(T), 0.0, -1e30).astype(x.dtype)
    e = mg.exp(scores + mask - (scores + mask).max(axis=-1, keepdims=True))
    return (e @ x @ w_value) / e.sum(axis=-1, keepdims=True)
""",
    "layer norm with sums that the engine makes, and one function for all": """
@op
def layer_norm(x, w, b, eps=1e-5):
    d = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((d ** 2).mean(-1, keepdims=True) + eps)
    def back(g):
        h = g * w * r
        h = h - d * r ** 2 * (h * d).mean(-1, keepdims=True)
        return h - h.mean(-1, keepdims=True), g * d * r, g
    return d * r * w + b, back
""",
    "a block by the engine's ops": """
from e4_heads import multi_head
def block(x, w, heads):
    norm = mg.layer_norm
    a = multi_head(norm(x, w["gain1"], w["bias1"]), w["qkv"], w["out"], heads)
    return x + a + mg.mlp(norm(x + a, w["gain2"], w["bias2"]), w["up"].T, None, w["down"].T, None)
""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_answer_written_differently_is_accepted(name, said):
    function = re.search(r"def (\w+)", RIGHT[name])[1]
    assert said(function, IMPORTS + RIGHT[name])[0].startswith(("Right", "It is trained"))


SOFTMAX = IMPORTS + "@op\ndef softmax(x):\n"
FORM = "should return a value and a tuple of functions, as in return y, (dx,)."
# A careless file, and the beginning of the line that answers it.
CARELESS = {
    "def softmax(x):\n    return (x\n":
        "Python cannot read the file: '(' was never closed (e1_softmax.py, line 2): return (x",
    "def soft_max(x):\n    return x": "e1_softmax.py defines soft_max, and should define softmax.",
    "def softmax(x):\n    return 1\nsoftmax = 3\n": "softmax is 3, and should be a function.",
    "def softmax(x):\n    return x\nexit()\n":
        "The file does not run: line 3: exit()  ->  SystemExit: None",
    SOFTMAX + "    y = np.exp(x)\n": f"It returns None, and {FORM}  Is return missing?",
    SOFTMAX + "    return x, lambda g: g\n": f"It returns (float64[2, 2], function), and {FORM}",
    SOFTMAX + "    return x, 3\n": f"It returns (float64[2, 2], 3), and {FORM}",
    SOFTMAX + "    return np.argsort(x), (lambda g: g,)\n":
        "Its value is int64[2, 2], and should be of floats.",
    SOFTMAX + "    x -= x.max(axis=-1, keepdims=True)\n    return x, (lambda g: g,)\n":
        "The value cannot be made for x float64[2, 2]: line 7: x -= x.max(axis=-1, keepdims=True)"
        "  ->  ValueError: output array is read-only.  Others use this array too: make a new one, ",
    SOFTMAX.replace("(x)", "(x, y)") + "    return x, (lambda g: g,)\n":
        "The value cannot be made for x float64[2, 2]: TypeError: softmax() missing 1 required po",
    SOFTMAX + "    return x.sum(axis=-1), (lambda g: g,)\n":
        "The value has shape [2] for x float64[2, 2]; it should be [2, 2]."}
# A change of our answer, and words of the only paragraph that answers it.
CHANGED = [
    ("softmax", "return y,", "return y ** 2,",
     "for x float64[2, 2]: at index (0, 0) it is 0.0625012, and\nshould be 0.250002.\n"
     "    x = [[0.     1.0986]\n         [2.     1.    ]]\n"
     "    yours = [[0.0625 0.5625]\n             [0.5344 0.0723]]\n"
     "    right = [[0.25   0.75  ]\n             [0.7311 0.2689]]"),
    ("softmax", "lambda g: y", "lambda g: 1.001 * y", "The gradient by x is wrong "),
    ("softmax", "lambda g: y", "lambda g: g @ g @ zz + y",
     "A gradient cannot be made for x float64[2, 2]: line 4"),
    ("softmax", "lambda g: y", "lambda g: g.fill(0) or y",
     "ValueError: assignment destination is read-only.  Others use this array too: make a new"),
    ("layer_norm", "(dx, dgain, dbias)\n", "lambda g: zz\n",
     "A gradient cannot be made for x float64[2, 2], gain float64[2], bias "),
    ("causal_head", "weights @ value",
     "mg.op(lambda x: (x, (lambda g: zz,)), register=False)(weights @ value)",
     "A gradient cannot be made for x float64[2, 2], w_query float64[2, 2], "),
    ("softmax", "return y,", "return y.tolist(),", "Its value is a list, and should be an array"),
    ("softmax", "@op\ndef softmax(x):", "N = [0] * 3\n@op\ndef softmax(x):\n    N.pop()",
     "The value cannot be made for x float64[5]: line 42: N.pop()  ->  IndexError: "),
    ("layer_norm", "dx, dgain, dbias)\n", "dx, dgain)\n",
     "It returns (float64[2, 2], (function, function)), and should return a value and a tuple of "
     "functions, as in return y, (dx, dgain, dbias)."),
    ("causal_head", "return weights @ value", "return weights @ value + (x.ndim > 2)",  # too large
     "The value is wrong for x float64[3, 3, 3], w_query float64[3, 3], "),
    ("model", "[:T]", ".reshape(T, -1)",            # it fails where the named "[:T]" to "" fails
     "The value cannot be made for ids int64[2, 3], "),
    ("causal_head", "return weights", "if x.ndim == 2:\n        return weights",
     "It returns None, and should return a Tensor."),
    ("causal_head", "mg.softmax(", "np.exp(", "use mg.exp, mg.softmax and the like"),
    ("adamw_step", "return new, m, v", "return (new, m) if weight_decay else (new, m, v)",
     "It returns (float64[2, 3], float64[2, 3]), and should return three arrays, p, m, v."),
    ("adamw_step", "new, m, v\n", "new, m ** 2, v\n",
     "The value of returned array 2 is wrong for p float64[2], "),
    ("cross_entropy", "logits - logits.max(axis=-1, keepdims=True)",
     "np.clip(logits, -1e4, 1e4) - (logits.max(axis=-1, keepdims=True)"
     " if logits.dtype == np.float64 else 0)",
     "It is right in float64.  The largest float32 is 3.4e38")]
# A file's beginning, and words of its verdict.
ODD = {
    "class E(BaseException):\n    pass\nraise E('so')": "not run: line 3: raise E('so')  ->  E: so",
    "class E(Exception):\n    __str__ = None\nraise E": "raise E  ->  E: its text cannot be made",
    "raise ValueError('\\33[31m\\0' + 'x ' * 10**6)": r"ValueError: \x1b[31m\x00x x x",
    f"x = {50_000 * '-'}1": "nested too deeply",
    "import numpy\nnumpy.seterr(all='raise')": "Right.",
    "import warnings\nwarnings.warn('so')": "Right."}


@pytest.mark.parametrize("source", CARELESS)
def test_a_careless_file_is_answered_in_a_line(source, said):
    (line,) = said("softmax", source)
    assert line.startswith(CARELESS[source]) and "\n" not in line


def test_a_file_is_known_by_its_function_and_what_is_no_file_is_answered_in_a_line(tmp_path):
    assert judge.judge(written(tmp_path / "mine.txt", solved("softmax"))).right
    (line,) = judge.judge(written(tmp_path / "mine.txt", "def other():\n    pass\n")).said
    assert line.startswith("mine.txt defines other, and should define Value, softmax, ")
    for path in (tmp_path, tmp_path / "e1_softmax.py"):
        (line,) = judge.judge(path).said
        assert line.startswith(f"{path} cannot be read: ") and "--exercise" in line


@pytest.mark.parametrize("number", [-30, -50, -100, -1000])
@pytest.mark.parametrize("masked, says", [
    ("mg.where(future, {}.0, scores)", "The mask is a number such as -50"),
    ("scores + np.where(future, {}.0, 0.0)", "The mask adds a number such as -50")])
def test_a_mask_that_a_score_can_outweigh_is_wrong(number, masked, says, said):
    wrong = solved("causal_head").replace("mg.where(future, -math.inf, scores)",
                                          masked.format(number))
    (line,) = said("causal_head", wrong)
    assert line.startswith(says)


@pytest.mark.parametrize("function, right, wrong, words", CHANGED)
def test_a_wrong_answer_that_no_mistake_explains_is_described(function, right, wrong, words,
                                                              changed):
    (paragraph,) = changed(function, right, wrong)
    assert words in paragraph


@pytest.mark.parametrize("beginning", ODD, ids=lambda text: text[:40])
def test_a_file_is_judged_and_answered_briefly_in_what_a_terminal_can_show(beginning, tmp_path):
    path = written(tmp_path / "e1_softmax.py", f"{beginning}\n{solved('softmax')}")
    verdict = judge.judge(path)
    shown = verdict.text()
    assert ODD[beginning] in " ".join(shown.split()) or ODD[beginning] in shown
    assert verdict.right == (ODD[beginning] == "Right.")
    assert len(shown) < 1000 and shown.replace("\n", "").isprintable()


def test_float64_made_of_float32_is_remarked_on_and_not_the_other_way(said, changed):
    assert said("softmax", solved("softmax")) == [EVERYTHING.format(8), "Next: e2_cross_entropy.py"]
    _, remark, _ = changed("causal_head", "math.sqrt", "np.sqrt")
    assert remark.startswith("It turns float32 into float64")
    lines = changed("adamw_step", "return new, m, v",
                    "return tuple(x.astype(np.float32) for x in (new, m, v))")
    assert "gradient" not in lines[0] and not any("float64, which" in line for line in lines)


def test_a_file_is_judged_with_the_student_s_own_parts_where_these_are_right(said):
    line = "from e3_causal_head import causal_head\n"
    heads = line + solved("multi_head").replace(line, "")
    first, remark, _ = said("block", solved("block").rstrip(), causal_head=solved("causal_head"),
                            multi_head=heads)
    assert "It works with your e4_heads, e3_causal_head too." in first
    assert remark == "e5_layer_norm.py is not here, so ours stood in for it."


def test_a_wrong_part_does_not_make_what_is_built_on_it_wrong(said):
    wrong = solved("causal_head", mistake("causal_head", "The scores are divided by D;"))
    assert said("multi_head", solved("multi_head"), causal_head=wrong)[:2] == [
        EVERYTHING.format(6), "e3_causal_head.py is not right yet, so ours stood in for it."]


def test_parts_that_are_right_alone_and_wrong_together_are_named(said):
    """The head calls for names of arguments that the student's own head does not have."""
    part = solved("causal_head").replace("(x, w_query, w_key, w_value)", "(x, q, k, v)").replace(
        "x @ w_query, x @ w_key, x @ w_value", "x @ q, x @ k, x @ v")
    source = solved("multi_head").replace("(x, query[", "(x, w_query=query[").replace(
        "key[:, own]", "w_key=key[:, own]").replace("value[:, own])", "w_value=value[:, own])")
    together, error = said("multi_head", source, causal_head=part)
    assert together == (
        "e4_heads and your e3_causal_head are right alone, but together they are not: look at how "
        "they call each other.")
    assert "got an unexpected keyword argument 'w_query'" in error


def test_parts_that_import_each_other_or_have_the_name_of_a_module_are_no_trouble(said, tmp_path):
    written(tmp_path / "colorsys.py", "raise ValueError\n")
    assert said("softmax", "import colorsys\n" + solved("softmax"))[0].startswith("Right.")
    assert said("causal_head", "from e4_heads import multi_head\n" + solved("causal_head"),
                multi_head=solved("multi_head"))[0].startswith("Right.")


def test_the_last_exercise_ends_with_its_training(said, monkeypatch):
    assert said("model", solved("model"))[0] == "It is trained."
    monkeypatch.setattr(trial, "run", lambda *arguments: (False, ["Its loss is 3."]))
    assert said("model", solved("model"))[0] == "Its loss is 3."
    monkeypatch.setattr(trial, "run", lambda *arguments: [][1])
    assert said("model", solved("model"))[0] == (
        "It is right for short texts, and fails in the training, on texts of 64 characters: "
        "IndexError: list index out of range")


def test_no_two_mistakes_are_named_for_numbers_that_are_all_nan(changed, monkeypatch):
    exercise = EXERCISES["causal_head"]
    others = [sentence for sentence in exercise.mistakes if "nan" not in sentence]
    monkeypatch.setattr(exercise, "mistakes", {name: exercise.mistakes[name] for name in others})
    (answer,) = changed("causal_head", "@ value", "@ value * math.nan")
    assert answer.startswith("The value is wrong for ")
