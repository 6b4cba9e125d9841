"""The checker itself: planted wrong gradients must each be caught, right ones of any size pass."""
import inspect
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas
from minigrad.core import Tensor

r = np.random.default_rng(0).standard_normal
WRONG = {}      # name -> (a wrong op, its arguments)


def planted(*args, **settings):
    """Plant a bug: the op decorated here has a wrong vjp, and the arguments show it."""
    def plant(f):
        lifted = mg.op(register=False)(f)
        WRONG[f.__name__] = lambda *arrays: lifted(*arrays, **settings), args
        return lifted
    return plant


@planted(r((3, 4)), r((4, 4)))
def weight_gradient_transposed(x, w):
    return x @ w, (lambda g: g @ w.T, lambda g: (x.T @ g).T)


@planted(r((3, 4)), r((4, 4)))
def input_gradient_by_the_weight_untransposed(x, w):
    return x @ w, (lambda g: g @ w, lambda g: x.T @ g)


@planted(r((5, 3)))
def mean_without_its_1_over_B(x):
    return x.mean(axis=0), (lambda g: np.broadcast_to(g, x.shape),)


@planted(r((2, 3)))
def mean_divided_by_the_axis_number(x):
    return x.mean(axis=1), (lambda g: np.broadcast_to(g[:, None] / 1, x.shape),)


@planted(r((3, 3)))
def dropped_branch_of_a_residual(x):
    return x + np.tanh(x), (lambda g: g,)


@planted(r((3, 3)), r((3, 3)))
def dropped_branch_of_a_product(x, w):
    # As if = stood where += must.
    return (x @ w) @ w, (lambda g: g @ w.T @ w.T, lambda g: (x @ w).T @ g)


@planted(r((4, 5)))
def softmax_without_its_mean_term(x):
    y = formulas.softmax(x)
    return y, (lambda g: y * g,)


@planted(r((4, 5)))
def softmax_with_its_diagonal_only(x):
    y = formulas.softmax(x)
    return y, (lambda g: g * y * (1 - y),)


@planted(r((4, 5)))
def log_softmax_without_its_sum(x):
    y = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    return y, (lambda g: g - np.exp(y),)


def attention(q, k, v):
    P = formulas.softmax(q @ k.T / math.sqrt(q.shape[1]))

    def back(g):
        dS = formulas.softmax_vjp(g @ v.T, P) / math.sqrt(q.shape[1])
        return dS, P
    return P @ v, back


@planted(r((4, 4)), r((4, 4)), r((4, 4)))
def key_gradient_reshaped_instead_of_transposed(q, k, v):
    out, back = attention(q, k, v)
    return out, lambda g: (back(g)[0] @ k, (q.T @ back(g)[0]).reshape(k.shape), back(g)[1].T @ g)


@planted(r((4, 4)), r((4, 4)), r((4, 4)))
def query_and_key_gradients_exchanged(q, k, v):
    out, back = attention(q, k, v)
    return out, lambda g: (back(g)[0].T @ q, back(g)[0] @ k, back(g)[1].T @ g)


@planted(r((4, 4)), r((4, 4)), r((4, 4)))
def attention_scale_missing_going_back(q, k, v):
    out, back = attention(q, k, v)
    return out, lambda g: (back(g)[0] @ k * 2, back(g)[0].T @ q * 2, back(g)[1].T @ g)


@planted(r((4, 4)), r((4, 4)), r((4, 4)))
def attention_weights_untransposed_for_the_values(q, k, v):
    out, back = attention(q, k, v)
    return out, lambda g: (back(g)[0] @ k, back(g)[0].T @ q, back(g)[1] @ g)


@planted(r((1, 1, 5, 4)), r((1, 1, 5, 4)), r((1, 1, 5, 4)))
def causal_mask_lost_going_back(q, k, v):
    out, log_sum = formulas.attention(q, k, v, None, None, True, 0.5, 0.0, 0)
    return out, lambda g: formulas.attention_vjp(g, q, k, v, None, None, out, log_sum, False, 0.5,
                                                 0.0, 0)


@planted(r((1, 1, 9, 4)), r((1, 1, 9, 4)), r((1, 1, 9, 4)))
def attention_dropout_drawn_anew_going_back(q, k, v):
    out, log_sum = formulas.attention(q, k, v, None, None, True, 0.5, 0.3, 1)
    return out, lambda g: formulas.attention_vjp(g, q, k, v, None, None, out, log_sum, True, 0.5,
                                                 0.3, 2)


@planted(r((1, 2, 5, 4)), r((1, 1, 5, 4)), r((1, 1, 5, 4)))
def shared_keys_with_the_gradient_of_one_head_alone(q, k, v):
    settings = True, 0.5, 0.0, 0
    out, log_sum = formulas.attention(q, k, v, None, None, *settings)

    def vjp(g):
        dq, _, dv = formulas.attention_vjp(g, q, k, v, None, None, out, log_sum, *settings)
        first = q[:, :1], k, v, None, None
        _, dk, _ = formulas.attention_vjp(g[:, :1], *first, *formulas.attention(*first, *settings),
                                          *settings)
        return dq, dk, dv
    return out, vjp


