"""The recorder: every place, value, gradient and edge of what ran, in the order of backward."""
import weakref
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import minigrad as mg
from minigrad import core
from minigrad.watch.graph import WIDTH
from tests.kit import by_name, leaf, normal

SVG = "{http://www.w3.org/2000/svg}"


def made_of(place):
    return [edge.source.name or edge.source.op for edge in place.inputs]


def by_hand():
    x = leaf(3.0)
    a = np.array(2.0)
    with mg.Recorder(x=x, a=a) as r:
        double = x * a
        y = double * double + x
        y.backward()
    return r.name(double=double, y=y)


def test_values_gradients_edges_and_order_are_those_worked_out_by_hand():
    r = by_hand()
    assert [(p.label, p.name, p.op, p.value, p.gradient) for p in r.places()] == [
        ("#1", "y", "add", 39, 1), ("#2", "", "multiply", 36, 1),
        ("#3", "double", "multiply", 6, 12), ("#4", "x", "leaf", 3, 25),
        ("c1", "a", "constant", 2, None)]
    names = by_name(r)
    assert made_of(names["double"]) == ["x", "a"] and made_of(names["y"]) == ["multiply", "x"]
    square = r.places()[1]
    assert made_of(square) == ["double", "double"]
    assert [edge.part for edge in square.inputs] == [6, 6] and names["x"].parts == [1, 24]
    assert names["a"].parts == [] and names["double"].inputs[1].part is None
    assert "25 = 1 + 24" in r.text() and "12 = 6 + 6" in r.text()


def random_expression(seed):
    """A graph of 12 ops, and leaves made on the way, whose arguments are drawn from all so far."""
    rng = np.random.default_rng(seed)
    tensors = [np.ones(3)]
    leaves = []
    for i in range(12):
        if i % 3 == 0:
            leaves.append(leaf(normal(3, seed=i)))
            tensors.append(leaves[-1])
        a, b = (tensors[i] for i in rng.integers(len(tensors), size=2))
        op = [mg.add, mg.multiply, mg.maximum, mg.subtract][rng.integers(4)]
        tensors.append(op(a, b))
    return mg.stack(tensors[-4:]).sum(), leaves


@pytest.mark.parametrize("seed", range(5))
def test_the_numbers_are_the_order_in_which_backward_visits_and_no_gradient_changes(seed,
                                                                                    monkeypatch):
    alone, leaves = random_expression(seed)
    alone.backward()
    came = []
    real = core.heappop

    def heappop(waiting):
        came.append(real(waiting)[1])
        return len(came), came[-1]
    with mg.Recorder() as r:
        loss, recorded = random_expression(seed)
        monkeypatch.setattr(core, "heappop", heappop)
        loss.backward()
    visited = [p for p in r.places() if p.turn]
    assert [p.op for p in visited] == [node.op for node in came]
    assert [p.label for p in visited] == [f"#{i + 1}" for i in range(len(came))]
    for place, node in zip(visited, came):
        assert node.op != "leaf" or np.array_equal(place.gradient, node.grad)
    for one, other in zip(leaves, recorded):
        assert np.array_equal(one.grad, other.grad)


def test_values_are_copies_of_those_of_their_time():
    x = leaf([1.0, 2.0])
    with mg.Recorder(x=x) as r:
        y = x * x
        itself = weakref.ref(y.data)
        total = y.sum()
        del y
        total.backward()
    assert itself() is None and r.places()[1].value is not None
    x.data += 1
    x.grad *= 5
    assert np.array_equal(by_name(r)["x"].value, [1, 2])
    assert np.array_equal(by_name(r)["x"].gradient, [2, 4])


def test_each_number_and_each_array_that_is_gone_is_a_constant_of_its_own():
    x = leaf(np.ones(1000))
    two = 2.0
    with mg.Recorder(x=x) as r:
        y = x * two + two
        for number in range(5):
            y = y + np.full(1000, number)       # which would give the next one its place in memory
        y.sum()
    constants = [place.value for place in r.places() if place.op == "constant"]
    assert len(constants) == 7 and {float(np.mean(value)) for value in constants} == {0, 1, 2, 3, 4}


def test_lists_several_values_numbers_and_settings():
    x = leaf(normal(2))
    y = leaf(normal(2))
    c = np.zeros(2)
    with mg.Recorder(x=x, y=y, c=c) as r:
        whole = mg.concatenate([x, c, y])
        front, back = mg.split(whole, 2)
        total = (front * 2.0 - mg.sum(back, 0)).sum(axis=0)     # 0 and axis=0 are settings
        total.backward()
    names = by_name(r.name(whole=whole, front=front, back=back, total=total))
    assert made_of(names["whole"]) == ["x", "c", "y"]
    assert made_of(names["front"]) == made_of(names["back"]) == ["whole"]
    assert [p.name or float(p.value) for p in r.places() if p.kind == "constant"] == ["c", 2.0]
    assert all(np.array_equal(names[name].gradient, p.grad) for name, p in (("x", x), ("y", y)))


