"""The checker itself: planted wrong gradients must each be caught, right ones of any size pass."""
import inspect
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas
from minigrad.core import Tensor
from minigrad.formulas import AttentionSettings, DropoutSettings
from tests.documents import stated
from tests.kit import normal, refusal

SQUARES = normal(3, 4, 4)         # of queries, keys and values, too
ROWS, OTHER_ROWS = normal(2, 4, 6)
KEYS = normal(5, 4)
GAIN = np.ones(6)
SHIFT = np.zeros(6)
TARGETS = np.array([0, -100, 2, 1])
TURNS = np.cos(np.ones((5, 2))), np.sin(np.ones((5, 2)))
CAUSAL = AttentionSettings(causal=True, scale=0.5)
DROP = DropoutSettings(0.3, 5)


def of(f, *args):
    """A function that returns its value and wrong vjps, and the arguments that show it."""
    return mg.op(register=False)(f), args


def of_one(value, vjp, x=ROWS):
    """The same of one argument; `vjp` gets it after g."""
    return of(lambda x: (value(x), lambda g: [vjp(g, x)]), x)


def of_the_same(vjp, x=ROWS):
    """The same of x itself; `vjp` gets g."""
    return of_one(lambda x: x * 1.0, lambda g, x: vjp(g), x)


def of_two(value, vjp, x=ROWS, y=OTHER_ROWS):
    """The same of two arguments."""
    return of(lambda x, y: (value(x, y), lambda g: vjp(g, x, y)), x, y)


def of_one_head(vjp):
    """The same of attention; `vjp` gets its arguments, g, the gradient of the scores, and the
    weights."""
    def f(q, k, v):
        scale = 1 / math.sqrt(q.shape[1])
        P = formulas.softmax(q @ k.T * scale)
        return P @ v, lambda g: vjp(q, k, v, g, formulas.softmax_vjp(g @ v.T, P) * scale, P)
    return of(f, *SQUARES)


def attended(on, back):
    """Attention that takes other settings going back."""
    def f(q, k, v):
        out, top, inverse = formulas.attention(q, k, v, on)
        return out, lambda g: formulas.attention_vjp(g, q, k, v, out, top, inverse, back)
    return f


def with_keys_of_the_first_head_alone(q, k, v):
    (out, right), (_, first) = (attended(CAUSAL, CAUSAL)(x, k, v) for x in (q, q[:, :1]))
    return out, lambda g: (right(g)[0], first(g[:, :1])[1], right(g)[2])


def normed(centred, vjp, *weight):
    """The same of a norm; `vjp` gets g, its arguments, and the mean and 1 / std of its rows."""
    def f(x, w=GAIN):
        y, mean, rstd = formulas.norm(x, w, SHIFT, 1e-5, centred)
        return y, lambda g: vjp(g, x, w, mean, rstd)
    return of(f, ROWS, *weight)


def cross_entropy(x):
    losses, slopes, _ = formulas.cross_entropy(x, TARGETS, -100)
    return losses.sum() / 3, slopes


