"""Lines and rules that are shown are those of the source that runs."""
import linecache

import numpy as np
import pytest

import minigrad as mg
from minigrad.plug import watch_ops
from minigrad.watch.source import callers, definition, derivatives, line_of, meaning
from tests.kit import ROOT, leaf

HERE = "tests/minigrad/watch/test_source.py"


def lines_of(f):
    """The innermost line outside of minigrad for every op that f runs, and the function's name."""
    seen = []

    def note(event):
        frame = next(callers())
        seen.append((event.op, line_of(frame), frame.f_code.co_name))
    with watch_ops(note):
        f()
    return seen


def test_an_op_is_traced_to_the_line_that_called_it_through_operators_and_methods():
    def here():
        y = mg.Tensor(np.ones(2)) + 1.0
        return 2.0 * y.sum()
    (_, first, _), second, third = lines_of(here)
    assert first.text == "y = mg.Tensor(np.ones(2)) + 1.0"
    assert first.text == linecache.getline(__file__, first.number).strip()
    assert first.place == f"{HERE}:{first.number}"
    line = (HERE, first.number + 1, "return 2.0 * y.sum()")
    assert second == ("sum", line, "here") and third == ("multiply", line, "here")


def test_a_call_over_several_lines_is_shown_whole_and_what_was_typed_in_without_text():
    (_, line, _), = lines_of(lambda: mg.add(
        np.ones(2),
        np.zeros(2)))
    assert line.text.endswith("mg.add(np.ones(2), np.zeros(2)))")
    assert lines_of(lambda: eval("mg.exp(np.ones(2))", globals()))[0][1] == ("<string>", 1, "")


@pytest.mark.parametrize("op", sorted(mg.OPS))
def test_the_definition_of_every_op_is_found(op):
    line = definition(mg.OPS[op])
    text = (ROOT / line.file).read_text(encoding="utf-8").splitlines()[line.number - 1]
    assert text == line.text and line.text.startswith((f"def {op}(", f"def {op}_("))
    assert meaning(op) and "Back:" not in meaning(op)


@pytest.mark.parametrize("op, rules", [
    ("multiply", ["dx = g * y", "dy = g * x"]),
    ("softmax", ["dx = y (g - <g, y>)"]),           # from its docstring
    ("dropout", []), ("embedding", [])])            # not the same in all cases
def test_rules_of_the_gradient_are_read_where_a_line_says_them(op, rules):
    assert derivatives(op) == rules


NUMBERS = {"x": np.array([0.3, 1.7]), "y": np.array([2.5, 0.4]), "g": np.array([1.1, -0.6])}


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "negative", "exp", "log",
                                "sqrt", "tanh", "sigmoid"])
def test_the_rules_compute_the_gradients(op):
    names = list(mg.OPS[op].__signature__.parameters)
    leaves = {name: leaf(NUMBERS[name]) for name in names}
    value = mg.OPS[op](*leaves.values())
    value.backward(NUMBERS["g"])
    known = {"y": value.data} | {name: NUMBERS[name] for name in ("g", *names)}
    assert len(derivatives(op)) == len(names)
    for rule in derivatives(op):
        name, formula = rule.split(" = ")
        assert np.allclose(eval(formula, {}, known), leaves[name[1:]].grad, rtol=1e-12)


@pytest.mark.parametrize("listed", [True, False])
def test_an_op_without_source_or_docstring_has_no_rules_and_breaks_nothing(listed):
    scope = {"op": mg.op(register=listed)}
    exec("@op\ndef typed_in(x, y):\n    return 2 * x + y, (lambda g: 2 * g, None)", scope)
    try:
        assert derivatives("typed_in") == [] and meaning("typed_in") == ""
        assert definition(scope["typed_in"]).file == "<string>"
        with mg.Recorder() as r:
            scope["typed_in"](leaf(1.5), 3.0).backward()
        assert "typed_in(#2, c1)" in r.text() and "typed_in" in r.svg()
        assert ("typed_in: (<string>:" in r.text()) == listed
    finally:
        mg.OPS.pop("typed_in", None)
