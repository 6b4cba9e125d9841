"""Every op in the registry, by the same checks.

A new op needs only a line in EXAMPLES of op_examples.py, whose docstring says how, and a line in
WRONG for each of its errors.
"""
import collections
import copy
import inspect
import math
import operator

import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas
from minigrad.core import Tensor
from minigrad.network import _check_shapes
from minigrad.plug import watch_ops
from tests.checking import frozen, weighted
from tests.kit import both_types, leaf, normal, refusal
from tests.minigrad.op_examples import (EXAMPLES, LEFT_OF_THREE, Normal, Positive, Whole, applied,
                                        call, drawn_for, floats, ints, leaves)

EACH = [example.values for example in EXAMPLES]
of_each_example = pytest.mark.parametrize("name, args, settings", EXAMPLES)


def test_every_op_has_an_example():
    missing = mg.OPS.keys() - {p.values[0] for p in EXAMPLES}
    assert not missing, f"add example inputs for {missing} to EXAMPLES"


def values(name, arguments):
    """The arrays that an op returns, or its error."""
    made = inspect.signature(mg.OPS[name]).bind_partial()
    made.arguments |= {key: a() if a is frozen else a for key, a in arguments.items()}
    try:
        out = mg.OPS[name](*made.args, **made.kwargs)
    except Exception as error:
        return [error]
    return [part.data for part in (out if isinstance(out, list) else [out])]


def test_every_setting_of_an_op_changes_its_value_in_an_example():
    parameters = {name: inspect.signature(op).parameters for name, op in mg.OPS.items()}
    unheard = {(name, key) for name, of_op in parameters.items() for key, p in of_op.items()
               if p.default is not p.empty}
    for name, args, settings in EACH:
        given = inspect.signature(mg.OPS[name]).bind(*args, **settings).arguments
        for key in given.keys() & {key for op, key in unheard if op == name}:
            less = values(name, {other: a for other, a in given.items() if other != key})
            if not all(map(np.array_equal, values(name, given), less)):
                unheard.discard((name, key))
    assert not unheard, f"add examples to EXAMPLES in which {unheard} count"


def test_every_op_of_the_registry_is_in_the_namespace():
    for name, op in mg.OPS.items():
        assert getattr(mg, name) is op
        assert name in mg.__all__


@of_each_example
def test_vjp_agrees_with_central_differences(name, args, settings):
    def f(*tensors):
        return applied(name, args, settings, tensors)
    arrays = floats(args)
    assert mg.gradcheck(f, *arrays, atol=1e-8, rtol=1e-7)
    if sum(a.size for a in arrays) < 40:
        assert mg.gradcheck(f, *arrays, atol=1e-7, rtol=1e-7, full=True)


@of_each_example
def test_an_op_changes_no_input_and_its_gradients_share_no_memory(name, args, settings):
    arrays = floats(args)
    before = [a.copy() for a in arrays]
    tensors = leaves(args, np.asarray)
    out = applied(name, args, settings, tensors)
    g = np.ones(out.shape)
    out.backward(g)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before))
    assert (g == 1).all()
    others = [g, out.data, *arrays]
    for x in tensors:
        assert not any(np.shares_memory(x.grad, other) for other in others)
        others.append(x.grad)


@pytest.mark.parametrize("later", [False, True])
@of_each_example
def test_backward_gives_gradients_that_are_writable_and_add_up_where_x_is_used_again(
        name, args, settings, later):
    gradients = []
    for again in (False, True):
        tensors = leaves(args)
        squares = [(x * x).sum() for x in tensors if again and not later]
        out = applied(name, args, settings, tensors)
        total = weighted(out)
        squares += [(x * x).sum() for x in tensors if again and later]
        sum([*squares, total] if later else [total, *squares]).backward()
        gradients.append([x.grad for x in tensors])
    for x, alone, both in zip(tensors, *gradients):
        assert alone.flags.writeable
        assert both.flags.writeable
        assert np.allclose(both, alone + 2 * x.data, rtol=1e-12, atol=1e-13)


# The arguments whose numbers a vjp reads
READS = {
    "multiply": ["x", "y"],
    "divide": ["x", "y"],
    "power": ["x", "y"],
    "maximum": ["x", "y"],
    "minimum": ["x", "y"],
    "square": ["x"],
    "expm1": ["x"],
    "log": ["x"],
    "log1p": ["x"],
    "sin": ["x"],
    "cos": ["x"],
    "max": ["x"],
    "min": ["x"],
    "matmul": ["x", "y"],
    "einsum": ["x", "y"],
    "softplus": ["x"],
    "binary_cross_entropy_with_logits": ["logits", "targets"],
    "silu": ["x"],
    "gelu": ["x"],
    "linear": ["x", "weight"],
    "mlp": ["x", "up", "down"],
    "swiglu": ["gate", "x"],
    "layer_norm": ["x", "weight"],
    "rms_norm": ["x", "weight"],
    "scaled_dot_product_attention": ["query", "key", "value"],
    "self_attention": ["qkv"],
}


@of_each_example
def test_backward_refuses_a_change_of_what_a_vjp_reads_and_of_nothing_else(name, args, settings):
    expected = leaves(args)
    weighted(applied(name, args, settings, expected)).backward()
    names = [name for name, a in inspect.signature(mg.OPS[name]).bind(*args).arguments.items()
             for _ in floats([a])]
    for i, argument in enumerate([*names, "value"]):
        tensors = leaves(args)
        out = applied(name, args, settings, tensors)
        changed = [*tensors, out][i]
        loss = weighted(out)
        if changed.data.flags.writeable:
            changed.data += 1
        try:
            loss.backward()
        except RuntimeError as error:
            assert argument in [*READS.get(name, []), "value"]
            assert "was changed as .data was set after" in str(error)
        else:
            assert all(np.array_equal(x.grad, y.grad) for x, y in zip(tensors, expected))