WRONG = {
    # Products
    "weight gradient transposed": of_two(
        np.matmul,
        lambda g, x, w: (g @ w.T, (x.T @ g).T),
        *SQUARES[:2]),
    "input gradient by the weight untransposed": of_two(
        np.matmul,
        lambda g, x, w: (g @ w, x.T @ g),
        *SQUARES[:2]),
    "dropped branch of a product, as if = stood where += must": of_two(
        lambda x, w: x @ w @ w,
        lambda g, x, w: (g @ w.T @ w.T, (x @ w).T @ g),
        *SQUARES[:2]),
    # Sums, shapes and places
    "mean without its 1 / B": of_one(
        lambda x: x.mean(axis=0),
        lambda g, x: np.broadcast_to(g, x.shape)),
    "mean divided by the axis number": of_one(
        lambda x: x.mean(axis=1),
        lambda g, x: np.broadcast_to(g[:, None] / 1, x.shape)),
    "broadcast axis averaged instead of summed": of_one(
        lambda x: np.broadcast_to(x, (3, 4)),
        lambda g, x: g.mean(axis=1, keepdims=True),
        normal(3, 1)),
    "dropped branch of a residual": of_one(
        lambda x: x + np.tanh(x),
        lambda g, x: g),
    "transpose by the same axes, not the inverse": of_one(
        lambda x: x.transpose(1, 2, 0),
        lambda g, x: g.transpose(1, 2, 0),
        normal(3, 3, 3)),
    "concatenated parts exchanged": of_two(
        lambda x, y: np.concatenate([x, y]),
        lambda g, x, y: (g[4:], g[:4])),
    "repeated rows set instead of added": of_one(
        lambda x: x[[1, 1, 4]],
        lambda g, x: np.stack([0 * g[0], g[1], 0 * g[0], 0 * g[0], g[2]]),
        normal(5, 3)),
    "sign of the subtrahend lost": of_two(
        np.subtract,
        lambda g, x, y: (g, 1 * g)),
    "divisor gradient without the square": of_two(
        np.divide,
        lambda g, x, y: (g / y, -g * x / y),
        ROWS,
        np.abs(OTHER_ROWS) + 1),
    # Softmax and losses
    "softmax without its mean term": of_one(
        formulas.softmax,
        lambda g, x: formulas.softmax(x) * g),
    "softmax with its diagonal only": of_one(
        formulas.softmax,
        lambda g, x: g * formulas.softmax(x) * (1 - formulas.softmax(x))),
    "log softmax without its sum": of_one(
        lambda x: np.log(formulas.softmax(x)),
        lambda g, x: g - formulas.softmax(x)),
    "cross entropy averaged over ignored targets too": of_one(
        lambda x: cross_entropy(x)[0],
        lambda g, x: cross_entropy(x)[1] * g / 4),
    "cross entropy without its one-hot": of_one(
        lambda x: cross_entropy(x)[0],
        lambda g, x: g * formulas.softmax(x) / 3 * (TARGETS >= 0)[:, None]),
    # Activations and dropout
    "gelu with its first term only": of_one(
        lambda x: formulas.gelu(x, False),
        lambda g, x: g * formulas.gelu(x, False) / x),
    "gelu exact going on and by tanh going back": of_one(
        lambda x: formulas.gelu(x, False),
        lambda g, x: formulas.gelu_vjp(g, x, True),
        ROWS / 9 - 2),
    "gate with the first term of its silu only": of_two(
        formulas.swiglu,
        lambda g, gate, up: (g * up / (1 + np.exp(-gate)),
                             formulas.swiglu_vjp(g, gate, up)[1])),
    "product multiplied by its gate before the silu going back": of_two(
        formulas.swiglu,
        lambda g, gate, up: (formulas.swiglu_vjp(g, gate, up)[0], g * gate)),
    "dropout scale forgotten going back": of_one(
        lambda x: formulas.dropout(x, DROP),
        lambda g, x: np.where(formulas.dropout(x, DROP) != 0, g, 0)),
    "dropout mask forgotten going back": of_one(
        lambda x: formulas.dropout(x, DROP),
        lambda g, x: g / 0.7),
    # Norms
    "layer norm without the gradient of the mean": normed(
        True,
        lambda g, x, w, *saved: [
            formulas.norm_vjp(g, x, w, *saved, True)[0] + g.mean(axis=1, keepdims=True)]),
    "layer norm without the gradient of the variance": normed(
        True,
        lambda g, x, w, mean, rstd: [(g - g.mean(axis=1, keepdims=True)) * rstd]),
    "norm gain forgotten going back": normed(
        False,
        lambda g, x, w, *saved: (formulas.norm_vjp(g, x, GAIN, *saved, False)[0],
                                 formulas.norm_vjp(g, x, w, *saved, False)[1]),
        normal(6)),
    # Attention
    "key gradient reshaped instead of transposed": of_one_head(
        lambda q, k, v, g, dS, P: (dS @ k, (q.T @ dS).reshape(k.shape), P.T @ g)),
    "query and key gradients exchanged": of_one_head(
        lambda q, k, v, g, dS, P: (dS.T @ q, dS @ k, P.T @ g)),
    "attention's scale missing going back": of_one_head(
        lambda q, k, v, g, dS, P: (dS @ k * 2, dS.T @ q * 2, P.T @ g)),
    "attention's weights untransposed for the values": of_one_head(
        lambda q, k, v, g, dS, P: (dS @ k, dS.T @ q, P @ g)),
    "shared keys with the gradient of one head alone": of(
        with_keys_of_the_first_head_alone,
        normal(1, 2, 5, 4),
        *normal(2, 1, 1, 5, 4, seed=1)),
    "causal mask lost going back": of(
        attended(CAUSAL, CAUSAL._replace(causal=False)),
        *normal(3, 1, 1, 5, 4)),
    "attention's dropout drawn anew going back": of(
        attended(*(CAUSAL._replace(drop=DropoutSettings(0.3, seed)) for seed in (1, 2))),
        *normal(3, 1, 1, 9, 4)),
    "attention's mask lost going back": of(
        attended(CAUSAL._replace(mask=normal(1, 2, 5, 5, seed=1)), CAUSAL),
        *normal(3, 1, 2, 5, 4)),
    "positions not turned back": of_one(
        lambda x: formulas.rotate(x, *TURNS),
        lambda g, x: formulas.rotate(g, *TURNS),
        normal(5, 4)),
    # Few numbers, or all of them
    "one wrong element among 2500": of_the_same(
        lambda g: g * np.where(np.arange(2500).reshape(50, 50) == 853, 1.5, 1),
        normal(50, 50)),
    "a gradient of nan": of_the_same(lambda g: g * np.nan),
    "no gradient at all": of_the_same(lambda g: 0 * g),
    "a gradient off by one percent": of_the_same(lambda g: g * 1.01)}
