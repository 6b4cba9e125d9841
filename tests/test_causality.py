"""The proof of causality: right models pass, and planted leaks are refused with their place."""
import math
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from model import Transformer, TransformerConfig
from model.attention import attention, causal_mask
from model.causality import CausalityError, prove_causality
from model.transformer import POSITIONS

V, T, C, H = 11, 12, 8, 2


def small(block_size=T, **settings):
    return Transformer(TransformerConfig(vocab_size=V, block_size=block_size, n_layer=3, n_head=H,
                                         n_embd=C, **settings))


class PlainAttention:
    """One layer of plain attention over embedded ids, with parts that a leak can be planted in."""

    def __init__(self, mask):
        rng = np.random.default_rng(0)
        self.table = Tensor(rng.standard_normal((V, C)))
        self.weights = [Tensor(rng.standard_normal((C, C))) for _ in range(3)]
        self.mask = mask

    def __call__(self, ids):
        x = self.embed(ids)                                 # (B, T, C)
        return self.mix(x) @ self.table.T

    def embed(self, ids):
        return mg.embedding(ids, self.table)

    def mix(self, x):
        q, k, v = (x @ w for w in self.weights)
        return attention(q, k, v, self.mask)[0]


def refusal(model, block_size=T):
    """Which position moved, and from where on the input had changed, as the refusal says."""
    with pytest.raises(CausalityError) as caught:
        prove_causality(model, V, block_size)
    found = re.fullmatch(r"the model sees the future: the logits at position (\d+) changed when "
                         r"only the input from position (\d+) on did; look at its mask",
                         str(caught.value))
    assert found, str(caught.value)
    position, cut = map(int, found.groups())
    assert 0 <= position < cut < block_size
    return position, cut


@pytest.mark.parametrize("n_head, n_embd", [(1, 1), (2, 8), (4, 100)])
@pytest.mark.parametrize("block_size", [2, 3, 11, 33])
def test_the_right_model_passes_at_every_size(block_size, n_head, n_embd):
    config = TransformerConfig(vocab_size=V, block_size=block_size, n_layer=2, n_head=n_head,
                               n_embd=n_embd)
    prove_causality(Transformer(config), V, block_size)


def test_the_model_that_is_trained_by_default_passes():
    prove_causality(Transformer(TransformerConfig(vocab_size=65)), 65, 64)


def test_the_right_model_passes_in_float64_with_biases_and_large_weights():
    for dtype in (np.float32, np.float64):
        model = Transformer(TransformerConfig(V, T, 2, H, C, bias=True), dtype=dtype)
        for p in model.parameters():
            p.data *= 30
        prove_causality(model, V, T)


@pytest.mark.parametrize("parts", [{}, dict(norm="rms", qk_norm=True, activation="relu2",
                                            ngrams=3)],
                         ids=["usual", "modern"])
@pytest.mark.parametrize("n_kv_head", [None, 1])
@pytest.mark.parametrize("position", POSITIONS)
def test_the_right_model_passes_with_any_option(position, n_kv_head, parts):
    for dtype in (np.float32, np.float64):
        model = Transformer(TransformerConfig(V, 40, 2, H, 20, bias=True, position=position,
                                              n_kv_head=n_kv_head, **parts), dtype=dtype)
        for p in model.parameters():
            p.data *= 10
        prove_causality(model, V, 40)
        model.blocks[1].attention.causal = False
        assert refusal(model, 40) == (0, 1)


def test_the_right_plain_attention_passes():
    prove_causality(PlainAttention(causal_mask(T, dtype=np.float64)), V, T)


def test_a_sequence_without_a_future_passes():
    prove_causality(small(block_size=1), V, 1)
    prove_causality(Transformer(TransformerConfig(vocab_size=1, block_size=T)), 1, T)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_one_block_that_looks_everywhere_is_refused(layer):
    model = small()
    model.blocks[layer].attention.causal = False
    assert refusal(model) == (0, 1)


def test_a_mask_off_by_one_is_refused():
    mask = np.triu(np.full((T, T), -math.inf), k=2)
    assert refusal(PlainAttention(mask)) == (0, 1)


def test_a_mask_that_is_missing_or_transposed_is_refused():
    assert refusal(PlainAttention(None)) == (0, 1)
    assert refusal(PlainAttention(causal_mask(T, dtype=np.float64).T))[1] == 1


@pytest.mark.parametrize("t", range(T - 1))
def test_one_open_place_in_the_mask_is_refused_and_named(t):
    for s in range(t + 1, T):
        mask = causal_mask(T, dtype=np.float64)
        mask[t, s] = 0
        position, cut = refusal(PlainAttention(mask))
        assert position == t and t < cut <= s