def overwrite(a):
    """Write other whole numbers into arrays and lists."""
    if isinstance(a, np.ndarray) and a.dtype.kind in "ib":
        a[...] = 0
    elif isinstance(a, list) and not floats(a):
        a[:] = [0] * len(a)
    elif isinstance(a, (tuple, list)):
        for part in a:
            overwrite(part)


@pytest.mark.parametrize("name, args, settings", [
    *[example for example in EXAMPLES if example.values[0] != "power"],     # whose numbers are data
    call("take", Normal(5, 3), [[3, 1], [1, 4]]),
    call("take", Normal(5, 3), (slice(1, 4), [2, 0, 0])),
    call("take", Normal(5, 3), (np.array([1, 0], np.int8), [2, 0])),
    call("take", Normal(5, 3), [2, 0, 0], axis=1),
    call("take", Normal(5, 3), ([True, False, True, True, False], slice(2))),
    call("take", Normal(5, 3), collections.deque([2, 0])),
    call("take", Normal(5, 3), (None, np.array(2), [])),
    call("where", np.array([0.5, 0.0, np.nan]), Normal(3), Normal(3)),
    call("where", [True, False, True], Normal(3), Normal(3)),
])
def test_an_op_keeps_copies_of_ids_indices_and_conditions(name, args, settings):
    gradients = []
    for change in (lambda a: None, overwrite):
        tensors = leaves(args)
        given = copy.deepcopy(args)
        loss = weighted(applied(name, given, settings, tensors))
        change(given)
        loss.backward()
        gradients.append([x.grad for x in tensors])
    assert all(map(np.array_equal, *gradients))


@pytest.mark.parametrize("names, args", [
    (["add", "subtract", "multiply", "divide", "maximum", "minimum"],
     [Normal(2, 3), Positive(2, 3)]),
    (["where"], [LEFT_OF_THREE, Normal(2, 3), Positive(2, 3)]),
    (["clip"], [Normal(2, 3), -0.1, Positive(3)]),
    (["exp", "expm1", "log", "log1p", "sqrt", "square", "abs", "sin", "cos", "tanh", "negative"],
     [Positive(2, 3)]),
    (["sum", "mean", "max", "min", "cumsum"], [Normal(2, 3), 1]),
    (["sum", "mean", "max", "min"], [Normal(2, 3, 4), (0, -1)]),
    (["sum", "mean", "max", "min", "cumsum", "ravel"], [Normal(2, 3)]),
    (["max", "min", "cumsum", "ravel", "abs", "square"], [Whole(9, 2, 3)]),
    (["squeeze"], [Normal(2, 1, 3, 1), (1, -1)]),
    (["expand_dims"], [Normal(2, 3), (0, -1)]),
    *((["pad"], [Normal(2, 3), *how]) for how in [
        (2,), ((1, 0),), ([[1, 2]],), (((1,), (2,)),), (((1, 2), (0, 1)), "reflect"), (0,),
        ([1], "wrap")])])
def test_values_are_numpys(names, args):
    for name in names:
        arrays = drawn_for(name, args)
        found, expected = mg.OPS[name](*arrays).data, getattr(np, name)(*arrays)
        assert found.dtype == expected.dtype and np.array_equal(found, expected), name


@pytest.mark.parametrize("settings", [
    {},
    {"axis": 1},
    {"axis": (0, -1), "keepdims": True},
    {"axis": [0], "correction": 1},
    {"correction": 2.5}])
@pytest.mark.parametrize("name", ["var", "std"])
def test_var_and_std_are_numpys_with_its_correction(name, settings):
    x = normal(2, 3, 4)
    axis = settings.get("axis")
    expected = getattr(np, name)(x, axis=tuple(axis) if isinstance(axis, list) else axis,
                                 ddof=settings.get("correction", 0),
                                 keepdims=settings.get("keepdims", False))
    found = mg.OPS[name](x, **settings)
    assert found.shape == expected.shape
    assert np.allclose(found.data, expected, rtol=1e-14)


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value", "ignore:divide")
@pytest.mark.parametrize("shape, axis, correction, value", [
    ((1, 3), 0, 1, np.nan),
    ((0, 3), 0, 0, np.nan),
    ((), None, 1, np.nan),
    ((2, 3), 0, 3, np.inf)])
def test_var_and_std_of_too_few_elements_are_nan_or_infinite_as_numpys(
        shape, axis, correction, value):
    for f in (mg.var, mg.std):
        x = leaf(normal(*shape))
        y = f(x, axis, correction=correction)
        assert np.array_equal(y.data, np.full(shape[1:], value), equal_nan=True)
        y.sum().backward()
        assert not np.isfinite(x.grad).any()


@pytest.mark.parametrize("args", [args for name, args, _ in EACH if name == "einsum"])
def test_einsum_is_numpys_in_value_and_type(args):
    letters, *arrays = args
    assert np.allclose(mg.einsum(letters, *arrays).data, np.einsum(letters, *arrays), rtol=1e-13)
    for dtype in (np.float32, np.int32, bool):
        whole = [np.round(3 * a).astype(dtype) for a in arrays]
        found, expected = mg.einsum(letters, *whole).data, np.einsum(letters, *whole)
        assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_einsum_multiplies_matrices_by_the_formula_of_products(monkeypatch):
    shapes = []

    def product(a, b):
        shapes.append((a.shape, b.shape))
        return a @ b
    monkeypatch.setattr(formulas, "matmul", product)
    x, y = leaf(normal(2, 5, 3, 4)), leaf(normal(2, 6, 3, 4))
    mg.einsum("bqhd,bkhd->bhqk", x, y).sum().backward()
    assert shapes[0] == ((2, 3, 5, 4), (2, 3, 4, 6))
    assert len(shapes) == 3


