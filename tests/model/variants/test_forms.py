"""Other forms of attention: each is what another form is, and what plain NumPy says."""
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from model import (CausalAttention, ColumnAttention, CrossAttention, IterativeAttention,
                   LowRankValueAttention, MultiHeadAttention, SelfAttention)
from tests.checking import check_gradients, close, frozen, gradients, random_weights
from tests.kit import leaf, normal

pytestmark = pytest.mark.late
T = 7
C = 6
D = 4
DOUBLE = dict(dtype=np.float64)
X = normal(2, T, C)                                       # (B, T, C)


def forms(dtype=np.float64):
    """One of each, causal, with large weights."""
    return [random_weights(form) for form in (
        IterativeAttention(C, D, qkv_bias=True, dtype=dtype),
        ColumnAttention(C, D, qkv_bias=True, dtype=dtype),
        LowRankValueAttention(C, 2, 3, dtype=dtype))]


def of_rows(form, x):
    """The form on a position in each row, whatever it takes itself."""
    if isinstance(form, ColumnAttention):
        return form(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    return form(x)


def iterative(q, k, v, causal=True):
    return IterativeAttention(1, 1, causal).mix(*map(Tensor, (q, k, v))).data


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [D, 9], ids=["values as wide as keys", "wider"])
def test_one_key_at_a_time_gives_the_quotient_of_sums_and_the_matrix_form(width, causal):
    q, k = normal(2, 2, 8, D)
    v = normal(2, 8, width, seed=1)
    e = np.exp(q @ k.swapaxes(1, 2) / math.sqrt(D))
    if causal:
        e = np.tril(e)
    quotient = e @ v / e.sum(axis=-1, keepdims=True)
    by_op = mg.scaled_dot_product_attention(q, k, v, is_causal=causal).data
    found = iterative(q, k, v, causal)
    assert close([found, found], [quotient, by_op])


CAUSAL = CausalAttention(C, D, T, **DOUBLE)
BIASED = CausalAttention(C, D, T, 0, True, **DOUBLE)


@pytest.mark.parametrize("form, other", [
    (IterativeAttention(C, D, False, True, **DOUBLE), SelfAttention(C, D, True, **DOUBLE)),
    (IterativeAttention(C, D, True, True, **DOUBLE), BIASED),
    (IterativeAttention(C, D, **DOUBLE), CAUSAL),
    (ColumnAttention(C, D, True, **DOUBLE), BIASED),
    (ColumnAttention(C, D, **DOUBLE), CAUSAL)])
def test_a_form_is_the_head_with_the_same_weights_in_values_and_gradients(form, other):
    other.load_state_dict(random_weights(form).state_dict())
    x = leaf(normal(2, T, C))
    ours = of_rows(form, x)
    theirs = other(x)
    assert close([ours.data], [theirs.data])
    assert close(gradients(ours, x, *form.parameters()), gradients(theirs, x, *other.parameters()))


@pytest.mark.parametrize("kind, sizes, options, biases", [
    (SelfAttention, (C, D), dict(qkv_bias=True), 3),
    (CausalAttention, (C, D, T), dict(qkv_bias=True), 3),
    (CrossAttention, (C, D), dict(qkv_bias=True), 3),
    (ColumnAttention, (T, D), dict(qkv_bias=True), 3),
    (IterativeAttention, (C, D), dict(qkv_bias=True), 3),
    (MultiHeadAttention, (C, C, 2), dict(bias=True), 2),
    (LowRankValueAttention, (C, D, 2), {}, 0)])
def test_a_head_hears_its_options_and_without_any_has_no_biases_and_drops_nothing(
        kind, sizes, options, biases):
    def names(head):
        return [name for name in head.state_dict() if "bias" in name]
    head = kind(*sizes)
    other = kind(*sizes, rng=frozen(), **options, **DOUBLE)
    assert len(names(head)) == 0 and len(names(other)) == biases
    assert {p.dtype for p in head.parameters()} == {np.dtype(np.float32)}
    assert {p.dtype for p in other.parameters()} == {np.dtype(np.float64)}
    assert not any(np.allclose(a, other.state_dict()[name])
                   for name, a in head.state_dict().items())
    if hasattr(head, "dropout"):
        x = Tensor(X.astype(np.float32))
        inputs = [x, x] if kind is CrossAttention else [x]
        dropping = {} if kind is IterativeAttention else dict(rng=frozen())
        assert np.array_equal(head(*inputs, **dropping).data, head(*inputs).data)


def test_one_key_at_a_time_survives_scores_whose_exponential_overflows():
    q, k = 100 * normal(2, 5, D)
    v = normal(5, 3, seed=1)
    assert np.abs(q @ k.T).max() / math.sqrt(D) > 710       # e^710 is no float64
    expected = mg.scaled_dot_product_attention(q, k, v, is_causal=True).data
    assert np.isfinite(expected).all() and close([iterative(q, k, v)], [expected])


def test_dropout_on_columns_zeroes_weights_and_enlarges_the_kept_ones():
    head = ColumnAttention(T, T, dropout=0.2, **DOUBLE)
    for part, weight in ((head.query, 0), (head.key, 0), (head.value, np.eye(T))):
        part.weight.data[...] = weight
    x = Tensor(np.eye(T))                                   # so that the output is the weights
    uniform = np.triu(np.ones((T, T))) / np.arange(1, T + 1)
    assert close([head(x).data], [uniform])
    dropped = head(x, frozen()).data
    kept = dropped != 0
    assert close([dropped[kept]], [uniform[kept] / 0.8])
    assert 0 < kept.sum() < (uniform != 0).sum() and not kept[uniform == 0].any()


def test_values_of_low_rank_are_heads_side_by_side_times_one_output_matrix():
    H = 3
    D = 4
    C = 12
    low_rank = random_weights(LowRankValueAttention(C, D, H, **DOUBLE))
    packed = MultiHeadAttention(C, C, H, **DOUBLE)
    ups = [up.weight.data for up in low_rank.value_up]                              # (C, D) each
    packed.out.weight.data[...] = np.concatenate(ups, axis=1)                       # stapled
    packed.qkv.weight.data[...] = np.concatenate([
        part.weight.data for parts in (low_rank.query, low_rank.key, low_rank.value_down)
        for part in parts])
    x = leaf(normal(2, T, C))
    heads = low_rank(x)
    together = packed(x)
    assert close([heads.data], [together.data])
    dx, *dups = gradients(heads, x, *[up.weight for up in low_rank.value_up])
    expected = gradients(together, x, packed.out.weight)
    assert close([dx, np.concatenate(dups, axis=1)], expected)


def test_the_gradients_of_every_form_agree_with_central_differences():
    for form in [*forms(), random_weights(IterativeAttention(C, D, False, **DOUBLE))]:
        assert check_gradients(form, X.swapaxes(1, 2) if isinstance(form, ColumnAttention) else X)
    dropped = random_weights(ColumnAttention(C, D, True, 0.4, **DOUBLE))
    assert check_gradients(dropped, X.swapaxes(1, 2), rng=frozen)


def test_every_form_keeps_float32_and_takes_a_sequence_without_a_batch():
    for form, precise in zip(forms(np.float32), forms()):
        x = Tensor(X[0].astype(np.float32))
        out = of_rows(form, x)
        assert out.dtype == np.float32
        assert np.allclose(out.data, of_rows(precise, Tensor(X[0])).data, rtol=1e-3, atol=1e-4)