@planted(r((1, 2, 5, 4)), r((1, 2, 5, 4)), r((1, 2, 5, 4)))
def linear_bias_lost_going_back(q, k, v):
    settings = True, 0.5, 0.0, 0
    slopes = np.array([0.5, 0.25])
    out, log_sum = formulas.attention(q, k, v, None, slopes, *settings)
    return out, lambda g: formulas.attention_vjp(g, q, k, v, None, None, out, log_sum, *settings)


@planted(r((5, 4)))
def positions_not_turned_back(x):
    cos, sin = np.cos(np.ones((5, 2))), np.sin(np.ones((5, 2)))
    return formulas.rotate(x, cos, sin), (lambda g: formulas.rotate(g, cos, sin),)


@planted(r((3, 3, 3)))
def transpose_by_the_same_axes_not_the_inverse(x):
    axes = (1, 2, 0)
    return x.transpose(axes), (lambda g: g.transpose(axes),)


@planted(r((4, 6)))
def layer_norm_without_the_gradient_of_the_mean(x):
    y, moments = formulas.norm(x, np.ones(6), np.zeros(6), 1e-5, True)
    return y, (lambda g: (formulas.norm_vjp(g, x, np.ones(6), moments, True)[0]
                          + g.mean(axis=1, keepdims=True)),)


@planted(r((4, 6)))
def layer_norm_without_the_gradient_of_the_variance(x):
    y, moments = formulas.norm(x, np.ones(6), np.zeros(6), 1e-5, True)
    return y, (lambda g: (g - g.mean(axis=1, keepdims=True)) * moments[:, 1:],)


@planted(r((4, 6)), r(6))
def norm_gain_forgotten_going_back(x, w):
    y, moments = formulas.norm(x, w, np.zeros(6), 1e-5, False)
    return y, lambda g: (formulas.norm_vjp(g, x, np.ones(6), moments, False)[0],
                         formulas.norm_vjp(g, x, w, moments, False)[1])


@planted(r((4, 6)))
def gelu_with_its_first_term_only(x):
    Phi = formulas.gelu(x, False) / x
    return x * Phi, (lambda g: g * Phi,)


@planted(r((4, 6)))
def gelu_exact_going_on_and_by_tanh_going_back(x):
    return formulas.gelu(x, False), (lambda g: formulas.gelu_vjp(g, x, True),)


def silu(x):
    s = 1 / (1 + np.exp(-x))
    return x * s, s


@planted(r((4, 6)), r((4, 6)))
def gate_with_the_first_term_of_its_silu_only(gate, up):
    y, s = silu(gate)
    return y * up, (lambda g: g * up * s, lambda g: g * y)


@planted(r((4, 6)), r((4, 6)))
def product_multiplied_by_its_gate_before_the_silu_going_back(gate, up):
    return formulas.swiglu(gate, up), (lambda g: formulas.swiglu_vjp(g, gate, up)[0],
                                       lambda g: g * gate)


@planted(r((4, 6)))
def dropout_scale_forgotten_going_back(x):
    y = formulas.dropout(x, 0.3, 5)
    return y, (lambda g: np.where(y != 0, g, 0),)


@planted(r((4, 6)))
def dropout_mask_forgotten_going_back(x):
    return formulas.dropout(x, 0.3, 5), (lambda g: g / 0.7,)


@planted(r((5, 3)))
def repeated_rows_set_instead_of_added(x):
    ids = np.array([1, 1, 4])

    def dx(g):
        d = np.zeros_like(x)
        d[ids] = g
        return d
    return x[ids], (dx,)


@planted(r((4, 3)))
def cross_entropy_averaged_over_ignored_targets_too(x):
    targets = np.array([0, -100, 2, 1])
    losses, slopes, _ = formulas.cross_entropy(x, targets, -100)
    return losses.sum() / 3, (lambda g: slopes * float(g) / 4,)


@planted(r((3, 4)))
def cross_entropy_without_its_one_hot(x):
    targets = np.array([0, 2, 1])
    losses, *_ = formulas.cross_entropy(x, targets, -100)
    return losses.mean(), (lambda g: g * formulas.softmax(x) / 3,)


@planted(r((3, 4)), r((3, 4)))
def sign_of_the_subtrahend_lost(x, y):
    return x - y, (lambda g: g, lambda g: g)


@planted(r((3, 4)), np.abs(r((3, 4))) + 1)
def divisor_gradient_without_the_square(x, y):
    return x / y, (lambda g: g / y, lambda g: -g * x / y)


@planted(r((2, 3)), r((2, 3)))
def concatenated_parts_exchanged(x, y):
    return np.concatenate([x, y]), (lambda g: g[2:], lambda g: g[:2])