# Losses, without a target that is ignored and with one; with weights of classes and without.
ALL, SOME = ints([0, 2, 2, 1, 0]), ints([0, -100, 2, 1, -100])
of_each_loss = pytest.mark.parametrize("targets, settings", [
    (targets, settings) for targets in (ALL, SOME) for settings in (
        {}, {"weight": [0.5, 2, 0]}, {"label_smoothing": 0.2},
        {"weight": [0.5, 2, 0], "label_smoothing": 0.2})])


@of_each_loss
def test_cross_entropy_is_the_sum_over_classes_of_each_targets_shares(targets, settings):
    x = normal(5, 3)
    weight, smoothing = np.array(settings.get("weight", [1, 1, 1])), settings.get(
        "label_smoothing", 0)
    total = weights = 0
    each = np.zeros(5)
    for i, target in enumerate(targets):
        if target == -100:
            continue
        log_p = x[i] - np.log(np.exp(x[i]).sum())
        each[i] = (-(1 - smoothing) * weight[target] * log_p[target]
                   - smoothing / 3 * (weight * log_p).sum())
        total += each[i]
        weights += weight[target]
    for reduction, expected in (("none", each), ("sum", total), ("mean", total / weights)):
        found = mg.cross_entropy(x, targets, reduction=reduction, **settings)
        assert np.allclose(found.data, expected, rtol=1e-13, atol=1e-15)
        if not smoothing:
            found = mg.nll_loss(mg.log_softmax(x), targets, reduction=reduction, **settings)
            assert np.allclose(found.data, expected, rtol=1e-13, atol=1e-15)


@of_each_loss
def test_cross_entropy_does_not_look_at_ignored_rows_whatever_its_settings(targets, settings):
    ignored = targets == -100
    x = np.where(ignored[:, None], [np.nan, np.inf, -np.inf], normal(5, 3))
    for reduction in ("mean", "sum", "none"):
        logits = leaf(x)
        loss = mg.cross_entropy(logits, targets, reduction=reduction, **settings)
        loss.backward(np.ones(loss.shape))
        assert np.isfinite(loss.data).all() and np.isfinite(logits.grad).all()
        assert (logits.grad[ignored] == 0).all()


@pytest.mark.parametrize("row", [[np.nan] * 3, [-np.inf] * 3])
def test_nll_loss_does_not_look_at_ignored_rows(row):
    x = np.array([[-1.0, -2, -3], row])
    for reduction, expected in (("mean", 2), ("sum", 2), ("none", [2, 0])):
        found = mg.nll_loss(x, [1, -100], reduction=reduction)
        assert np.array_equal(found.data, expected)


@pytest.mark.parametrize("loss", [mg.cross_entropy, mg.nll_loss])
def test_losses_of_ignored_targets_alone_are_0_but_have_no_mean(loss):
    for reduction, expected in (("sum", 0), ("none", [0, 0])):
        x = leaf(normal(2, 3))
        y = loss(x, [-100, -100], reduction=reduction)
        y.backward(np.ones(y.shape))
        assert np.array_equal(y.data, expected)
        assert (x.grad == 0).all()
    for settings in ({}, {"weight": [0, 1, 1]}):
        assert "no target to average over" in refusal(
            ValueError, loss, normal(2, 3), [-100, 0 if settings else -100], **settings)


@both_types
def test_losses_keep_the_type_of_the_logits_beside_weights_of_another(dtype):
    for reduction in ("mean", "sum", "none"):
        for smoothing in (0, 0.1):
            x = leaf(normal(2, 3), dtype)
            loss = mg.cross_entropy(x, [0, 1], reduction=reduction, weight=np.ones(3),
                                    label_smoothing=smoothing)
            assert loss.dtype == dtype
        assert mg.nll_loss(x, [0, 1], reduction=reduction, weight=np.ones(3)).dtype == dtype


def test_binary_cross_entropy_keeps_all_digits_of_small_losses_and_slopes():
    for sign, target in ((1, 1.0), (-1, 0.0)):
        x = leaf([40.0 * sign, 1000.0 * sign])
        mg.binary_cross_entropy_with_logits(x, [target, target], "sum").backward()
        loss = mg.binary_cross_entropy_with_logits(x, [target, target], "none").data
        assert np.allclose(loss, [math.exp(-40), 0], rtol=1e-14, atol=0)
        assert np.allclose(x.grad, [-sign * math.exp(-40), 0], rtol=1e-14, atol=0)


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
def test_mean_of_no_elements_is_nan_as_numpys():
    x = leaf(np.ones((0, 3)))
    for out, shape in ((x.mean(axis=0), (3,)), (x.mean(), ()), (x.mean(0, keepdims=True), (1, 3))):
        assert out.shape == shape
        assert np.isnan(out.data).all()
        x.grad = None
        out.backward(np.ones(shape))
        assert x.grad.shape == (0, 3)


def test_operators_work_with_numbers_and_arrays_on_either_side():
    x = leaf([1.0, 2.0, 4.0])
    a = np.array([2.0, 3.0, 5.0])
    pairs = [(f, y)
             for f in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)
             for y in (a, 2, np.float64(3))]
    pairs += [(operator.matmul, a), (operator.matmul, np.eye(3))]
    results = [(-x, -x.data), (x[1:], x.data[1:]), (x.T, x.data)]
    for f, y in pairs:
        results += [(f(x, y), f(x.data, y)), (f(y, x), f(y, x.data))]
    for out, expected in results:
        assert type(out) is Tensor
        assert out.requires_grad
        assert np.array_equal(out.data, expected)


