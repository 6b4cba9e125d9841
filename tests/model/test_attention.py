"""Attention: the plain formula, the op and the layers, against each other and against NumPy."""
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from model import (CausalAttention, CrossAttention, MultiHeadAttention, SelfAttention, StackedHeads,
                   WeightlessAttention)
from model.attention import AttentionOptions, attention, causal_mask
from model.layers import Linear
from model.variants.alibi import AlibiAttention
from tests.checking import check_gradients, close, frozen, gradients, random_weights
from tests.kit import both_types, leaf, normal, refusal

pytestmark = pytest.mark.late
T, C = 7, 6
X = normal(2, T, C)                                       # (B, T, C)
CONTEXT = normal(2, 5, 4)                                 # (B, S, d_context)
PADDING = np.arange(5) < [[[4]], [[2]]]               # (B, 1, S)
DOUBLE = dict(dtype=np.float64)
FORMS = [
    AttentionOptions(),
    AttentionOptions(num_kv_heads=1),
    AttentionOptions(rotary_base=1e4),
    AttentionOptions(qk_norm=True),
    AttentionOptions(1, rotary_base=3.0, qk_norm=True),
    AttentionOptions(1, rotary_base=3.0, qk_norm=True, qk_gain=True, norm_eps=0.1, head_dim=6)]


def mixed(q, k, v, scale=None, bias=0.0):
    """softmax(q k^T scale + bias) v, in NumPy."""
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1])
    e = np.exp(q @ k.swapaxes(-1, -2) * scale + bias)
    return e / e.sum(axis=-1, keepdims=True) @ v


def stacked(kind, *settings):
    """Two heads of a kind, and an output projection."""
    heads = [kind(C, 2, *settings, **DOUBLE) for _ in range(2)]
    return StackedHeads(heads, Linear(4, 4, True, frozen(), **DOUBLE))


def layers(dropout=0.0, bias=True):
    """One of each kind that reads a single sequence, in float64 and with large weights."""
    made = [
        SelfAttention(C, 4, bias, dropout, **DOUBLE),
        CausalAttention(C, 4, T, dropout, bias, **DOUBLE),
        stacked(SelfAttention, bias, dropout),
        stacked(CausalAttention, T, dropout, bias),
        AlibiAttention(C, 4, 2, dropout, bias, **DOUBLE)]
    for options in FORMS:
        made.append(MultiHeadAttention(C, 4, 2, dropout, bias, options=options, **DOUBLE))
    return [random_weights(layer) for layer in made]