CUT = {
    "a gradient cut by detach": (lambda x: x.detach() * x, [normal(3)]),
    "a gradient cut by NumPy": (lambda x: Tensor(np.tanh(x.data)), [normal(3)])}


@pytest.mark.parametrize("document", ["README.md", "docs/trust.md"])
def test_gradcheck_is_shown_as_many_wrong_gradients_as_a_document_states(document):
    assert stated(document, r"each of (\d+) wrong gradients") == [str(len(WRONG))]


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
        x = size * normal(3, 4)
        y = size * (np.abs(normal(3, 4, seed=1)) + 0.5)
        assert mg.gradcheck(lambda x, y: x * y + x / y, x, y)
        assert mg.gradcheck(lambda x: mg.layer_norm(x, eps=0.0), size * normal(3, 4),
                            rtol=1e-6, atol=1e-7, full=True)


def test_gradcheck_passes_a_gradient_that_is_exactly_zero():
    key_bias = normal(4, seed=1)     # softmax is blind to what is added to all scores of a row
    assert mg.gradcheck(lambda b: mg.softmax(KEYS @ KEYS.T + (KEYS @ b).reshape(-1, 1)),
                        key_bias)
    assert mg.gradcheck(lambda x: x * 0.0, normal(3))
    assert mg.gradcheck(lambda x: x * 1.0, np.zeros(3))


def test_gradcheck_finds_nan_wrong_but_for_an_argument_without_elements():
    def f(x):
        return x.sum() + math.nan
    assert mg.gradcheck(f, np.zeros((0, 3)))
    with pytest.raises(mg.GradcheckError):
        mg.gradcheck(f, np.zeros((1, 3)))


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
        mg.gradcheck(wrong_at_one_place, normal(3), normal(3, seed=1), full=True)
    with pytest.raises(mg.GradcheckError, match=r"argument 1, index \(1,\): the vjp gives"):
        mg.gradcheck(wrong_at_one_place, normal(3), normal(3, seed=1))

    @mg.op(register=False)
    def nan_at_one_place(x):
        return x * 1.0, (lambda g: g * np.array([1.1, np.nan, 1.0]),)
    with pytest.raises(mg.GradcheckError, match=r"argument 0, index \(1,\): the vjp gives nan"):
        mg.gradcheck(nan_at_one_place, normal(3))


