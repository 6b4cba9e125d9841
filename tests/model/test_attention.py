"""Attention: the plain formula, the op and the layers, against each other and against NumPy."""
import math

import numpy as np
import pytest

import minigrad as mg
from checking import check_gradients, close, frozen, random_weights
from minigrad import Tensor
from model import (CausalAttention, CrossAttention, MultiHeadAttention, SelfAttention, StackedHeads,
                   WeightlessAttention)
from model.attention import AttentionOptions, attention, causal_mask
from model.layers import Linear
from model.variants.alibi import AlibiAttention
from tests.kit import refusal

r = np.random.default_rng(0).standard_normal
T, C = 7, 6
X = r((2, T, C))                                            # (B, T, C)
CONTEXT = r((2, 5, 4))                                      # (B, S, d_context)
PADDING = np.array([[True, True, True, True, False], [True, True, False, False, False]])[:, None]


def stacked(kind, *settings, rng=frozen):
    """Two heads of a kind, and an output projection."""
    return StackedHeads([kind(C, 2, *settings, dtype=np.float64) for _ in range(2)],
                        Linear(4, 4, True, rng(), dtype=np.float64))


FORMS = [AttentionOptions(), AttentionOptions(num_kv_heads=1), AttentionOptions(rotary_base=1e4),
         AttentionOptions(qk_norm=True), AttentionOptions(1, rotary_base=3.0, qk_norm=True)]


def layers(dropout=0.0, bias=True):
    """One of each kind that reads a single sequence, in float64 and with large weights."""
    return [random_weights(layer) for layer in (
        SelfAttention(C, 4, bias, dropout, dtype=np.float64),
        CausalAttention(C, 4, T, dropout, bias, dtype=np.float64),
        stacked(SelfAttention, bias, dropout),
        stacked(CausalAttention, T, dropout, bias),
        *(MultiHeadAttention(C, 4, 2, dropout, bias, dtype=np.float64, options=options)
          for options in FORMS),
        AlibiAttention(C, 4, 2, dropout, bias, dtype=np.float64))]


def is_causal(layer):
    return (layer.heads[0] if isinstance(layer, StackedHeads) else layer).causal


