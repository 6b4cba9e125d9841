"""ALiBi's slopes are the printed ones, and its layer adds them (tests/model/test_attention.py)."""
import numpy as np
import pytest

import minigrad as mg
from data.tokenizer import CharTokenizer
from model import Transformer, TransformerConfig
from model.generation import generate
from model.scoring import prove_causality
from model.variants.alibi import AlibiAttention, alibi_bias, alibi_slopes
from tests.checking import random_weights
from tests.kit import both_types, refusal

pytestmark = pytest.mark.late


@both_types
def test_alibi_slopes_of_eight_heads_are_the_printed_ones_and_the_bias_is_theirs_by_distance(dtype):
    assert np.array_equal(alibi_slopes(8), [1 / 2**n for n in range(1, 9)])
    assert np.allclose(alibi_slopes(16)[:4], [2**-0.5, 2**-1, 2**-1.5, 2**-2], rtol=1e-7)
    assert np.allclose(alibi_slopes(6)[1:] / alibi_slopes(6)[:-1], 2 ** (-8 / 6), rtol=1e-6)
    bias = alibi_bias(alibi_slopes(2, dtype), 4)
    assert bias.shape == (2, 4, 4) and bias.dtype == dtype
    assert np.array_equal(bias[0] * 16, [[0, -1, -2, -3], [-1, 0, -1, -2],
                                         [-2, -1, 0, -1], [-3, -2, -1, 0]])
    assert np.array_equal(bias[1], bias[0] / 16)


def test_a_transformer_with_alibi_learns_is_causal_and_is_not_sampled_by_another_attention():
    tokenizer = CharTokenizer("abcd")
    model = Transformer(TransformerConfig(4, block_size=8, n_layer=1, n_head=2, n_embd=8))
    model.blocks[0].attention = random_weights(AlibiAttention(8, 8, 2))
    prove_causality(model, 4, 8)
    ids = np.arange(8)[None] % 4
    mg.cross_entropy(model(ids), ids).backward()
    assert all(np.any(p.grad) for p in model.parameters())
    assert len(generate(model, tokenizer, "a", max_new_tokens=20, cache=False)) == 21
    if mg.COMPILED:
        said = refusal(ValueError, generate, model, tokenizer, "a", max_new_tokens=20)
        assert said == ("the KV cache does not know AlibiAttention; sample with cache=False "
                        "(--no-cache)")
