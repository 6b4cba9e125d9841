"""The checker itself: planted wrong gradients must each be caught, right ones of any size pass."""
import inspect
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas
from minigrad.core import Tensor
from minigrad.formulas import Drop, How
from tests.kit import attention_gradients

r = np.random.default_rng(0).standard_normal
SQUARES = r((3, 4, 4))                  # of queries, keys and values, too
ROWS, OTHER_ROWS = r((2, 4, 6))
GAIN = np.ones(6)
SHIFT = np.zeros(6)
CAUSAL = How(causal=True, scale=0.5)
DROP = Drop(0.3, 5)


def of_one_head(vjp):
    """Attention of one head; `vjp` gets its arguments, g, the gradient of the scores, and the
    weights."""
    def f(q, k, v):
        scale = 1 / math.sqrt(q.shape[1])
        P = formulas.softmax(q @ k.T * scale)
        return P @ v, lambda g: vjp(q, k, v, g, formulas.softmax_vjp(g @ v.T, P) * scale, P)
    return f


def attended(on, back):
    """Attention that takes other settings going back."""
    def f(q, k, v):
        out, moments = formulas.attention(q, k, v, on)
        return out, lambda g: attention_gradients(g, q, k, v, out, moments, back)
    return f


def with_keys_of_the_first_head_alone(q, k, v):
    (out, right), (_, first) = (attended(CAUSAL, CAUSAL)(x, k, v) for x in (q, q[:, :1]))
    return out, lambda g: (right(g)[0], first(g[:, :1])[1], right(g)[2])


def normed(centred, vjp):
    """A norm; `vjp` gets g, its arguments and its moments."""
    def f(x, w=GAIN):
        y, moments = formulas.norm(x, w, SHIFT, 1e-5, centred)
        return y, lambda g: vjp(g, x, w, moments)
    return f