QKV = {"one head": [(T, 4), (T, 4), (T, 4)],
       "batch and heads": [(2, 3, T, 4)] * 3,
       "more than a block": [(2, 2, 60, 3)] * 3,
       "other length and width": [(2, T, 4), (2, 9, 4), (2, 9, 5)]}


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shapes", QKV.values(), ids=QKV)
def test_the_plain_formula_and_the_op_agree_in_values_and_gradients(shapes, causal, p):
    arrays = [r(shape) for shape in shapes]
    mask = causal_mask(shapes[0][-2], shapes[1][-2], np.float64) if causal else None
    results = []
    for compute in (lambda *qkv: attention(*qkv, mask, p, frozen())[0],
                    lambda *qkv: mg.scaled_dot_product_attention(
                        *qkv, dropout_p=p, is_causal=causal, rng=frozen())):
        tensors = [Tensor(a, requires_grad=True) for a in arrays]
        out = compute(*tensors)
        out.backward(np.cos(np.arange(out.size)).reshape(out.shape))
        results.append([out.data] + [x.grad for x in tensors])
    for plain, fast in zip(*results):
        assert plain.shape == fast.shape and np.allclose(plain, fast, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("mask", [None, causal_mask(T, 9), causal_mask(T, 9) == 0],
                         ids=["open", "added", "bool"])
def test_the_plain_formula_also_returns_its_weights_before_dropout(mask, dtype, tolerance):
    q, k, v = (r(shape).astype(dtype) for shape in ((3, T, 4), (3, 9, 4), (3, 9, 5)))
    scores = np.exp(q @ k.swapaxes(1, 2) / 2) * (1 if mask is None else np.tri(T, 9))
    dropped, before = attention(Tensor(q), Tensor(k), Tensor(v), mask, 0.5, frozen())
    out, weights = attention(Tensor(q), Tensor(k), Tensor(v), mask)
    assert dropped.dtype == out.dtype == weights.dtype == dtype
    assert weights.shape == (3, T, 9) and np.array_equal(before.data, weights.data)
    assert np.allclose(weights.data, scores / scores.sum(-1, keepdims=True), rtol=tolerance)
    assert np.allclose(out.data, weights.data @ v, rtol=tolerance, atol=tolerance)
    assert not np.allclose(dropped.data, out.data, atol=0.1)


def test_a_mask_of_the_op_may_be_added_or_say_where_to_look():
    qkv = [Tensor(r((T, 4))) for _ in range(3)]
    added = causal_mask(T, dtype=np.float64)
    by_number, by_place = (mg.scaled_dot_product_attention(*qkv, attn_mask=mask).data
                           for mask in (added, added == 0))
    assert np.array_equal(by_number, by_place)
    added[2] = -math.inf
    out = mg.scaled_dot_product_attention(*qkv, attn_mask=added).data
    assert (out[2] == 0).all() and np.isfinite(out).all()       # where nothing is to be seen


@pytest.mark.parametrize("scale", [None, 1.0])
def test_attention_without_weights_is_the_formula_with_the_input_three_times(scale):
    x = Tensor(X)
    e = np.exp(X @ X.swapaxes(1, 2) * (scale or 1 / math.sqrt(C)))
    expected = e / e.sum(axis=-1, keepdims=True) @ X
    assert close([WeightlessAttention(scale)(x).data], [expected])


def test_causal_attention_refuses_more_positions_than_it_was_made_for():
    layer = CausalAttention(C, 4, context_length=T)
    assert layer(Tensor(X.astype(np.float32))).shape == (2, T, 4)
    assert refusal(ValueError, layer, Tensor(r((2, T + 1, C)))) == (
        "the input has 8 positions; this attention was made for at most 7 (context_length)")


def test_what_padding_holds_changes_no_bit():
    layer = random_weights(CrossAttention(C, 8, d_context=4, dtype=np.float64))
    other = np.where(PADDING.swapaxes(1, 2), CONTEXT, r(CONTEXT.shape))
    assert not np.array_equal(other, CONTEXT)
    padded = layer(Tensor(X), Tensor(CONTEXT), PADDING).data
    assert np.array_equal(padded, layer(Tensor(X), Tensor(other), PADDING).data)
    for b, length in enumerate((4, 2)):
        alone = layer(Tensor(X[b]), Tensor(CONTEXT[b, :length])).data
        assert np.allclose(padded[b], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [SelfAttention, CausalAttention])
def test_a_padded_sequence_is_read_as_it_would_be_alone(kind):
    layer = random_weights(kind(C, 4, *[T] * (kind is CausalAttention), dtype=np.float64))
    starts = (2, 4)                     # padding first, which the causal mask alone would not hide
    mask = np.stack([np.arange(T) >= start for start in starts])[:, None]               # (B, 1, T)
    padded = layer(Tensor(X), mask=mask).data
    other = layer(Tensor(np.where(mask.swapaxes(1, 2), X, r(X.shape))), mask=mask).data
    for b, start in enumerate(starts):
        alone = layer(Tensor(X[b, start:])).data
        assert np.allclose(padded[b, start:], alone, rtol=1e-10, atol=1e-12)
        assert np.array_equal(padded[b, start:], other[b, start:])
    assert check_gradients(layer, X, mask=mask)


@pytest.mark.parametrize("mask", [None, PADDING], ids=["open", "padded"])
def test_a_heads_weights_are_those_that_it_mixes_values_with(mask):
    one, two = Tensor(X), Tensor(CONTEXT)
    cross = random_weights(CrossAttention(C, 8, d_context=4, qkv_bias=True, dtype=np.float64))
    weights = cross.weights(one, two, mask)
    assert weights.shape == (2, T, 5) and np.ptp(weights) > 0.9
    assert close([weights @ cross.value(two).data], [cross(one, two, mask).data])
    stack = StackedHeads([cross, random_weights(CrossAttention(C, 8, 4, dtype=np.float64), 0.5)])
    assert np.array_equal(stack.weights(one, two, mask)[:, 0], weights)
    assert np.allclose(stack.weights(one, two, mask).sum(axis=-1), 1)
    for kind in (SelfAttention(C, 4, dtype=np.float64), CausalAttention(C, 4, T, dtype=np.float64)):
        head, hidden = random_weights(kind), None if mask is None else np.arange(T) > 0
        weights = head.weights(one, one, hidden)[:, 1:]     # no key is left for the first query
        assert close([weights @ head.value(one).data], [head(one, mask=hidden).data[:, 1:]])


@pytest.mark.parametrize("kind, options", [
    (MultiHeadAttention, AttentionOptions()), (MultiHeadAttention, AttentionOptions(3)),
    (MultiHeadAttention, AttentionOptions(1)), (MultiHeadAttention, AttentionOptions(qk_norm=True)),
    (MultiHeadAttention, AttentionOptions(rotary_base=1e4)),
    (MultiHeadAttention, AttentionOptions(2, rotary_base=3.0, qk_norm=True)),
    (AlibiAttention, AttentionOptions()), (AlibiAttention, AttentionOptions(3, rotary_base=1e4))],
    ids=str)
def test_many_heads_are_the_formula_head_by_head(kind, options):
    """Written out in NumPy from the rows of the one weight; masked by -inf before the softmax."""
    H, D = 6, 4
    layer = random_weights(kind(C, H * D, H, bias=True, dtype=np.float64, options=options))
    G, base = options.num_kv_heads or H, options.rotary_base
    weight, bias = layer.qkv.weight.data, layer.qkv.bias.data
    distance = np.arange(T)[:, None] - np.arange(T)

    def projected(first):
        return X @ weight[first:first + D].T + bias[first:first + D]

    def turned(x):
        turn = np.exp(1j * np.arange(T)[:, None] * base ** (-np.arange(0, D, 2) / D))   # (T, D/2)
        z = (x[..., ::2] + 1j * x[..., 1::2]) * turn
        return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)
    mixed = []
    for h in range(H):
        g = h // (H // G)                                   # whose keys and values it looks at
        q, k, v = (projected(first * D) for first in (h, H + g, H + G + g))
        if options.qk_norm:
            q, k = (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) for x in (q, k))
        if base:
            q, k = turned(q), turned(k)
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(D)
        if kind is AlibiAttention:
            scores = scores - 0.5 ** (8 / H * (h + 1)) * abs(distance)
        e = np.exp(np.where(distance < 0, -np.inf, scores))
        mixed.append(e / e.sum(-1, keepdims=True) @ v)
    mixed = np.concatenate(mixed, axis=-1)                                  # (B, T, H D)
    expected = mixed @ layer.out.weight.data.T + layer.out.bias.data
    assert np.allclose(layer(Tensor(X)).data, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("D, E", [(4, 4), (2, 5), (6, 1)])
def test_stacked_heads_have_values_of_another_width_than_keys(D, E):
    """The output matrix then has H E columns."""
    H, rng = 3, frozen()
    heads = [SelfAttention(C, D, rng=rng, dtype=np.float64, d_value=E) for _ in range(H)]
    layer = StackedHeads(heads, Linear(H * E, C, False, rng, 1.0, np.float64))
    mixed = []
    for head in heads:
        q, k, v = (X @ part.weight.data.T for part in (head.query, head.key, head.value))
        e = np.exp(q @ k.swapaxes(-1, -2) / math.sqrt(D))
        mixed.append(e / e.sum(-1, keepdims=True) @ v)
    expected = np.concatenate(mixed, axis=-1) @ layer.out.weight.data.T
    assert np.allclose(layer(Tensor(X)).data, expected, rtol=1e-9, atol=1e-11)
    assert check_gradients(layer, X)


@pytest.mark.parametrize("settings, says", [
    (dict(), "8 channels do not split evenly into 3 heads"),
    *((dict(d_out=12, options=AttentionOptions(n)),
       f"3 heads of queries do not split evenly among {n} of keys and values")
      for n in (2, 0, -1, -2)),
    (dict(num_heads=0), "0 heads of queries do not split evenly among 0 of keys and values"),
    (dict(d_out=9, options=AttentionOptions(rotary_base=1e4)),
     "channels are turned in pairs, by a base above 0; a head has 3 channels, and the base is "
     "10000.0")], ids=str)
def test_multi_head_attention_of_heads_that_do_not_fit_together_is_refused(settings, says):
    def used(**settings):
        return MultiHeadAttention(**settings)(Tensor(np.ones((T, C), np.float32)))
    given = dict(d_in=C, d_out=8, num_heads=3) | settings
    assert refusal(ValueError, used, **given) == says


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_no_position_sees_the_future(dropout, dtype):
    for layer in filter(is_causal, layers(dropout)):
        for p in layer.parameters():
            p.data = p.data.astype(dtype)
        before = layer(Tensor(X.astype(dtype)), rng=frozen()).data
        for cut in range(1, T):
            changed = X.copy()
            changed[:, cut:] = r(changed[:, cut:].shape)
            after = layer(Tensor(changed.astype(dtype)), rng=frozen()).data
            assert np.array_equal(before[:, :cut], after[:, :cut]), (layer, cut)
            assert (before[:, cut] != after[:, cut]).any(), (layer, cut)


def test_weights_of_many_heads_are_those_by_which_their_values_are_mixed():
    for options, kind in [*((form, MultiHeadAttention) for form in FORMS),
                          (AttentionOptions(2), AlibiAttention)]:
        layer = random_weights(kind(C, 8, 4, dtype=np.float64, options=options))
        weights = layer.weights(Tensor(X))
        _, _, v = layer.split(layer.project(Tensor(X)))
        mixed = (weights @ v.data).swapaxes(1, 2).reshape(2, T, -1)
        assert weights.shape == (2, 4, T, T) and np.ptp(weights) > 0.5
        assert np.allclose(layer(Tensor(X)).data, layer.out(Tensor(mixed)).data, rtol=1e-9,
                           atol=1e-11)


def test_weights_need_no_context_and_messages_say_what_is_read():
    head, layer = SelfAttention(C, 4), MultiHeadAttention(C, 4, 2)
    assert np.array_equal(head.weights(Tensor(X)), head.weights(Tensor(X), Tensor(X)))
    for attend in (head, layer, CausalAttention(C, 4, T)):
        assert "(..., T, C), and this has shape" in refusal(ValueError, attend, Tensor(X[0, 0]))


def test_dropout_happens_only_with_a_generator():
    for dropped, whole in zip(layers(0.4), layers(0.0)):
        x = Tensor(X)
        assert np.array_equal(dropped(x).data, whole(x).data)
        assert np.array_equal(whole(x, rng=frozen()).data, whole(x).data)
        first = dropped(x, rng=frozen()).data
        assert np.array_equal(dropped(x, rng=frozen()).data, first)
        assert not np.array_equal(dropped(x).data, first)
        assert not np.array_equal(dropped(x, rng=np.random.default_rng(5)).data, first)


def test_many_heads_drop_weights_and_no_outputs():
    layer = MultiHeadAttention(C, 8, 2, dropout=0.5)
    for p in layer.parameters():
        p.data[...] = 1
    x = Tensor(np.ones((4, 50, C), np.float32))     # each value is 6, and their mean about 6
    out = layer(x, frozen()).data[:, 20:]           # 8 add up
    assert (out > 0).all() and out.std() > 1 and abs(out.mean() - 48) < 2


@pytest.mark.parametrize("bias, dropout", [(False, 0.0), (True, 0.0), (True, 0.4)])
def test_the_gradients_of_every_layer_agree_with_central_differences(bias, dropout):
    drawn = dict(rng=frozen) if dropout else {}
    for layer in layers(dropout, bias):
        assert check_gradients(layer, X, **drawn)
    assert check_gradients(WeightlessAttention(), X)
    cross = random_weights(CrossAttention(C, 8, 4, bias, dropout, dtype=np.float64))
    for mask in (None, PADDING):
        assert check_gradients(cross, X, CONTEXT, mask=mask, **drawn)


def test_single_heads_start_with_weights_that_keep_the_variance():
    x = Tensor(r((20, 64)).astype(np.float32))
    layer = SelfAttention(64, 48, rng=frozen())
    other = CrossAttention(64, 48, d_context=100, rng=frozen())
    for part in (layer.query, layer.key, layer.value, other.query):
        assert abs(part(x).data.std() - 1) < 0.2
    for part in (other.key, other.value):
        assert part.weight.shape == (48, 100)
        assert abs(part(Tensor(r((20, 100)).astype(np.float32))).data.std() - 1) < 0.2