def test_methods_take_sizes_and_axes_as_numpys_do():
    x = Tensor(normal(2, 3, 4))
    assert x.reshape(6, 4).shape == x.reshape((6, 4)).shape == (6, 4)
    assert x.reshape(-1).shape == (24,)
    assert x.transpose(2, 0, 1).shape == x.transpose((2, 0, 1)).shape == (4, 2, 3)
    assert x.transpose().shape == (4, 3, 2)
    assert x.swapaxes(0, 1).shape == (3, 2, 4)
    assert x.sum(axis=1).shape == (2, 4)
    assert x.mean().shape == ()


def test_transpose_refuses_two_axes_and_negative_ones_and_names_swapaxes():
    for shape, axes in (((2, 3), (-2, -1)), ((2, 3, 4), (1, 2)), ((2, 3), (0, 0))):
        assert "swapaxes" in refusal(ValueError, Tensor(normal(*shape)).transpose, *axes)


@pytest.mark.parametrize("name, args, expected", [
    ("exp", (0,), 1),
    ("mean", (3,), 3),
    ("relu", (-1.0,), 0),
    ("maximum", (2, 3.0), 3),
    ("where", (True, 1.0, 2.0), 1),
    ("stack", ([1, 2.0],), [1, 2]),
    ("cross_entropy", ([[0.0, 0.0]], [0]), math.log(2)),
    ("embedding", (1, [[5.0], [6.0]]), [6]),
    ("linear", ([1.0, 2.0], [[3.0, 4.0]], [5.0]), [16])])
def test_ops_have_these_values_of_numbers_and_lists(name, args, expected):
    assert np.allclose(mg.OPS[name](*args).data, expected, rtol=1e-14)


def test_ops_take_numbers_and_lists_as_arrays():
    for name, args, settings in EACH:
        arrays = floats(args)
        if all(a.size for a in arrays):         # of the others, a list has not the shape
            expected, found = (applied(name, args, settings, given).data
                               for given in (arrays, [a.tolist() for a in arrays]))
            assert np.array_equal(expected, found), name


ONES = np.ones((2, 3))


@pytest.mark.parametrize("axis", [3, 5, -4, -5])
@pytest.mark.parametrize("name, before", [
    *((name, [ONES]) for name in ("sum", "mean", "max", "min", "var", "std", "cumsum", "squeeze",
                                  "softmax", "log_softmax")),
    *((name, [[ONES, ONES]]) for name in ("concatenate", "stack")),
    ("swapaxes", [ONES, 0]),
    *(("take", [x, 0]) for x in (ONES, 2.0)),
    *(("split", [x, 1]) for x in (ONES, 2.0))])
def test_an_axis_that_does_not_exist_is_refused_by_every_op(name, before, axis):
    assert f"axis {axis} is out of bounds for array of dim" in refusal(
        np.exceptions.AxisError, mg.OPS[name], *before, axis)


@pytest.mark.parametrize("dtype", ["complex128", "float16"])
def test_ops_refuse_types_that_a_tensor_cannot_hold(dtype):
    for name, args, settings in EACH:
        given = [a.astype(dtype) for a in floats(args)]
        assert f"float64, integers or bools), not {dtype}: convert it first" in refusal(
            TypeError, applied, name, args, settings, given)


def test_equal_maxima_share_the_gradient():
    x = leaf([[1.0, 1.0, 0.0]])
    mg.max(x, axis=1).sum().backward()
    assert np.array_equal(x.grad, [[0.5, 0.5, 0]])
    x.grad = None
    mg.min(-x, axis=1).sum().backward()
    assert np.array_equal(x.grad, [[-0.5, -0.5, 0]])
    for f, slopes in ((mg.maximum, [0.5, 0]), (mg.minimum, [0.5, 1])):
        y = leaf([1.0, 2.0])
        f(y, np.array([1.0, 3.0])).sum().backward()
        assert np.array_equal(y.grad, slopes)


def test_powers_of_zero_have_the_derivative_zero_to_the_exponent():
    y = leaf([2.0, 3.0, 0.0])
    mg.power(np.array([0.0, 2.0, 0.0]), y).sum().backward()
    assert np.allclose(y.grad, [0, 8 * math.log(2), 0])


def test_integers_follow_numpy():
    i = Tensor(np.arange(6).reshape(2, 3))
    assert (i + 1).dtype == (i @ i.T).dtype == i.dtype
    assert np.array_equal((i @ i.T).data, i.data @ i.data.T)
    assert (i / 2).dtype == mg.softmax(i).dtype == np.float64
    x = leaf(np.ones(3))
    (x * i).sum().backward()
    assert np.array_equal(x.grad, [3, 5, 7])
    assert not mg.where(np.array([True, False, True]), i, 0).requires_grad
    assert mg.embedding(np.zeros(0, int), Tensor(np.zeros((0, 3)))).shape == (0, 3)


@both_types
def test_a_table_that_is_looked_up_and_scaled_for_the_output_gets_both_gradients(dtype):
    """The product's part of the gradient is in Fortran's order, to which rows are then added."""
    ids = np.array([0, 1, 2, 3, 4, 0, 1])
    table = leaf(np.arange(15.0).reshape(5, 3) / 15, dtype)
    x = mg.embedding(ids, table)[:2]
    (x @ (table * 0.5).T).sum().backward()
    expected = 0.5 * np.tile(table.data[:2].sum(axis=0), (5, 1))
    expected[:2] += 0.5 * table.data.sum(axis=0)
    np.testing.assert_allclose(table.grad, expected, rtol=1e-5)