QKV = {
    "one head": [(T, 4)] * 3,
    "batch and heads": [(2, 3, T, 4)] * 3,
    "more than a block": [(2, 2, 60, 3)] * 3,
    "other length and width": [(2, T, 4), (2, 9, 4), (2, 9, 5)]}


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shapes", QKV.values(), ids=QKV)
def test_attention_and_the_op_agree_in_values_and_gradients(shapes, causal, p):
    arrays = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    queries, keys = (shape[-2] for shape in shapes[:2])
    mask = np.tri(queries, keys, dtype=bool) if causal else None

    def by_formula(*qkv):
        return attention(*qkv, mask, p, frozen())[0]

    def by_op(*qkv):
        return mg.scaled_dot_product_attention(*qkv, dropout_p=p, is_causal=causal, rng=frozen())
    results = []
    for compute in (by_formula, by_op):
        qkv = [leaf(a) for a in arrays]
        out = compute(*qkv)
        results.append([out.data, *gradients(out, *qkv)])
    for plain, fast in zip(*results, strict=True):
        assert plain.shape == fast.shape
        assert np.allclose(plain, fast, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("mask", [
    None,
    np.triu(np.full((T, 9), -np.inf, np.float32), k=1),
    np.tri(T, 9, dtype=bool)], ids=["open", "added", "bool"])
def test_attention_also_returns_its_weights_before_dropout(mask, dtype, tolerance):
    q = normal(3, T, 4, dtype=dtype)
    k = normal(3, 9, 4, dtype=dtype, seed=1)
    v = normal(3, 9, 5, dtype=dtype, seed=2)
    qkv = Tensor(q), Tensor(k), Tensor(v)
    e = np.exp(q @ k.swapaxes(1, 2) / 2)
    if mask is not None:
        e *= np.tri(T, 9)
    expected = e / e.sum(-1, keepdims=True)
    dropped, before = attention(*qkv, mask, 0.5, frozen())
    out, weights = attention(*qkv, mask)
    assert dropped.dtype == out.dtype == weights.dtype == dtype
    assert weights.shape == (3, T, 9)
    assert np.array_equal(before.data, weights.data)
    assert np.allclose(weights.data, expected, rtol=tolerance)
    assert np.allclose(out.data, weights.data @ v, rtol=tolerance, atol=tolerance)
    assert not np.allclose(dropped.data, out.data, atol=0.1)


def test_scaled_dot_product_attention_takes_a_mask_that_is_added_or_says_where_to_look():
    qkv = [Tensor(a) for a in normal(3, T, 4)]

    def masked(mask):
        return mg.scaled_dot_product_attention(*qkv, attn_mask=mask).data
    added = causal_mask(T, **DOUBLE)
    assert added.dtype == np.float64
    assert np.array_equal(masked(added), masked(added == 0))
    added[2] = -math.inf
    out = masked(added)
    assert (out[2] == 0).all()
    assert np.isfinite(out).all()       # where nothing is to be seen


@pytest.mark.parametrize("scale", [None, 1.0])
def test_WeightlessAttention_is_the_formula_with_the_input_three_times(scale):
    assert close([WeightlessAttention(scale)(Tensor(X)).data], [mixed(X, X, X, scale)])


def test_CausalAttention_refuses_more_positions_than_it_was_made_for():
    layer = CausalAttention(C, 4, context_length=T)
    assert layer(Tensor(X.astype(np.float32))).shape == (2, T, 4)
    assert refusal(ValueError, layer, Tensor(normal(2, T + 1, C))) == (
        "the input has 8 positions; this attention was made for at most 7 (context_length)")


def test_CrossAttention_is_not_changed_by_a_bit_of_what_padding_holds():
    layer = random_weights(CrossAttention(C, 8, d_context=4, **DOUBLE))
    other = np.where(PADDING.swapaxes(1, 2), CONTEXT, normal(*CONTEXT.shape, seed=1))
    assert not np.array_equal(other, CONTEXT)
    padded = layer(Tensor(X), Tensor(CONTEXT), PADDING).data
    assert np.array_equal(padded, layer(Tensor(X), Tensor(other), PADDING).data)
    for b, length in enumerate((4, 2)):
        alone = layer(Tensor(X[b]), Tensor(CONTEXT[b, :length])).data
        assert np.allclose(padded[b], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind, settings", [
    (SelfAttention, ()),
    (CausalAttention, (T,))])
def test_SelfAttention_reads_a_padded_sequence_as_it_would_alone(kind, settings):
    layer = random_weights(kind(C, 4, *settings, **DOUBLE))
    starts = (2, 4)                     # padding first, which the causal mask alone would not hide
    mask = np.arange(T) >= np.reshape(starts, (2, 1, 1))        # (B, 1, T)
    elsewhere = np.where(mask.swapaxes(1, 2), X, normal(*X.shape, seed=1))
    padded = layer(Tensor(X), mask=mask).data
    other = layer(Tensor(elsewhere), mask=mask).data
    for b, start in enumerate(starts):
        alone = layer(Tensor(X[b, start:])).data
        assert np.allclose(padded[b, start:], alone, rtol=1e-10, atol=1e-12)
        assert np.array_equal(padded[b, start:], other[b, start:])
    assert check_gradients(layer, X, mask=mask)


@pytest.mark.parametrize("mask", [None, PADDING], ids=["open", "padded"])
def test_weights_of_a_head_are_those_that_it_mixes_values_with(mask):
    one = Tensor(X)
    two = Tensor(CONTEXT)
    cross = random_weights(CrossAttention(C, 8, d_context=4, qkv_bias=True, **DOUBLE))
    weights = cross.weights(one, two, mask)
    assert weights.shape == (2, T, 5)
    assert np.ptp(weights) > 0.9
    assert close([weights @ cross.value(two).data], [cross(one, two, mask).data])
    other = random_weights(CrossAttention(C, 8, 4, **DOUBLE), 0.5)
    of_both = StackedHeads([cross, other]).weights(one, two, mask)
    assert np.array_equal(of_both[:, 0], weights)
    assert np.allclose(of_both.sum(axis=-1), 1)
    hidden = None if mask is None else np.arange(T) > 0
    for kind, settings in ((SelfAttention, ()), (CausalAttention, (T,))):
        head = random_weights(kind(C, 4, *settings, **DOUBLE))
        found = head.weights(one, one, hidden) @ head.value(one).data
        expected = head(one, mask=hidden).data
        assert close([found[:, 1:]], [expected[:, 1:]])     # no key is left for the first query