# What is wrong -> the arguments that show it, and a function that returns its value and wrong vjps.
WRONG = {
    # Products
    "weight gradient transposed": (
        SQUARES[:2],
        lambda x, w: (
            x @ w,
            lambda g: (g @ w.T, (x.T @ g).T))),
    "input gradient by the weight untransposed": (
        SQUARES[:2],
        lambda x, w: (
            x @ w,
            lambda g: (g @ w, x.T @ g))),
    "dropped branch of a product, as if = stood where += must": (
        SQUARES[:2],
        lambda x, w: (
            (x @ w) @ w,
            lambda g: (g @ w.T @ w.T, (x @ w).T @ g))),
    # Sums, shapes and places
    "mean without its 1 / B": (
        [r((5, 3))],
        lambda x: (
            x.mean(axis=0),
            lambda g: [np.broadcast_to(g, x.shape)])),
    "mean divided by the axis number": (
        [r((2, 3))],
        lambda x: (
            x.mean(axis=1),
            lambda g: [np.broadcast_to(g[:, None] / 1, x.shape)])),
    "broadcast axis averaged instead of summed": (
        [r((3, 1))],
        lambda x: (
            np.broadcast_to(x, (3, 4)),
            lambda g: [g.mean(axis=1, keepdims=True)])),
    "dropped branch of a residual": (
        [r((3, 3))],
        lambda x: (
            x + np.tanh(x),
            lambda g: [g])),
    "transpose by the same axes, not the inverse": (
        [r((3, 3, 3))],
        lambda x: (
            x.transpose(1, 2, 0),
            lambda g: [g.transpose(1, 2, 0)])),
    "concatenated parts exchanged": (
        r((2, 2, 3)),
        lambda x, y: (
            np.concatenate([x, y]),
            lambda g: (g[2:], g[:2]))),
    "repeated rows set instead of added": (
        [r((5, 3))],
        lambda x: (
            x[[1, 1, 4]],
            lambda g: [np.stack([0 * g[0], g[1], 0 * g[0], 0 * g[0], g[2]])])),
    "sign of the subtrahend lost": (
        r((2, 3, 4)),
        lambda x, y: (
            x - y,
            lambda g: (g, 1 * g))),
    "divisor gradient without the square": (
        [r((3, 4)), np.abs(r((3, 4))) + 1],
        lambda x, y: (
            x / y,
            lambda g: (g / y, -g * x / y))),
    # Softmax and losses
    "softmax without its mean term": (
        [ROWS],
        lambda x: (
            formulas.softmax(x),
            lambda g: [formulas.softmax(x) * g])),
    "softmax with its diagonal only": (
        [ROWS],
        lambda x: (
            formulas.softmax(x),
            lambda g: [g * formulas.softmax(x) * (1 - formulas.softmax(x))])),
    "log softmax without its sum": (
        [ROWS],
        lambda x: (
            np.log(formulas.softmax(x)),
            lambda g: [g - formulas.softmax(x)])),
    "cross entropy averaged over ignored targets too": (
        [r((4, 3))],
        lambda x: (
            formulas.cross_entropy(x, np.array([0, -100, 2, 1]), -100)[0].sum() / 3,
            lambda g: [
                formulas.cross_entropy(x, np.array([0, -100, 2, 1]), -100)[1] * float(g) / 4])),
    "cross entropy without its one-hot": (
        [r((3, 4))],
        lambda x: (
            formulas.cross_entropy(x, np.array([0, 2, 1]), -100)[0].mean(),
            lambda g: [g * formulas.softmax(x) / 3])),
    # Activations and dropout
    "gelu with its first term only": (
        [ROWS],
        lambda x: (
            formulas.gelu(x, False),
            lambda g: [g * formulas.gelu(x, False) / x])),
    "gelu exact going on and by tanh going back": (
        [ROWS / 9 - 2],
        lambda x: (
            formulas.gelu(x, False),
            lambda g: [formulas.gelu_vjp(g, x, True)])),
    "gate with the first term of its silu only": (
        [ROWS, OTHER_ROWS],
        lambda gate, up: (
            formulas.swiglu(gate, up),
            lambda g: (
                g * up / (1 + np.exp(-gate)),
                formulas.swiglu_vjp(g, gate, up)[1]))),
    "product multiplied by its gate before the silu going back": (
        [ROWS, OTHER_ROWS],
        lambda gate, up: (
            formulas.swiglu(gate, up),
            lambda g: (
                formulas.swiglu_vjp(g, gate, up)[0],
                g * gate))),
    "dropout scale forgotten going back": (
        [ROWS],
        lambda x: (
            formulas.dropout(x, DROP),
            lambda g: [np.where(formulas.dropout(x, DROP) != 0, g, 0)])),
    "dropout mask forgotten going back": (
        [ROWS],
        lambda x: (
            formulas.dropout(x, DROP),
            lambda g: [g / 0.7])),
    # Norms
    "layer norm without the gradient of the mean": (
        [ROWS],
        normed(
            True,
            lambda g, x, w, moments: [
                formulas.norm_vjp(g, x, w, moments, True)[0] + g.mean(axis=1, keepdims=True)])),
    "layer norm without the gradient of the variance": (
        [ROWS],
        normed(
            True,
            lambda g, x, w, moments: [
                (g - g.mean(axis=1, keepdims=True)) * moments[:, 1:]])),
    "norm gain forgotten going back": (
        [ROWS, r(6)],
        normed(
            False,
            lambda g, x, w, moments: (
                formulas.norm_vjp(g, x, GAIN, moments, False)[0],
                formulas.norm_vjp(g, x, w, moments, False)[1]))),
    # Attention
    "key gradient reshaped instead of transposed": (
        SQUARES,
        of_one_head(
            lambda q, k, v, g, dS, P: (
                dS @ k,
                (q.T @ dS).reshape(k.shape),
                P.T @ g))),
    "query and key gradients exchanged": (
        SQUARES,
        of_one_head(
            lambda q, k, v, g, dS, P: (
                dS.T @ q,
                dS @ k,
                P.T @ g))),
    "attention's scale missing going back": (
        SQUARES,
        of_one_head(
            lambda q, k, v, g, dS, P: (
                dS @ k * 2,
                dS.T @ q * 2,
                P.T @ g))),
    "attention's weights untransposed for the values": (
        SQUARES,
        of_one_head(
            lambda q, k, v, g, dS, P: (
                dS @ k,
                dS.T @ q,
                P @ g))),
    "shared keys with the gradient of one head alone": (
        (r((1, 2, 5, 4)), *r((2, 1, 1, 5, 4))),
        with_keys_of_the_first_head_alone),
    "causal mask lost going back": (
        r((3, 1, 1, 5, 4)),
        attended(
            CAUSAL,
            CAUSAL._replace(causal=False))),
    "attention's dropout drawn anew going back": (
        r((3, 1, 1, 9, 4)),
        attended(
            CAUSAL._replace(drop=Drop(0.3, 1)),
            CAUSAL._replace(drop=Drop(0.3, 2)))),
    "attention's mask lost going back": (
        r((3, 1, 2, 5, 4)),
        attended(
            CAUSAL._replace(mask=r((1, 2, 5, 5))),
            CAUSAL)),
    "positions not turned back": (
        [r((5, 4))],
        lambda x: (
            formulas.rotate(x, *TURNS),
            lambda g: [formulas.rotate(g, *TURNS)])),
    # Few numbers, or all of them
    "one wrong element among 2500": (
        [r((50, 50))],
        lambda x: (
            x * 1.0,
            lambda g: [g * np.where(np.arange(2500).reshape(50, 50) == 853, 1.5, 1)])),
    "a gradient of nan": (
        [ROWS],
        lambda x: (
            x * 1.0,
            lambda g: [g * np.nan])),
    "no gradient at all": (
        [ROWS],
        lambda x: (
            x * 1.0,
            lambda g: [0 * g])),
    "a gradient off by one percent": (
        [ROWS],
        lambda x: (
            x * 1.0,
            lambda g: [g * 1.01]))}
