"""What one is used to from NumPy and PyTorch works, or is refused with the remedy."""
import contextlib
import operator
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor, habits
from minigrad.module import Module
from minigrad.operators import Operators
from tests.kit import leaf, normal, refusal

X = np.arange(6.0).reshape(2, 3)


@pytest.fixture
def x():
    return leaf(X)


@pytest.mark.parametrize("use, expected", [
    (lambda x: x.T, X.T),
    (lambda x: x.shape[0], 2),
    (lambda x: len(x), 2),
    (lambda x: x.size, 6),
    (lambda x: x.ndim, 2),
    (lambda x: sum(x), X.sum(0)),
    (lambda x: mg.stack(list(x)), X),
    (lambda x: [*x][1], X[1]),
    (lambda x: mg.stack([row * 2 for row in x]), X * 2),
    (lambda x: x[1, 2].item(), 5),
    (lambda x: float(x[1, :1]), 3),
    (lambda x: int(x[1, 2]), 5),
    (lambda x: bool(x[0, 0]), False),
    (lambda x: np.shape(x), (2, 3)),
    (lambda x: np.ndim(x), 2),
    (lambda x: np.size(x), 6),
    (lambda x: x.detach(), X),
    (lambda x: x.mean(1), X.mean(1)),
    (lambda x: x.max(0), X.max(0)),
    (lambda x: x.min(1, keepdims=True), X.min(1, keepdims=True)),
    (lambda x: x.var(0), X.var(0)),
    (lambda x: x.std(axis=1, correction=1), X.std(axis=1, ddof=1)),
    (lambda x: x.std([0, 1]), X.std()),
    (lambda x: x.cumsum(1), X.cumsum(1)),
    (lambda x: x.cumsum(), X.cumsum()),
    (lambda x: x.clip(1, 4), X.clip(1, 4)),
    (lambda x: x.clip(max=4), X.clip(max=4)),
    (lambda x: abs(x - 3), abs(X - 3)),
    (lambda x: (x - 3).abs(), abs(X - 3)),
    (lambda x: x[:, None].squeeze(1), X),
    (lambda x: x[:1].squeeze(), X[0]),
    (lambda x: x.ravel(), X.ravel()),
    (lambda x: x.flatten(), X.flatten()),
    (lambda x: X + x, 2 * X),
    (lambda x: X - x * 2, -X),
    (lambda x: X * x, X * X),
    (lambda x: X @ x.T, X @ X.T),
    (lambda x: (X + 1) / (x + 1), np.ones((2, 3))),
    (lambda x: X ** x, X ** X),
    (lambda x: np.float64(2) * x, 2 * X),
    (lambda x: np.array(2.0) * x, 2 * X),
    (lambda x: operator.iadd(X.copy(), x), 2 * X),
    (lambda x: mg.reshape(x, 3, 2), X.reshape(3, 2)),
    (lambda x: mg.sum(x, axis=[0]), X.sum(0)),
    (lambda x: x.mean(axis=[0, 1]), X.mean()),
    (lambda x: mg.max(x, [1]), X.max(1)),
    (lambda x: {x: 7}[x], 7),
    (lambda x: x in [x], True),
    (lambda x: list(Tensor([])), [])])
def test_Tensor_does_what_an_array_does(x, use, expected):
    found = use(x)
    assert np.array_equal(found.data if isinstance(found, Tensor) else found, expected)


def test_Tensor_has_its_operators_and_methods_from_one_class_and_habits_replace_none():
    of_every_class = ("__module__", "__doc__", "__slots__", "__firstlineno__",
                      "__static_attributes__")      # the last two from Python 3.13 on
    for name, method in vars(Operators).items():
        if name not in of_every_class:
            assert getattr(Tensor, name) is method, name
    names = "add radd sub rsub mul rmul truediv rtruediv pow rpow matmul rmatmul neg getitem"
    for name in [f"__{name}__" for name in names.split()] + ["sum", "reshape", "T", "size"]:
        assert name in vars(Operators)


def test_Tensor_of_one_number_is_formatted_as_a_number(x):
    assert f"{x.sum():.3f}" == "15.000"
    assert f"{Tensor(7):05d}" == "00007"
    assert f"{Tensor([2.0]):6.2f}" == "  2.00"
    assert f"{x.sum()}" == str(x.sum())
    assert "has 6 numbers, and '.3f' formats one" in refusal(
        TypeError, format, Tensor(range(6)), ".3f")


def test_Tensor_gives_rows_through_which_gradients_go(x):
    total = sum(row * i for i, row in enumerate(x))
    (total * 3).sum().backward()
    assert x.grad.tolist() == [[0, 0, 0], [3, 3, 3]]