def test_the_remedy_of_wheres_docstring_has_finite_and_right_gradients():
    x = leaf([-4.0, 0.0, 4.0])
    c = x.data > 0
    with np.errstate(invalid="ignore"):
        mg.where(c, mg.sqrt(x), 0).sum().backward()
    assert np.isnan(x.grad[:2]).all()
    assert x.grad[2] == 0.25
    x.grad = None
    mg.where(c, mg.sqrt(mg.where(c, x, 1)), 0).sum().backward()
    assert np.array_equal(x.grad, [0, 0, 0.25])
    assert "where(c, sqrt(where(c, x, 1)), 0)" in mg.where.__doc__


@both_types
def test_softmax_gives_0_for_minus_inf_with_a_gradient_of_0_and_keeps_nan(dtype):
    x = leaf([[1, -np.inf, 2], [np.nan, 0, 1], [1e30, 0, 1], [-np.inf, -np.inf, 5]], dtype)
    y = mg.softmax(x)
    (y * np.arange(3)).sum().backward()
    assert y.data[0, 1] == 0
    assert np.isclose(y.data[0].sum(), 1)
    assert np.isnan(y.data[1]).all()
    assert y.data[2:].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert np.isfinite(x.grad[[0, 2, 3]]).all()
    assert x.grad[0, 1] == 0


def test_cross_entropy_survives_huge_logits():
    for target, loss in ((0, 0), (1, 2e4)):
        assert mg.cross_entropy(np.array([[1e4, -1e4, 0]]), np.array([target])).item() == loss


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("given", [False, True])
def test_a_bag_is_the_sum_of_its_rows_times_the_dropout_of_ones(p, given):
    ids = np.random.default_rng(0).integers(50, size=(4, 6, 5))
    table = normal(50, 7)
    ours, theirs = (np.random.default_rng(8) if given else None for _ in range(2))
    kept = mg.dropout(np.ones((*ids.shape, 1)), p, theirs)
    results = []
    for compute in (lambda w: mg.embedding_bag(ids, w, p, ours),
                    lambda w: (mg.embedding(ids, w) * kept).sum(-2)):
        weight = leaf(table)
        out = compute(weight)
        out.backward(np.cos(np.arange(168)).reshape(4, 6, 7))
        results.append([out.data, weight.grad])
    assert all(np.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in zip(*results))
    if given:       # both have drawn as much
        assert ours.bit_generator.state == theirs.bit_generator.state
        nothing_drawn = ours.bit_generator.state == np.random.default_rng(8).bit_generator.state
        assert nothing_drawn == (p == 0)


def wrong(error, says, name, *args, **settings):
    """A call that is refused: the error, words of its message, and an example as in EXAMPLES."""
    example = call(name, *args, **settings)
    return pytest.param(error, says, *example.values, id=example.id)