def test_gradcheck_is_as_strict_as_it_is_told():
    nearly, (x,) = of_the_same(lambda g: g * 1.0001)
    assert mg.gradcheck(nearly, x)
    with pytest.raises(mg.GradcheckError):
        mg.gradcheck(nearly, x, rtol=1e-6, atol=1e-6)


def test_gradcheck_checks_arguments_in_float64_and_passes_integers_through():
    seen = []

    def f(x, ids, flag):
        seen.append((x.dtype, ids.dtype, flag))
        return mg.take(x, ids)
    assert mg.gradcheck(f, normal(4, 2).astype(np.float32), np.array([1, 1, 3]), "flag") is True
    assert set(seen) == {(np.dtype(np.float64), np.dtype(np.int64), "flag")}


def test_gradcheck_has_the_defaults_of_pytorchs():
    defaults = {name: p.default for name, p in inspect.signature(mg.gradcheck).parameters.items()}
    assert defaults["eps"] == 1e-6
    assert defaults["atol"] == 1e-5
    assert defaults["rtol"] == 1e-3


def test_gradcheck_takes_tensors_and_leaves_their_gradients():
    x = Tensor(normal(2, 2), requires_grad=True)
    assert mg.gradcheck(lambda x: x * x, x)
    assert x.grad is None


@pytest.mark.parametrize("f, x, error, says", [
    (lambda x, rng=np.random.default_rng(0): mg.dropout(x, 0.5, rng), normal(50),
     mg.GradcheckError, "two different values .* freeze its randomness"),
    (lambda x: Tensor(x.data.astype(np.float32)), normal(3), mg.GradcheckError,
     r"float64 and return a Tensor; it gave Tensor\(float32\[3\], constant\)"),
    (lambda x: 3, normal(3), mg.GradcheckError, "return a Tensor; it gave 3"),
    (lambda x: x, np.array([1, 2]), ValueError, "at least one array of floats")])
def test_gradcheck_says_what_it_cannot_check(f, x, error, says):
    with pytest.raises(error, match=says):
        mg.gradcheck(f, x)
    assert mg.gradcheck(lambda x: mg.dropout(x, 0.5, np.random.default_rng(0)), normal(50))


@pytest.mark.parametrize("offset, times", [
    *((1e7, times) for times in (0, -1, 2)),
    *((offset, times) for offset in (1e9, -1e11) for times in (0, -1, 1, 2)),
    *((offset, times) for offset in (1e8, 1e14, 1e15) for times in (-1, 1, 2))])
@pytest.mark.parametrize("full", [False, True])
def test_gradcheck_does_not_say_true_where_rounding_hides_a_gradient(offset, times, full):
    f, (x,) = of_one(lambda x: x + offset, lambda g, x: times * g, np.array([1.0, 2.0, 3.0]))
    for seed in range(10):
        with pytest.raises(mg.GradcheckError) as raised:
            mg.gradcheck(f, x, full=full, seed=seed)
        if abs(offset) > 1e8:
            assert "argument 0 cannot be checked: " in str(raised.value)
            assert "take a larger step, such as eps=0.001" in str(raised.value)


def test_gradcheck_sees_by_a_larger_step_what_rounding_hides_from_a_small_one():
    x = np.array([1.0, 2.0, 3.0])
    assert mg.gradcheck(lambda x: x + 1e9, x, eps=1e-3)
    f, _ = of_one(lambda x: x + 1e9, lambda g, x: 2 * g)
    with pytest.raises(mg.GradcheckError, match="the vjp gives"):
        mg.gradcheck(f, x, eps=1e-3)