@pytest.mark.parametrize("use, error, says", [
    *((use, TypeError, f"write x.data {sign} y for its values, x.item() {sign} y for a single one")
      for sign, use in [
          ("==", lambda x: x == 0),
          ("==", lambda x: 0 == x),
          ("==", lambda x: X == x),
          ("==", lambda x: np.float64(1) == x),
          ("==", lambda x: x in [x * 1, x]),
          ("!=", lambda x: x != X),
          ("!=", lambda x: X != x),
          ("<", lambda x: x.sum() < 3),
          (">", lambda x: X < x),
          ("<=", lambda x: x <= 1),
          (">=", lambda x: x >= 1),
          ("<", lambda x: sorted(x))]),
    (lambda x: 1.0 in x, TypeError, "write value in x.data"),
    (lambda x: 1.0 in x.sum(), TypeError, "write value in x.data"),
    *((lambda x, f=f: f(x.sum()), TypeError, "of a single number has no rows")
      for f in (list, sum, max, iter)),
    *((lambda x, f=f: f(x), TypeError, f"cannot differentiate {f.__name__}: take mg.{f.__name__};")
      for f in (np.sum, np.mean, np.max, np.min, np.std, np.cumsum, np.squeeze, np.transpose)),
    (lambda x: np.concatenate([x, x]), TypeError, "take mg.concatenate; for values without a "
     "gradient, give it x.data"),
    (lambda x: np.array_equal(x, X), TypeError, "array_equal; for values without a gradient, give"),
    (lambda x: np.allclose(X, x), TypeError, "differentiate allclose; for values"),
    (lambda x: np.prod(x), TypeError, "cannot differentiate prod; for values"),
    *((use, TypeError, "take the op from minigrad, as mg.exp(x) for np.exp(x)")
      for use in [
          lambda x: np.exp(x),
          lambda x: np.sin(x),
          lambda x: np.isnan(x),
          lambda x: np.add(x, 1),
          lambda x: np.matmul(X, x.T),
          lambda x: np.add.reduce(x),
          lambda x: np.add.at(X.copy(), 0, x),
          lambda x: np.random.default_rng(0).permutation(x)]),
    *((lambda x, f=f: f(x), ValueError, "has 6 numbers, and one is asked for: take x[index]")
      for f in (float, int, complex, Tensor.item)),
    (lambda x: bool(x), ValueError, "of 6 numbers is neither true nor false: write x.data.any()"),
    (lambda x: bool(Tensor([])), ValueError, "of 0 numbers is neither true nor false"),
    (lambda x: setattr(leaf(X) * 2, "requires_grad", False), AttributeError,
     "(float64[2, 3], multiply) is no leaf: requires_grad is set for parameters; for a result"),
    (lambda x: setattr(x, "shape", (3, 2)), AttributeError, "write y = x.reshape(3, 2)"),
    (lambda x: setattr(x, "dtype", int), AttributeError, "x.data.astype(np.float32)"),
    (lambda x: setattr(x, "T", X), AttributeError, "write x.data[...] = values"),
    (lambda x: mg.transpose(x, 0, 1), TypeError, "the axes are one tuple, as in mg.transpose("),
    (lambda x: x.unsqueeze(0), AttributeError, "take mg.expand_dims, or x[:, None]"),
    (lambda x: x.flatten(1), TypeError, "write x.reshape(len(x), -1) to keep the first"),
    (lambda x: x.std(ddof=1), TypeError, "correction (NumPy's ddof)"),
    (lambda x: x.min(dim=1), TypeError, "min takes x, axis (PyTorch's dim), keepdims"),
    (lambda x: x.clamp(0, 1), AttributeError, "a Tensor has no clamp: take mg.clip"),
    (lambda x: mg.square(x.data).sum().backward(), ValueError,
     "x.grad and x.data are constants, and there are no second derivatives"),
    (lambda x: ~x, TypeError, "write ~x.data"),
    (lambda x: round(x), TypeError, "write x.data.round()"),
    *((lambda x, name=name: x.sum().backward(**{name: True}), TypeError,
       f"and no {name}: it frees the graph (compute the value again, or sum the losses and go back "
       "once), and there are no second derivatives")
      for name in ("retain_graph", "create_graph")),
    *((lambda x, f=f: f(Module()), TypeError, "a Module is no list: take model.parameters()")
      for f in (mg.SGD, mg.AdamW, mg.Muon, list, lambda model: mg.clip_grad_norm_(model, 1.0))),
    *((lambda x, name=name: getattr(mg, name), AttributeError, "are in minigrad.nn, as in from")
      for name in ("Module", "Linear", "LayerNorm", "Dropout", "Sequential")),
    *((lambda x, name=name: getattr(mg.nn, name), AttributeError,
       "minigrad.nn has no " + name + ": write from model import MultiHeadAttention")
      for name in ("MultiHeadAttention", "MultiheadAttention")),
    (lambda x: mg.nn.ReLU, AttributeError, "take mg.relu"),
    (lambda x: mg.nn.functional, AttributeError, "ops are in minigrad, as mg.gelu"),
    (lambda x: mg.nn.ModuleList, AttributeError, "hold layers in a list or a dict of a Module"),
    (lambda x: mg.Transformer, AttributeError, "write from model import Transformer"),
    (lambda x: mg.Conv2d, AttributeError, "take a sum over the places of the weight; of x (B, C,"),
    (lambda x: mg.one_hot, AttributeError, "take np.eye(classes)[ids]"),
    (lambda x: mg.NLLLoss, AttributeError, "take mg.nll_loss"),
    (lambda x: mg.optim.RMSprop, AttributeError, "take mg.AdamW"),
    (lambda x: Module().register_buffer, AttributeError, "write self.name = nn.Buffer(array)"),
    (lambda x: np.dot(x, x), TypeError, "take mg.matmul, or x @ y"),
    (lambda x: x.view(3, 2), AttributeError, "a Tensor has no view: take mg.reshape"),
    (lambda x: x.relu(), AttributeError, "a Tensor has no relu: take mg.relu"),
    (lambda x: x.add_(1), AttributeError, "a Tensor has no add_: take mg.add"),
    (lambda x: x.numpy(), AttributeError, "take x.data, the array"),
    (lambda x: x.to("cpu"), AttributeError, "mg.Tensor(x.data.astype(np.float32))"),
    (lambda x: x.cpu(), AttributeError, "leave it out, as all computing is on the CPU"),
    (lambda x: x.zero_grad(), AttributeError, "set x.grad = None, or call optimizer.zero_grad()"),
    (lambda x: x.argsort(), AttributeError, "NumPy has it, for values without a gradient (x.data)"),
    (lambda x: x.size(), TypeError, "take x.shape, or x.shape[axis]"),
    (lambda x: x.__setitem__(0, 1), TypeError, "write x.data[index] = value"),
    (lambda x: x.zero_(), AttributeError, "write x.data[...] = values, as in w.data[...] = 0"),
    (lambda x: x.transpose(0, 1), ValueError, "as NumPy's does: write x.swapaxes(0, 1)"),
    *((use, TypeError, f"{sign} has no derivative to train by: write x.data {sign} y for values")
      for sign, use in [
          ("//", lambda x: x // 2),
          ("//", lambda x: 2 // x),
          ("%", lambda x: x % 2),
          ("%", lambda x: X % x),
          ("&", lambda x: x & x),
          ("|", lambda x: X | x),
          ("<<", lambda x: x << 1)]),
    (lambda x: mg.optim.Adam, AttributeError, "take mg.AdamW, with weight_decay=0"),
    (lambda x: mg.softmx(x), AttributeError, "minigrad has no softmx: did you mean softmax?"),
    (lambda x: mg.cat([x, x]), AttributeError, "minigrad has no cat: take mg.concatenate"),
    (lambda x: mg.tensor(X), AttributeError, "write mg.Tensor(array, requires_grad=True)"),
    (lambda x: mg.arctan(x), AttributeError, "@mg.op makes an op of a function and its derivative"),
    (lambda x: Module().train(), AttributeError, "only where a random generator is given"),
    (lambda x: Module().to("cuda"), AttributeError, "a Module has no to: the type is chosen")])
def test_missing_names_the_remedy_for_a_habit_that_cannot_work(x, use, error, says):
    assert says in refusal(error, use, x)


@pytest.mark.parametrize("thing", [
    leaf(X),
    Tensor,
    mg,
    Module(),
    Module])
def test_missing_names_are_missing_for_python_too(thing):
    with pytest.raises(AttributeError, match="no_such_name['$]?"):
        thing.no_such_name
    assert not hasattr(thing, "no_such_name")
    assert getattr(thing, "float", None) is None


def test_refuse_leaves_an_attribute_of_a_refused_name_to_a_subclass():
    class Own(Module):
        def forward(self):
            return 7
    own = Own()
    own.type = 8
    assert (own.forward(), own.type) == (7, 8)


@pytest.mark.parametrize("sign", ["+=", "-=", "*=", "/=", "**=", "@="])
@pytest.mark.parametrize("quiet", [False, True])
def test_Tensor_that_is_a_leaf_is_not_changed_in_place_and_a_result_is_replaced(sign, quiet):
    def change(w):
        names = {"w": w, "y": np.full((2, 2), 3.0)}
        exec(f"w {sign} y", names)
        return names["w"]
    w = leaf(np.ones((2, 2)))
    with mg.no_grad() if quiet else contextlib.nullcontext():
        says = refusal(TypeError, change, w)
        assert f"write x.data {sign} y" in says
        assert "as in w.data -= lr * w.grad" in says
        for before in (w * 1, Tensor(np.ones((2, 2)))):
            kept = before.data.copy()
            after = change(before)
            assert after is not before
            assert np.array_equal(before.data, kept)
            assert after.requires_grad == (before.requires_grad and not quiet)


def test_op_for_names_ops_that_there_are():
    tables = habits.OF_OPS | habits.OF_TENSOR | habits.OF_MODULE | habits.OF_NAMESPACE
    for name in re.findall(r"mg\.(\w+)", " ".join(tables.values())):
        assert hasattr(mg, name), name
    assert not habits.OF_OPS.keys() & mg.OPS.keys()


def test_a_table_has_a_row_for_each_name_and_one_answer_to_it():
    for table in (habits.OF_OPS, habits.OF_TENSOR, habits.OF_MODULE, habits.OF_NAMESPACE):
        assert all(name.isidentifier() for name in table)
    assert not habits.OF_OPS.keys() & habits.OF_NAMESPACE.keys()


P = np.array([[0.2, 0.5, 0.9], [0.4, 0.1, 0.7]])        # probabilities
Z = np.array([[-3.0, 0.5, 40.0], [0.0, -0.2, -50.0]])
FORMULAS_OF = {
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "norm": np.linalg.norm,
    "outer": lambda x: x[:, None] * 0.3,
    "trace": lambda x: np.trace(x[:, :2]),
    "logsumexp": lambda x: np.log(np.exp(x).sum()),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "logsigmoid": lambda x: -np.logaddexp(0, -x),
    "l1_loss": lambda x: abs(x - 0.3).mean(),
    "binary_cross_entropy": lambda p: -(0.3 * np.log(p) + 0.7 * np.log(1 - p)).mean()}
POSITIVE = "reciprocal", "rsqrt", "binary_cross_entropy"


@pytest.mark.parametrize("name", FORMULAS_OF)
def test_a_remedy_computes_what_the_name_promises(name):
    line = habits.op_for(name).removeprefix(": take ")
    if name in ("norm", "logsumexp"):
        line = line.split("; ")[0].split(", with")[0]
    if name == "trace":
        line = line.replace("x)", "x[:, :2])")
    at = P if name in POSITIVE else Z

    def remedy(x):
        return eval(line, {"mg": mg, "np": np, "x": x, "p": x, "y": 0.3, "n": 3,
                           "m": x.data.max()})
    found = remedy(leaf(at))
    assert np.allclose(found.data, FORMULAS_OF[name](at), rtol=1e-12)
    assert mg.gradcheck(remedy, at + 0.01)


def test_a_remedy_for_elu_has_its_slope_at_0():
    x = leaf([0.0])
    eval(habits.OF_OPS["elu"], {"mg": mg, "x": x}).backward()
    assert x.grad == 1


@pytest.mark.parametrize("name, reduce", [("max_pool2d", np.max), ("avg_pool2d", np.mean)])
def test_a_remedy_for_pooling_takes_squares_of_four(name, reduce):
    x = np.sin(np.arange(2 * 3 * 4 * 6)).reshape(2, 3, 4, 6)
    found = eval(habits.OF_OPS[name], {"mg": mg, "x": Tensor(x), "B": 2, "C": 3, "H": 4, "W": 6})
    assert found.shape == (2, 3, 2, 3)
    for h in range(2):
        for w in range(3):
            square = x[:, :, 2 * h:2 * h + 2, 2 * w:2 * w + 2]
            assert np.allclose(found.data[:, :, h, w], reduce(square, axis=(2, 3)))


def test_a_remedy_for_a_convolution_computes_it():
    x, weight = normal(2, 3, 4, 5), normal(6, 3, 3, 3, seed=1)
    lines = habits.op_for("conv2d").partition("(O, C, 3, 3): ")[2]
    assert lines.count("; ") == 3

    def convolution(x, weight):
        names = {"mg": mg, "x": x, "weight": weight}
        exec(lines, names)
        return names["y"]
    expected = np.zeros((2, 6, 4, 5))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for h in range(4):
        for w in range(5):
            window = padded[:, :, h:h + 3, w:w + 3]
            expected[:, :, h, w] = np.tensordot(window, weight, ([1, 2, 3], [1, 2, 3]))
    assert np.allclose(convolution(Tensor(x), Tensor(weight)).data, expected)
    assert mg.gradcheck(convolution, x, weight)


def test_clip_grad_norm_takes_a_single_tensor_for_a_list_of_one():
    x = leaf([[0.0, 0.0]])
    x.grad = np.array([[3.0, 4.0]])
    assert mg.clip_grad_norm_(x, 1.0) == 5
    assert np.allclose(x.grad, [[0.6, 0.8]])