WRONG = [
    wrong(ValueError, "[2, 3] has 3 columns, [4, 5] has 4 rows",
          "matmul", Normal(2, 3), Normal(4, 5)),
    wrong(ValueError, "to scale by a number, use *", "matmul", Normal(2, 3), Normal()),
    wrong(ValueError, "expected x (..., inputs), weight (outputs, inputs), bias (outputs), ea",
          "linear", Normal(2, 3), Normal(3, 5)),
    wrong(ValueError, "each name of one size; shapes are [2, 3], [3, 5], None",
          "linear", Normal(2, 3), Normal(3, 5)),
    wrong(ValueError, "each name of one size; shapes are [2, 3], [5, 3], [4]",
          "linear", Normal(2, 3), Normal(5, 3), Normal(4)),
    wrong(ValueError, "weight (outputs, inputs)", "linear", Normal(3), Normal()),
    wrong(ValueError, "weight (outputs, inputs)", "linear", Normal(3), Normal(3)),
    wrong(ValueError, "weight (V, C), each name of one size; shapes are []",
          "embedding", ints([[0, 5]]), Normal()),
    wrong(ValueError, "weight (V, C), each name of one size; shapes are [7]",
          "embedding", ints([[0, 5]]), Normal(7)),
    wrong(ValueError, "weight (V, C), each name of one size; shapes are [7, 3, 2]",
          "embedding", ints([[0, 5]]), Normal(7, 3, 2)),
    wrong(ValueError, "weight (V, C), each name of one size; shapes are [1, 2], []",
          "embedding_bag", ints([[0, 5]]), Normal()),
    wrong(ValueError, "ids (..., n), weight (V, C), each name of one size",
          "embedding_bag", ints([[0, 5]]), Normal(7)),
    wrong(ValueError, "shapes are [1, 2], [7, 3, 2]",
          "embedding_bag", ints([[0, 5]]), Normal(7, 3, 2)),
    wrong(ValueError, "targets (...), each name of one size; shapes are [2, 3], [1]",
          "cross_entropy", Normal(2, 3), ints([0])),
    wrong(ValueError, "no target to average over, among 2: each is equal to ignore_index, or has",
          "cross_entropy", Normal(2, 3), ints([-100, -100])),
    *[wrong(ValueError, "at least 0, and these are not all",
            name, Normal(2, 3), ints([0, 1]), weight=weight)
      for name in ("cross_entropy", "nll_loss") for weight in ([1, -1, 1], [1, 1, math.nan])],
    *[wrong(ValueError, "logits (..., V), weight (V), each name of one size; shapes are [2, 3], [2",
            name, Normal(2, 3), ints([0, 1]), weight=[1, 1])
      for name in ("cross_entropy", "nll_loss")],
    *[wrong(ValueError, f"at least 0 and at most 1; this is {smoothing}",
            "cross_entropy", Normal(2, 3), ints([0, 1]), label_smoothing=smoothing)
      for smoothing in (-0.1, 1.5, math.nan)],
    *[wrong(ValueError, 'reduction is "mean", "sum" or "none", not \'avg\'',
            name, Normal(2, 3), ints([0, 1]), reduction="avg")
      for name in ("cross_entropy", "nll_loss")],
    *[wrong(ValueError, 'reduction is "mean", "sum" or "none", not None',
            name, Normal(2, 3), Normal(2, 3), None)
      for name in ("mse_loss", "binary_cross_entropy_with_logits")],
    wrong(TypeError, "ignore_index is an integer; give weights of classes by their name",
          "cross_entropy", Normal(2, 3), ints([0, 1]), [1, 1, 1]),
    wrong(IndexError, "target 3 at (0,)", "nll_loss", Normal(2, 3), ints([3, 0])),
    wrong(TypeError, "targets are integers, and these are float64",
          "nll_loss", Normal(2, 3), Normal(2)),
    *[wrong(TypeError, "an axis is a number, and this is float64[2]; mg.maximum and mg.minimum",
            name, Normal(2), Normal(2)) for name in ("max", "min")],
    wrong(ValueError, "x (...), target (...), each name of one size; shapes are [2, 1], [2]",
          "mse_loss", Normal(2, 1), Normal(2)),
    wrong(ValueError, "logits (...), targets (...), each name of one size; shapes are [2], []",
          "binary_cross_entropy_with_logits", Normal(2), 1.0),
    wrong(ValueError, "one for each axis, from the first on; PyTorch's is flat, and begins with",
          "pad", Normal(2, 3), (1, 1, 0, 0)),
    wrong(ValueError, '"symmetric" or "wrap", not \'mean\'', "pad", Normal(2, 3), 1, "mean"),
    wrong(ValueError, "negative", "pad", Normal(2, 3), -1),
    wrong(ValueError, "x (..., C), weight (C), bias (C), each", "layer_norm", Normal()),
    wrong(ValueError, "each name of one size; shapes are [2, 3], [4], None",
          "layer_norm", Normal(2, 3), Normal(4)),
    wrong(ValueError, "shapes are [2, 3], None, [4]", "layer_norm", Normal(2, 3), None, Normal(4)),
    wrong(ValueError, "x (..., C), weight (C), bias (C), each", "rms_norm", Normal()),
    wrong(ValueError, "x (..., T, W), each name of one size; shapes are [3]",
          "rotary", Normal(3), 1, 2),
    wrong(ValueError, "x (..., T, W), each name of one size; shapes are [3]",
          "qk_norm", Normal(3), 1, 2),
    wrong(ValueError, "qkv (..., T, C), each", "self_attention", Normal(3), 1),
    wrong(ValueError, "query (..., T, D), key (..., S, D), value",
          "scaled_dot_product_attention", Normal(3), Normal(2, 3), Normal(2, 3)),
    wrong(ValueError, "shapes are [2, 3], [3], [2, 3]",
          "scaled_dot_product_attention", Normal(2, 3), Normal(3), Normal(2, 3)),
    wrong(ValueError, "shapes are [2, 3], [2, 3], [3]",
          "scaled_dot_product_attention", Normal(2, 3), Normal(2, 3), Normal(3)),
    wrong(ValueError, "shapes are [2, 3], [2, 3], [5, 3]",
          "scaled_dot_product_attention", Normal(2, 3), Normal(2, 3), Normal(5, 3)),
    wrong(ValueError, "shapes are [2, 3], [2, 4], [2, 4]",
          "scaled_dot_product_attention", Normal(2, 3), Normal(2, 4), Normal(2, 4)),
    wrong(ValueError, "each name of one size",
          "scaled_dot_product_attention", Normal(3, 4, 2, 3), Normal(2, 4, 2, 3),
          Normal(2, 4, 2, 3)),
    wrong(ValueError, "each name of one size",
          "scaled_dot_product_attention", Normal(4, 2, 3), Normal(2, 2, 3), Normal(2, 2, 3)),
    wrong(ValueError, "each name of one size",
          "scaled_dot_product_attention", Normal(2, 4, 2, 3), Normal(4, 2, 3), Normal(4, 2, 3)),
    wrong(ValueError, "each name of one size",
          "scaled_dot_product_attention", Normal(4, 2, 3), Normal(4, 2, 3), Normal(2, 2, 3)),
    wrong(ValueError, "at most 1; this is 1.1",
          "scaled_dot_product_attention", Normal(2, 3), Normal(2, 3), Normal(2, 3), dropout_p=1.1),
    wrong(ValueError, "1 part or more, not into 0", "split", Normal(4), 0),
    wrong(ValueError, "1 part or more, not into -1", "split", Normal(4), -1),
    wrong(ValueError, "at most 1; this is -0.1", "embedding_bag", ints([1]), Normal(5, 3), -0.1),
    wrong(ValueError, "at most 1; this is 1.5", "dropout", Normal(3), 1.5),
    wrong(ValueError, "10 channels do not split evenly into the queries of 2 heads and",
          "self_attention", Normal(2, 10), 2),
    wrong(ValueError, "6 heads of queries do not split evenly among 4 of keys and",
          "self_attention", Normal(2, 20), 6, 4),
    wrong(ValueError, "0 heads of queries do not", "self_attention", Normal(2, 12), 0),
    wrong(ValueError, "-2 heads of queries do not", "self_attention", Normal(2, 12), -2),
    wrong(ValueError, "evenly among 0 of keys", "self_attention", Normal(2, 12), 2, 0),
    wrong(ValueError, "evenly among -2 of keys", "self_attention", Normal(2, 12), 2, -2),
    wrong(ValueError, "0 channels do not split evenly", "self_attention", Normal(2, 0), 2),
    wrong(ValueError, "10 channels do not hold 0 heads of 4", "rotary", Normal(2, 10), 0, 4),
    wrong(ValueError, "10 channels do not hold -2 heads of -2", "rotary", Normal(2, 10), -2, -2),
    wrong(ValueError, "10 channels do not hold 2 heads of -2", "rotary", Normal(2, 10), 2, -2),
    wrong(ValueError, "10 channels do not hold 3 heads of 4", "rotary", Normal(2, 10), 3, 4),
    wrong(ValueError, "turned in pairs, by a base above 0; a head has 5",
          "rotary", Normal(2, 10), 2, 5),
    wrong(ValueError, "10 channels, and the base is 0.0", "rotary", Normal(2, 10), 1, 10, base=0.0),
    wrong(ValueError, "10 channels, and the base is -1.0",
          "rotary", Normal(2, 10), 1, 10, base=-1.0),
    wrong(ValueError, "10 channels do not hold 0 heads", "qk_norm", Normal(2, 10), 0, 4),
    wrong(ValueError, "10 channels do not hold 3 heads of 4", "qk_norm", Normal(2, 10), 3, 4),
    wrong(ValueError, "in pairs, by a base above 0; a head has 5",
          "qk_norm", Normal(2, 10), 2, 5, base=10.0),
    wrong(ValueError, "x (..., C), up (F, C), up_bias (F), down (P, F), down_bi",
          "mlp", Normal(2, 3), Normal(5, 4), None, Normal(3, 5), None),
    wrong(ValueError, "shapes are [2, 3], [5, 3], [4], [3, 5], None",
          "mlp", Normal(2, 3), Normal(5, 3), Normal(4), Normal(3, 5), None),
    wrong(ValueError, "shapes are [2, 3], [5, 3], None, [5, 3], None",
          "mlp", Normal(2, 3), Normal(5, 3), None, Normal(5, 3), None),
    wrong(ValueError, "shapes are [2, 3], [5, 3], None, [3, 5], [5]",
          "mlp", Normal(2, 3), Normal(5, 3), None, Normal(3, 5), Normal(5)),
    wrong(ValueError, "shapes are [2, 3], [5, 3], None, [5], None",
          "mlp", Normal(2, 3), Normal(5, 3), None, Normal(5), None),
    wrong(ValueError, "one of gelu, relu2, gelu_tanh, not 'relu'; a gated",
          "mlp", Normal(2, 3), Normal(5, 3), None, Normal(3, 5), None, "relu"),
    wrong(ValueError, "MLP is linear(swiglu(gate, h), down, down_bias)",
          "mlp", Normal(2, 3), Normal(5, 3), None, Normal(3, 5), None, "swiglu"),
    wrong(ValueError, "gate (...), x (...), each name of one size; shapes are [2, 3], [3]",
          "swiglu", Normal(2, 3), Normal(3)),
    wrong(ValueError, "not 'erf'", "gelu", Normal(3), approximate="erf"),
    wrong(ValueError, "could not be broadcast", "add", Normal(2, 3), Normal(4)),
    wrong(IndexError, "id 9 at (0, 1) is not one of the 5 from 0 to 4",
          "embedding", ints([[1, 9]]), Normal(5, 3)),
    wrong(IndexError, "id -1 at (0,)", "embedding", ints([-1]), Normal(5, 3)),
    wrong(IndexError, "id 5 at (0, 1) is not one of the 5 from 0 to 4",
          "embedding_bag", ints([[0, 5]]), Normal(5, 3)),
    wrong(IndexError, "id -5 at (0, 1)", "embedding_bag", ints([[0, -5]]), Normal(5, 3)),
    wrong(IndexError, "target 3 at (1,) is not one of the 3",
          "cross_entropy", Normal(2, 3), ints([0, 3])),
    wrong(IndexError, "target -1 at (2,)", "cross_entropy", Normal(3, 3), ints([-100, 0, -1])),
    wrong(TypeError, "(float); this is int64",
          "scaled_dot_product_attention", Normal(2, 3), Normal(2, 3), Normal(2, 3),
          ints([[1, 1], [1, 1]])),
    wrong(TypeError, "'float' object", "rotary", Normal(2, 12), 2, 2.5),
    wrong(TypeError, "'float' object", "qk_norm", Normal(2, 12), 2, 2.5),
    wrong(TypeError, "ids are integers, and these are float64",
          "embedding", Normal(1), Normal(5, 3)),
    wrong(TypeError, "rng is a generator such as np.random.default_rng(0), not",
          "embedding_bag", ints([1]), Normal(5, 3), 0.5, 7),
    wrong(TypeError, "np.random.default_rng(0), not int", "dropout", Normal(3), 0.5, rng=7),
    # Types and numbers of more kinds.
    wrong(ValueError, "logits (..., V), targets (...), each",
          "cross_entropy", np.ones(()), np.array(0)),
    wrong(ValueError, "and the base is nan", "rotary", Normal(2, 10), 1, 10, base=math.nan),
    wrong(ValueError, "ids (..., n), weight (V, C), each",
          "embedding_bag", np.array(0), Normal(5, 3)),
    wrong(IndexError, f"id {1 << 63} at (1,)",
          "embedding", np.array([1, 1 << 63], np.uint64), Normal(5, 3)),
    wrong(IndexError, f"target {2**64 - 100} at (0,)",          # which is -100 as int64
          "cross_entropy", Normal(1, 3), np.array([2**64 - 100], np.uint64)),
]