STEEP = np.array([1e-9, 1.0, 2.0])


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("f, x", [
    (mg.log, STEEP),
    (mg.sqrt, STEEP),
    (lambda x: 1 / x, [1e-8, 1e8]),
    (lambda x: x ** 0.5, [1e-12, 1e3]),
    (mg.sqrt, [1e-12, 1e6]),
    (mg.tanh, [1e-6, 1e6]),
    (mg.relu, [1e-8, 1.0]),
    (mg.relu, [-1e-8, 1.0]),
    (lambda x: mg.relu(x).sum() + 1, [-1e-8, 1.0]),
    (mg.max, [1.0, 1 - 1e-9]),
    (lambda x: x * x * x, np.zeros(3)),
    (lambda x: mg.softmax(x).sum(), [1.0, 2.0, 3.0]),
    (lambda x: mg.maximum(x, -x), [0.0, 1.0]),
    (mg.softmax, [[-np.inf, 0, 1]]),
    (mg.log_softmax, [[-np.inf, 0, 1]]),
    (mg.exp, [-np.inf, 0, 1]),
    (mg.gelu, [np.inf, 1])])
def test_gradcheck_takes_a_step_that_suits_each_element(f, x, full):
    assert mg.gradcheck(f, np.array(x), full=full, directions=5)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_gradcheck_finds_a_wrong_element_beside_others_of_another_size(at, full):
    off = np.ones(3)
    off[at] = 1.1
    for wrong in (lambda g, x: off * g / x, lambda g, x: np.where(off > 1, np.nan, g / x)):
        f, (x,) = of_one(np.log, wrong, STEEP)
        with pytest.raises(mg.GradcheckError, match=rf"argument 0, index \({at},\)"):
            mg.gradcheck(f, x, full=full)


def test_gradcheck_names_a_kink_or_an_end_of_f_beside_a_gradient_that_differs():
    for full in (False, True):
        says = refusal(mg.GradcheckError, mg.gradcheck, mg.relu, np.zeros(3), full=full)
        assert "perhaps f has a kink there" in says and "check it at another x" in says
    end = of_one(np.sqrt, lambda g, x: g, np.array([0.0, 1.0]))
    assert "f is not finite beside x there" in refusal(mg.GradcheckError, mg.gradcheck, end[0],
                                                       *end[1])
    wrong, x = of_the_same(lambda g: 2 * g)
    assert "kink" not in refusal(mg.GradcheckError, mg.gradcheck, wrong, *x)


def test_gradcheck_makes_arrays_of_numbers_and_lists_where_there_is_no_array():
    seen = []

    def f(x, times):
        seen.append(times)
        return x * times.data if isinstance(times, Tensor) else x * times
    assert mg.gradcheck(lambda x: x * x, 1.0)
    assert mg.gradcheck(lambda x, y: x * y, [1.0, 2.0], 3.0)
    assert mg.gradcheck(f, np.ones(2), 3.0)
    assert set(seen) == {3.0}                       # a setting, beside an array
    assert "at least one array of floats" in refusal(ValueError, mg.gradcheck, mg.exp, [1, 2])
    with pytest.raises(mg.GradcheckError):
        mg.gradcheck(of_one(np.exp, lambda g, x: g)[0], [1.0, 2.0])


def test_gradcheck_of_an_op_with_several_values_says_how_to_check_one():
    f, (x,) = of(lambda x: ([x * 1, x * 2], [(lambda g: g,), (lambda g: g,)]), normal(3))
    assert "f gives 2 values: check one at a time, as in mg.gradcheck(lambda x: f(x)[0], x)" in (
        refusal(mg.GradcheckError, mg.gradcheck, f, x))
    assert mg.gradcheck(lambda x: f(x)[0], x)
    with pytest.raises(mg.GradcheckError):
        mg.gradcheck(lambda x: f(x)[1], x)


def test_gradcheck_draws_the_same_directions_for_the_same_seed_and_others_for_another():
    def seen(seed):
        found = []

        def f(x):
            found.append(x.data.copy())
            return x * x
        assert mg.gradcheck(f, np.array([1.0, 2.0]), seed=seed)
        return np.array(found)
    assert np.array_equal(seen(0), seen(0))
    assert not np.array_equal(seen(0), seen(1))