def test_what_backward_does_not_reach_has_no_number():
    x = leaf([1.0, 2.0])
    w = leaf([3.0, 4.0])
    with mg.Recorder(x=x, w=w) as r:
        aside = w * 2.0
        with mg.no_grad():
            value = x * x
        (x * value.data).sum().backward()
    names = by_name(r.name(aside=aside, value=value))
    assert names["w"].label == "c1" and names["aside"].label == "c3"     # c2 is the 2.0
    assert names["aside"].gradient is None and names["value"].op == "multiply"
    assert names["x"].label == "#3"


def test_forward_alone_and_backward_alone_are_shown_as_far_as_they_are_known():
    x = leaf([1.0, 2.0])
    with mg.Recorder(x=x) as forward:
        y = (x * x).sum()
    with mg.Recorder(x=x) as backward:
        y.backward()
    assert all(p.gradient is None and p.label.startswith("c") for p in forward.places())
    assert [(p.op, p.value) for p in backward.places()] == [("sum", None), ("multiply", None),
                                                            ("leaf", None)]
    assert np.array_equal(by_name(backward)["x"].gradient, x.grad)
    assert "x" in forward.text() and "multiply" in backward.text()
    with mg.Recorder() as nothing:
        pass
    assert nothing.places() == [] and nothing.text() == "nothing was recorded"
    assert all(ET.fromstring(r.svg()) is not None for r in (forward, backward, nothing))


def test_steps_are_drawn_in_the_order_in_which_they_ran():
    x = leaf([1.0, 2.0])
    with mg.Recorder() as r:
        with mg.no_grad():
            aside = -x
        y = mg.tanh(x)
        with mg.no_grad():
            beside = mg.sigmoid(x.data)
        (mg.exp(y) + aside.data - beside.data).sum().backward()
    heads = [text.text for text in ET.fromstring(r.svg()).iter(f"{SVG}text")
             if text.get("class") == "head"]
    assert heads[-7:] == ["negative", "tanh", "sigmoid", "exp", "add", "subtract", "sum"]


def test_a_second_pass_is_numbered_after_the_first_and_an_input_that_an_op_returns_is_one_place():
    x = leaf([1.0, 2.0])
    c = np.ones(2)
    with mg.Recorder(x=x, c=c) as r:
        mg.exp(x).sum().backward()
        (x * mg.dropout(c, 0.5)).mean().backward()          # without rng none is dropped
    assert [p.op for p in r.places()] == ["sum", "exp", "mean", "multiply", "leaf", "constant"]
    assert np.array_equal(by_name(r)["x"].gradient, x.grad)


@pytest.mark.parametrize("width", [1, 40])
def test_the_text_fits_80_columns_and_names_every_line_and_rule(width):
    x = leaf(np.linspace(0, 1, width))
    with mg.Recorder(**{"a.rather.long.name.of.a.parameter": x}) as r:
        y = mg.where(x.data > 0.5, mg.exp(x), mg.softmax(x)) / 3.0
        loss = y.sum()
        loss.backward()
    text = r.text()
    assert max(map(len, text.splitlines())) <= WIDTH == 80
    for said in ("a.rather.long.name.of.a.parameter", "tests/minigrad/watch/test_graph.py:",
                 "loss = y.sum()", "dx = g / y", "dx = y (g - <g, y>)",
                 "Back: dx = np.where(condition, g, 0)", f"float64[{width}]"):
        assert said in " ".join(text.split())


def test_the_drawing_has_a_box_for_each_place_and_an_arrow_for_each_use():
    r = by_hand()
    drawing = ET.fromstring(r.svg("x < y & z"))
    texts = [t.text for t in drawing.iter(f"{SVG}text")]
    assert drawing.find(f"{SVG}title").text == "x < y & z" == texts[0]
    groups = list(drawing.iter(f"{SVG}g"))
    assert sorted(g.findtext(f"{SVG}text") for g in groups if g.get("class") == "badge") == [
        "1", "2", "3", "4"]
    kinds = [g.get("class") for g in groups]
    assert [kinds.count(k) for k in ("op", "leaf", "constant")] == [3, 1, 1]
    assert kinds.count("arrow") == sum(len(p.inputs) for p in r.places()) == 6
    for said in ("double = multiply", "value 36", "grad  25", "value 2", "float64[]"):
        assert said in texts
    # Parts of sums are beside the arrows that bring them.
    labels = [g.findtext(f"{SVG}text") or "" for g in groups if g.get("class") == "arrow"]
    assert sorted(labels) == ["", "", "1", "24", "6", "6"]