@pytest.mark.parametrize("error, says, name, args, settings", WRONG)
def test_errors_say_what_was_expected_and_name_op_types_and_shapes(
        error, says, name, args, settings):
    with pytest.raises(error) as caught:
        mg.OPS[name](*[Tensor(a) if isinstance(a, np.ndarray) else a for a in args], **settings)
    assert says in str(caught.value)
    first = args[0]
    note = f"in {name}({first.dtype}{list(first.shape)}"
    assert any(line.startswith(note) for line in caught.value.__notes__)


@pytest.mark.parametrize("letters, shapes, error, says", [
    ("ij", [(2,)], ValueError, "does not contain the correct number of indices"),
    ("i", [(2, 3)], ValueError, "does not contain the correct number of indices"),
    ("ij...", [(2,)], ValueError, "does not contain the correct number of indices"),
    ("i,j", [(2,)], ValueError, "'i,j' has the letters of 2 arrays, divided by commas, and 1 came"),
    ("ij", [(2, 3), (3, 4)], ValueError, "'ij' has the letters of 1 array, divided by commas, and"),
    ("ij,jk", [(2, 3), (4, 4)], ValueError, "label 'j'"),
    ("ii", [(2, 3)], ValueError, "label 'i'"),
    ("ij->k", [(2, 3)], ValueError, "Output character k did not appear in the input"),
    ("ij->ii", [(2, 3)], ValueError, "Output character i appeared more than once"),
    ("i1->i", [(2, 3)], ValueError, "Character 1 is not a valid symbol"),
    ("...i->i", [(2, 3)], ValueError, 'the axes of "..." are not summed: write it into the output'),
    ("i,i,i", [(2,), (2,), (2,)], TypeError, "multiply more of them one after the other")])