def test_a_far_leak_into_one_position_of_a_long_sequence_is_refused_and_named():
    mask = causal_mask(100, dtype=np.float64)
    mask[2, 99] = 0
    position, cut = refusal(PlainAttention(mask), block_size=100)
    assert position == 2 and 2 < cut <= 99


def test_a_mask_that_is_only_almost_closed_is_refused():
    mask = np.where(causal_mask(T) < 0, -20.0, 0)
    assert refusal(PlainAttention(mask))[0] == 0


def test_the_mean_over_time_is_refused():
    class Mean(PlainAttention):
        def mix(self, x):
            return super().mix(x) + 1e-3 * x.mean(axis=1, keepdims=True)
    assert refusal(Mean(causal_mask(T, dtype=np.float64))) == (0, 1)


def test_a_leak_into_one_logit_alone_is_refused():
    class Narrow(PlainAttention):
        def __call__(self, ids):
            one = np.eye(V)[3]                              # (V,)
            return super().__call__(ids) + 1e-9 * one * np.roll(ids, -1, axis=1)[..., None]
    assert refusal(Narrow(causal_mask(T, dtype=np.float64))) == (0, 1)


def test_norming_over_time_is_refused():
    class NormOverTime(PlainAttention):
        def mix(self, x):
            return super().mix(mg.layer_norm(x.swapaxes(1, 2)).swapaxes(1, 2))
    assert refusal(NormOverTime(causal_mask(T, dtype=np.float64))) == (0, 1)


def test_a_leak_from_the_last_position_to_the_first_alone_is_refused():
    class Ring(PlainAttention):
        def mix(self, x):
            first = np.eye(T)[0][:, None]                   # (T, 1)
            return super().mix(x) + first * x[:, -1:]
    assert refusal(Ring(causal_mask(T, dtype=np.float64)))[0] == 0


def test_a_leak_from_the_last_position_to_the_one_before_is_refused():
    class Late(PlainAttention):
        def mix(self, x):
            before = np.eye(T)[-2][:, None]
            return super().mix(x) + before * x[:, -1:]
    assert refusal(Late(causal_mask(T, dtype=np.float64))) == (T - 2, T - 1)


def test_batch_and_time_mixed_up_by_a_reshape_are_refused():
    class Mixed(PlainAttention):
        def mix(self, x):
            B = x.shape[0]
            transposed = x.swapaxes(0, 1)                   # (T, B, C), and then read as (B, T, C)
            return super().mix(transposed.reshape(B, T, C))
    refusal(Mixed(causal_mask(T, dtype=np.float64)))


def test_time_and_heads_mixed_up_by_a_reshape_are_refused():
    class Mixed(PlainAttention):
        def mix(self, x):
            heads = x.reshape(len(x), H, T, C // H)         # where a swap of axes is missing
            mixed = attention(heads, heads, heads, self.mask)[0]
            return mixed.swapaxes(1, 2).reshape(*x.shape)
    assert refusal(Mixed(causal_mask(T, dtype=np.float64))) == (0, 1)


def test_targets_that_slipped_into_the_input_are_refused():
    class Shifted(PlainAttention):
        def embed(self, ids):
            return super().embed(np.roll(ids, -1, axis=-1))
    assert refusal(Shifted(causal_mask(T, dtype=np.float64))) == (0, 1)


@pytest.mark.parametrize("block_size", [2, 3, 50, 200])
def test_a_mask_off_by_one_is_refused_at_every_length(block_size):
    mask = np.triu(np.full((block_size, block_size), -math.inf), k=2)
    assert refusal(PlainAttention(mask), block_size) == (0, 1)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_model_without_finite_logits_proves_nothing(number):
    def diverged(ids):
        return Tensor(np.full((*ids.shape, V), number))
    with pytest.raises(CausalityError) as caught:
        prove_causality(diverged, V, T)
    assert str(caught.value) == ("nothing can be proven of a model whose logits are not finite; "
                                 "look at its weights")


def test_the_proof_records_nothing_and_leaves_no_trace():
    model, recorded = small(dropout=0.5), []
    before = model.state_dict()

    def watched(ids):
        logits = model(ids)
        recorded.append(logits.requires_grad)
        return logits
    prove_causality(watched, V, T)
    assert recorded and not any(recorded)
    assert all(np.array_equal(p.data, before[path]) and p.grad is None
               for path, p in model.named_parameters())


def test_a_refusal_leaves_recording_on():
    refusal(PlainAttention(None))
    assert small()(np.zeros((1, T), int)).requires_grad