@pytest.mark.parametrize("options", [
    *FORMS,
    AttentionOptions(3),
    AttentionOptions(2, rotary_base=3.0, qk_norm=True)], ids=str)
@pytest.mark.parametrize("kind", [MultiHeadAttention, AlibiAttention])
def test_MultiHeadAttention_is_the_formula_head_by_head(kind, options):
    """Written out in NumPy from the rows of the one weight; masked by -inf before the softmax."""
    H = 6
    D = options.head_dim or 4
    layer = random_weights(kind(C, 24, H, bias=True, options=options, **DOUBLE))
    G = options.num_kv_heads or H
    base = options.rotary_base
    weight = layer.qkv.weight.data
    bias = layer.qkv.bias.data
    distance = np.arange(T)[:, None] - np.arange(T)
    hidden = np.where(distance < 0, -np.inf, 0)

    def projected(head, turned, gains=None):
        rows = slice(head * D, head * D + D)
        x = X @ weight[rows].T + bias[rows]
        if turned and options.qk_norm:
            square = (x * x).mean(-1, keepdims=True)
            x = x / np.sqrt(square + options.norm_eps)
        if turned and options.qk_gain:
            x = x * gains.weight.data
        if turned and base:
            speeds = base ** (-np.arange(0, D, 2) / D)                      # (D / 2,)
            angles = np.arange(T)[:, None] * speeds                         # (T, D / 2)
            z = x[..., ::2] + 1j * x[..., 1::2]
            z = z * np.exp(1j * angles)
            pairs = np.stack([z.real, z.imag], axis=-1)
            x = pairs.reshape(x.shape)
        return x
    of_heads = []
    for h in range(H):
        g = h // (H // G)                                   # whose keys and values it looks at
        slope = 0.5 ** (8 / H * (h + 1)) if kind is AlibiAttention else 0
        q = projected(h, True, layer.query_norm)
        k = projected(H + g, True, layer.key_norm)
        v = projected(H + G + g, False)
        of_heads.append(mixed(q, k, v, bias=hidden - slope * abs(distance)))
    out = np.concatenate(of_heads, axis=-1)                                 # (B, T, H D)
    assert close([layer(Tensor(X)).data],
                 [out @ layer.out.weight.data.T + layer.out.bias.data])


@pytest.mark.parametrize("D, E", [(4, 4), (2, 5), (6, 1)])
def test_StackedHeads_have_values_of_another_width_than_keys(D, E):
    """The output matrix then has H E columns."""
    rng = frozen()
    heads = [SelfAttention(C, D, rng=rng, d_value=E, **DOUBLE) for _ in range(3)]
    layer = StackedHeads(heads, Linear(3 * E, C, False, rng, 1.0, **DOUBLE))
    of_heads = [mixed(*(X @ part.weight.data.T for part in (head.query, head.key, head.value)))
                for head in heads]
    assert close([layer(Tensor(X)).data],
                 [np.concatenate(of_heads, axis=-1) @ layer.out.weight.data.T])
    assert check_gradients(layer, X)


@pytest.mark.parametrize("settings, says", [
    (dict(), "d_out 8 does not split into num_heads 3 heads; take d_out 6 or 9"),
    *((dict(d_out=12, options=AttentionOptions(n)),
       f"3 heads of queries do not split evenly among {n} of keys and values")
      for n in (2, 0, -1, -2)),
    (dict(num_heads=0), "0 heads of queries do not split evenly among 0 of keys and values"),
    (dict(d_out=9, options=AttentionOptions(rotary_base=1e4)),
     "channels are turned in pairs, by a base above 0; a head has 3 channels, and the base is "
     "10000.0")], ids=str)