def test_einsum_says_which_letters_do_not_fit(letters, shapes, error, says):
    assert says in refusal(error, mg.einsum, letters, *map(np.ones, shapes))
    assert 'mg.einsum("ij,jk->ik", x, y)' in refusal(TypeError, mg.einsum, *map(np.ones, shapes),
                                                     letters)


def test_check_shapes_compares_a_size_with_any_array_before():
    table = "x (A, B), y (B), z (A)"
    _check_shapes(table, np.ones((2, 3)), np.ones(3), np.ones(2))
    said = refusal(ValueError, _check_shapes, table, np.ones((2, 3)), np.ones(3), np.ones(3))
    assert said == f"expected {table}, each name of one size; shapes are [2, 3], [3], [3]"


@pytest.mark.parametrize("rotated", [mg.rotary, mg.qk_norm])
def test_rotary_turns_rows_from_first_on_as_it_turns_them_in_the_whole(rotated):
    x = normal(2, 9, 8)
    whole = rotated(x, 2, 4, 100.0).data
    assert np.array_equal(rotated(x[:, 3:5], 2, 4, 100.0, first=3).data, whole[:, 3:5])


@pytest.mark.parametrize("drop", [
    lambda x, rng: mg.dropout(x, 0, rng),
    lambda x, rng: mg.dropout(x, p=0.0, rng=rng)])
def test_dropout_of_0_returns_a_tensor_itself_and_runs_no_op(drop):
    x = leaf([1.0, 2.0])
    told = []
    with watch_ops(told.append):
        assert drop(x, np.random.default_rng(0)) is x
    assert not told
    assert mg.dropout([1.0, 2.0], 0).data.tolist() == [1, 2]
    assert "dropout takes x, p, rng" in refusal(TypeError, mg.dropout, x, 0, seed=0)


def test_attention_and_embedding_bag_without_dropout_make_no_mask(monkeypatch):
    q = normal(2, 3, 4)
    table = leaf(np.ones((5, 2)))
    for name in ("attention", "attention_vjp", "dropout", "sum_rows", "add_rows"):
        monkeypatch.setattr(getattr(formulas, name), "kernel", None)
    monkeypatch.setattr(formulas, "kept_elements", None)
    out = mg.scaled_dot_product_attention(leaf(q), q, q)
    assert np.array_equal(out.data, mg.scaled_dot_product_attention(q, q, q).data)
    out.sum().backward()
    mg.embedding_bag(np.array([[1, 1, 4]]), table).sum().backward()
    assert table.grad.tolist() == [[0, 0], [2, 2], [0, 0], [0, 0], [1, 1]]


@pytest.mark.parametrize("targets", [[2, -1], [-3, 0], [3, 0], [1 << 32, 0]])
@pytest.mark.parametrize("ignored", [-100, 1])
def test_cross_entropy_refuses_what_is_no_class_in_the_op_and_in_its_formula(targets, ignored):
    logits = normal(2, 3)
    assert "is not one of the 3 from 0 to 2" in refusal(
        IndexError, mg.cross_entropy, logits, np.array(targets), ignored)
    if mg.COMPILED:
        refusal(IndexError, formulas.cross_entropy, logits, np.array(targets), ignored)


@pytest.mark.parametrize("ignored", [-100, 1, 7])
def test_cross_entropy_counts_the_targets_that_are_not_ignored(ignored):
    logits = normal(4, 3)
    targets = np.array([0, ignored, 2, ignored])
    _, slopes, counted = formulas.cross_entropy(logits, targets, ignored)
    assert counted == 2
    assert not slopes[[1, 3]].any()
    alone = mg.cross_entropy(logits[[0, 2]], targets[[0, 2]])
    assert np.allclose(mg.cross_entropy(logits, targets, ignored).data, alone.data)


@pytest.mark.parametrize("loss", [mg.mse_loss, mg.binary_cross_entropy_with_logits])
def test_a_loss_of_matrices_is_summed_to_one_number(loss):
    x, y = np.ones((2, 3)), np.full((2, 3), 0.25)
    each = loss(x, y, reduction="none").data
    total = loss(x, y, reduction="sum").data
    assert each.shape == (2, 3) and total.shape == () and np.isclose(total, each.sum())