TURNS = np.cos(np.ones((5, 2))), np.sin(np.ones((5, 2)))


WRONG = {name: (mg.op(register=False)(f), args) for name, (args, f) in WRONG.items()}
CUT = {
    "a gradient cut by detach": (lambda x: x.detach() * x, [r(3)]),
    "a gradient cut by NumPy": (lambda x: Tensor(np.tanh(x.data)), [r(3)])}


@pytest.mark.parametrize("f, args", (WRONG | CUT).values(), ids=WRONG | CUT)
def test_gradcheck_catches_each_planted_bug(f, args):
    with pytest.raises(mg.GradcheckError):
        mg.gradcheck(f, *args)
    if args[0].size <= 100:
        with pytest.raises(mg.GradcheckError):
            mg.gradcheck(f, *args, full=True)


@pytest.mark.parametrize("size", [0.0, 1e-6, 0.02, 1.0])
@pytest.mark.parametrize("loss_scale", [1e-6, 1.0])
def test_gradcheck_catches_a_wrong_gradient_of_small_weights_under_a_small_loss(size, loss_scale):
    wrong, (x, w) = WRONG["weight gradient transposed"]
    w = w * size
    with pytest.raises(mg.GradcheckError):
        mg.gradcheck(lambda w: (mg.tanh(wrong(x, w)) * loss_scale).mean(), w)
    assert mg.gradcheck(lambda w: (mg.tanh(mg.matmul(x, w)) * loss_scale).mean(), w)


def test_gradcheck_passes_right_gradients_of_every_size():
    for size in (1e-8, 1e-3, 1.0, 1e6):
        x = size * r((3, 4))
        y = size * (np.abs(r((3, 4))) + 0.5)
        assert mg.gradcheck(lambda x, y: x * y + x / y, x, y)
        assert mg.gradcheck(lambda x: mg.layer_norm(x, eps=0.0), size * r((3, 4)),
                            rtol=1e-6, atol=1e-7, full=True)