@planted(r((3, 1)))
def broadcast_axis_averaged_instead_of_summed(x):
    return np.broadcast_to(x, (3, 4)), (lambda g: g.mean(axis=1, keepdims=True),)


@planted(r((50, 50)))
def one_wrong_element_among_2500(x):
    def dx(g):
        d = g * 1.0
        d[17, 3] *= 1.5
        return d
    return x * 1.0, (dx,)


@planted(r((4, 4)))
def a_gradient_of_nan(x):
    return x * 1.0, (lambda g: g * np.nan,)


@planted(r((4, 4)))
def no_gradient_at_all(x):
    return x * 1.0, (np.zeros_like,)


@planted(r((4, 4)))
def a_gradient_off_by_one_percent(x):
    return x * 1.0, (lambda g: g * 1.01,)


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_bug_is_caught(name):
    f, args = WRONG[name]
    with pytest.raises(mg.GradcheckError):
        mg.gradcheck(f, *args)
    if args[0].size <= 100:
        with pytest.raises(mg.GradcheckError):
            mg.gradcheck(f, *args, full=True)


@pytest.mark.parametrize("size", [1e-6, 0.02, 1.0])
@pytest.mark.parametrize("loss_scale", [1e-6, 1.0])
def test_a_wrong_gradient_of_small_weights_under_a_small_loss_is_caught(size, loss_scale):
    wrong, (x, w) = WRONG["weight_gradient_transposed"]
    w = w * size
    with pytest.raises(mg.GradcheckError):
        mg.gradcheck(lambda w: (mg.tanh(wrong(x, w)) * loss_scale).mean(), w)
    assert mg.gradcheck(lambda w: (mg.tanh(mg.matmul(x, w)) * loss_scale).mean(), w)


def test_right_gradients_pass_at_every_size():
    for size in (1e-8, 1e-3, 1.0, 1e6):
        x, y = size * r((3, 4)), size * (np.abs(r((3, 4))) + 0.5)
        assert mg.gradcheck(lambda x, y: x * y + x / y, x, y)
        assert mg.gradcheck(lambda x: mg.layer_norm(x, eps=0.0), size * r((3, 4)),
                            rtol=1e-6, atol=1e-7, full=True)


def test_a_gradient_that_is_exactly_zero_passes():
    key_bias = r(4)     # softmax is blind to what is added to all scores of a row
    assert mg.gradcheck(lambda b: mg.softmax(r_fixed @ r_fixed.T + (r_fixed @ b).reshape(-1, 1)),
                        key_bias)
    assert mg.gradcheck(lambda x: x * 0.0, r(3)) and mg.gradcheck(lambda x: x * 1.0, np.zeros(3))


r_fixed = r((5, 4))


def test_a_bug_is_named_by_argument_index_and_both_numbers():
    f, args = WRONG["one_wrong_element_among_2500"]
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


def test_arguments_are_checked_in_float64_and_integers_pass_through():
    seen = []

    def f(x, ids, flag):
        seen.append((x.dtype, ids.dtype, flag))
        return mg.take(x, ids)
    assert mg.gradcheck(f, r((4, 2)).astype(np.float32), np.array([1, 1, 3]), "flag") is True
    assert set(seen) == {(np.dtype(np.float64), np.dtype(np.int64), "flag")}


def test_gradcheck_has_the_defaults_of_pytorchs():
    defaults = {name: p.default for name, p in inspect.signature(mg.gradcheck).parameters.items()}
    assert defaults["eps"] == 1e-6 and defaults["atol"] == 1e-5 and defaults["rtol"] == 1e-3


def test_tensors_may_be_given_and_keep_their_gradients():
    x = Tensor(r((2, 2)), requires_grad=True)
    assert mg.gradcheck(lambda x: x * x, x) and x.grad is None


def test_what_cannot_be_checked_is_said():
    rng = np.random.default_rng(0)
    with pytest.raises(mg.GradcheckError, match="two different values .* freeze its randomness"):
        mg.gradcheck(lambda x: mg.dropout(x, 0.5, rng), r(50))
    assert mg.gradcheck(lambda x: mg.dropout(x, 0.5, np.random.default_rng(0)), r(50))
    with pytest.raises(mg.GradcheckError,
                       match="float64 and return a Tensor; it gave .* of float32"):
        mg.gradcheck(lambda x: Tensor(x.data.astype(np.float32)), r(3))
    with pytest.raises(mg.GradcheckError, match="return a Tensor; it gave 3"):
        mg.gradcheck(lambda x: 3, r(3))
    with pytest.raises(ValueError, match="at least one array of floats"):
        mg.gradcheck(lambda x: x, np.array([1, 2]))


def test_a_gradient_cut_by_the_function_is_caught():
    with pytest.raises(mg.GradcheckError):
        mg.gradcheck(lambda x: x.detach() * x, r(3))
    with pytest.raises(mg.GradcheckError):
        mg.gradcheck(lambda x: Tensor(np.tanh(x.data)), r(3))