def test_MultiHeadAttention_refuses_heads_that_do_not_fit_together(settings, says):
    def used(d_out=8, num_heads=3, **settings):
        layer = MultiHeadAttention(C, d_out, num_heads, **settings)
        return layer(Tensor(np.ones((T, C), np.float32)))
    assert refusal(ValueError, used, **settings) == says


@both_types
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_causal_mask_hides_the_future_in_every_layer(dropout, dtype):
    _, single, _, *several = layers(dropout)            # all but self-attention without a mask
    for layer in (single, *several):
        state = {path: a.astype(dtype) for path, a in layer.state_dict().items()}
        layer.load_state_dict(state, assign=True)
        before = layer(Tensor(X.astype(dtype)), rng=frozen()).data
        for cut in range(1, T):
            changed = X.copy()
            changed[:, cut:] = normal(*changed[:, cut:].shape, seed=1)
            after = layer(Tensor(changed.astype(dtype)), rng=frozen()).data
            assert np.array_equal(before[:, :cut], after[:, :cut]), (layer, cut)
            assert (before[:, cut] != after[:, cut]).any(), (layer, cut)


@pytest.mark.parametrize("kind, options", [
    *((MultiHeadAttention, form) for form in FORMS),
    (AlibiAttention, AttentionOptions(2))], ids=str)
def test_weights_of_many_heads_are_those_by_which_their_values_are_mixed(kind, options):
    layer = random_weights(kind(C, 8, 4, options=options, **DOUBLE))
    x = Tensor(X)
    weights = layer.weights(x)
    _, _, v = layer.split(layer.project(x))
    by_head = weights @ v.data                              # (B, H, T, D)
    by_channel = Tensor(by_head.swapaxes(1, 2).reshape(2, T, -1))
    assert weights.shape == (2, 4, T, T)
    assert np.ptp(weights) > 0.5
    assert close([layer(x).data], [layer.out(by_channel).data])


def test_weights_need_no_context_and_messages_say_what_is_read():
    head = SelfAttention(C, 4)
    x = Tensor(X)
    assert np.array_equal(head.weights(x), head.weights(x, x))
    for attend in (head, MultiHeadAttention(C, 4, 2), CausalAttention(C, 4, T)):
        assert "(..., T, C)" in refusal(ValueError, attend, Tensor(X[0, 0]))


def test_dropout_of_every_layer_happens_only_with_a_generator():
    x = Tensor(X)
    for dropped, whole in zip(layers(0.4), layers(0.0)):
        first, again, other = (dropped(x, rng=frozen(seed)).data for seed in (3, 3, 5))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
        kept = whole(x).data
        assert np.array_equal(dropped(x).data, kept)
        assert not np.array_equal(kept, first)
        assert np.array_equal(whole(x, rng=frozen()).data, kept)


def test_MultiHeadAttention_drops_weights_and_no_outputs():
    layer = MultiHeadAttention(C, 8, 2, dropout=0.5)
    for p in layer.parameters():
        p.data[...] = 1
    x = Tensor(np.ones((4, 50, C), np.float32))     # each value is 6, and their mean about 6
    out = layer(x, frozen()).data[:, 20:]           # 8 add up
    assert (out > 0).all()
    assert out.std() > 1
    assert abs(out.mean() - 48) < 2


@pytest.mark.parametrize("bias, dropout", [
    (False, 0.0),
    (True, 0.0),
    (True, 0.4)])
def test_gradients_of_every_layer_agree_with_central_differences(bias, dropout):
    drawn = dict(rng=frozen) if dropout else {}
    for layer in layers(dropout, bias):
        assert check_gradients(layer, X, **drawn)
    assert check_gradients(WeightlessAttention(), X)
    cross = random_weights(CrossAttention(C, 8, 4, bias, dropout, **DOUBLE))
    for mask in (None, PADDING):
        assert check_gradients(cross, X, CONTEXT, mask=mask, **drawn)


def test_SelfAttention_starts_with_weights_that_keep_the_variance():
    layer = SelfAttention(64, 48, rng=frozen())
    other = CrossAttention(64, 48, d_context=100, rng=frozen())
    for inputs, parts in ((64, [layer.query, layer.key, layer.value, other.query]),
                          (100, [other.key, other.value])):
        x = Tensor(normal(20, inputs).astype(np.float32))
        for part in parts:
            assert part.weight.shape == (48, inputs)
            assert abs(part(x).data.std() - 1) < 0.2