def test_gradcheck_passes_a_gradient_that_is_exactly_zero():
    key_bias = r(4)     # softmax is blind to what is added to all scores of a row
    assert mg.gradcheck(lambda b: mg.softmax(r_fixed @ r_fixed.T + (r_fixed @ b).reshape(-1, 1)),
                        key_bias)
    assert mg.gradcheck(lambda x: x * 0.0, r(3))
    assert mg.gradcheck(lambda x: x * 1.0, np.zeros(3))


r_fixed = r((5, 4))


def test_gradcheck_names_a_bug_by_argument_index_and_both_numbers():
    f, args = WRONG["one wrong element among 2500"]
    with pytest.raises(mg.GradcheckError, match=r"argument 0, index \(.*\): the vjp gives .*, "
                                                "central differences"):
        mg.gradcheck(f, *args)

    @mg.op(register=False)
    def wrong_at_one_place(x, y):
        return x * 1.0 + y, (lambda g: g, lambda g: g * np.array([1.0, 3.0, 1.0]))
    with pytest.raises(mg.GradcheckError, match=r"argument 1, index \(1,\), output \(1,\): "
                                                r"the vjp gives 3, .* 1(\.0*\d*)?$"):
        mg.gradcheck(wrong_at_one_place, r(3), r(3), full=True)
    with pytest.raises(mg.GradcheckError, match=r"argument 1, index \(1,\): the vjp gives"):
        mg.gradcheck(wrong_at_one_place, r(3), r(3))

    @mg.op(register=False)
    def nan_at_one_place(x):
        return x * 1.0, (lambda g: g * np.array([1.1, np.nan, 1.0]),)
    with pytest.raises(mg.GradcheckError, match=r"argument 0, index \(1,\): the vjp gives nan"):
        mg.gradcheck(nan_at_one_place, r(3))


def test_gradcheck_checks_arguments_in_float64_and_passes_integers_through():
    seen = []

    def f(x, ids, flag):
        seen.append((x.dtype, ids.dtype, flag))
        return mg.take(x, ids)
    assert mg.gradcheck(f, r((4, 2)).astype(np.float32), np.array([1, 1, 3]), "flag") is True
    assert set(seen) == {(np.dtype(np.float64), np.dtype(np.int64), "flag")}


def test_gradcheck_has_the_defaults_of_pytorchs():
    defaults = {name: p.default for name, p in inspect.signature(mg.gradcheck).parameters.items()}
    assert defaults["eps"] == 1e-6
    assert defaults["atol"] == 1e-5
    assert defaults["rtol"] == 1e-3


def test_gradcheck_takes_tensors_and_leaves_their_gradients():
    x = Tensor(r((2, 2)), requires_grad=True)
    assert mg.gradcheck(lambda x: x * x, x)
    assert x.grad is None


@pytest.mark.parametrize("f, x, error, says", [
    (lambda x, rng=np.random.default_rng(0): mg.dropout(x, 0.5, rng), r(50), mg.GradcheckError,
     "two different values .* freeze its randomness"),
    (lambda x: Tensor(x.data.astype(np.float32)), r(3), mg.GradcheckError,
     "float64 and return a Tensor; it gave .* of float32"),
    (lambda x: 3, r(3), mg.GradcheckError, "return a Tensor; it gave 3"),
    (lambda x: x, np.array([1, 2]), ValueError, "at least one array of floats")])
def test_gradcheck_says_what_it_cannot_check(f, x, error, says):
    with pytest.raises(error, match=says):
        mg.gradcheck(f, x)
    assert mg.gradcheck(lambda x: mg.dropout(x, 0.5, np.random.default_rng(0)), r(50))
