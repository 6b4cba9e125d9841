"""Examples that were worked out elsewhere and printed, to the digits that were printed."""
import inspect
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from model import MultiHeadAttention, Transformer, TransformerConfig
from model.attention import attention, causal_mask
from model.layers import STD

# Toy embeddings of "Your journey starts with one step", a row for each word.
WORDS = np.array([[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64],
                  [0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]])


def lower_triangle(*rows):
    """Rows of growing length as a square matrix, 0 above the diagonal."""
    return np.array([row + [0] * (len(rows) - len(row)) for row in rows])


SCORES = lower_triangle(
    [-0.4028],
    [-0.2623, 0.1610],
    [-0.2630, 0.1553, 0.1546],
    [-0.0989, 0.1501, 0.1497, 0.1111],
    [-0.2004, 0.0102, 0.0098, 0.0397, -0.0013],
    [-0.1048, 0.2070, 0.2065, 0.1480, 0.1407, 0.1575])
CAUSAL_WEIGHTS = lower_triangle(
    [1.0000],
    [0.4392, 0.5608],
    [0.2820, 0.3591, 0.3589],
    [0.2253, 0.2602, 0.2601, 0.2544],
    [0.1809, 0.2043, 0.2042, 0.2078, 0.2029],
    [0.1456, 0.1743, 0.1743, 0.1685, 0.1678, 0.1694])

r = np.random.default_rng(0).standard_normal


def prints_as(tensor, expected):
    """Whether every number, rounded to four decimals, is the printed one."""
    return np.array_equal(np.round(tensor.data, 4), np.asarray(expected))


def causal_weights():
    return mg.softmax(Tensor(SCORES) / math.sqrt(3) + causal_mask(6, dtype=np.float64))


def test_attention_without_weights_gives_the_printed_scores_weights_and_context():
    words = Tensor(WORDS)
    scores = words @ words[1]
    assert prints_as(scores, [0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865])
    weights = mg.softmax(scores)
    assert prints_as(weights, [0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581])
    assert prints_as(weights @ words, [0.4419, 0.6515, 0.5683])


def test_the_same_context_comes_from_attention_with_its_scale_undone():
    words = Tensor(WORDS)
    context, weights = attention(words * math.sqrt(3), words, words)
    assert prints_as(weights[1], [0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581])
    assert prints_as(context[1], [0.4419, 0.6515, 0.5683])
    by_op = mg.scaled_dot_product_attention(words, words, words, scale=1.0)
    assert prints_as(by_op[1], [0.4419, 0.6515, 0.5683])


def test_the_printed_scores_give_the_printed_causal_weights():
    assert prints_as(causal_weights(), CAUSAL_WEIGHTS)


def test_the_op_gives_the_printed_causal_weights_too():
    # With the identity as keys, a query's scores are the query itself.
    by_op = mg.scaled_dot_product_attention(SCORES, np.eye(6), np.eye(6), scale=1 / math.sqrt(3),
                                            is_causal=True)
    assert prints_as(by_op, CAUSAL_WEIGHTS)


def test_dropout_at_a_fifth_turns_a_kept_4392_into_5490():
    rows_of_two = mg.dropout(mg.stack([causal_weights()[1]] * 50), 0.2, np.random.default_rng(0))
    seen = set(np.round(rows_of_two.data[:, 0], 4))
    assert seen == {0, 0.5490}
    assert set(np.round(rows_of_two.data[:, 1], 3)) == {0, 0.701}       # 0.5608 / 0.8


def one_pass(q, k, v, scale=1.0, causal=False):
    """Attention of one query after the other, over one key and value at a time.

    Only the running maximum, the running sum and the running total are kept, as a sampler would.
    """
    out = np.zeros((len(q), v.shape[1]))
    for t, query in enumerate(q):
        top, total, mixed = -math.inf, 0.0, np.zeros(v.shape[1])
        for i in range(t + 1 if causal else len(k)):
            score = float(query @ k[i]) * scale
            higher = max(top, score)
            shrunk, weight = math.exp(top - higher), math.exp(score - higher)
            total = total * shrunk + weight
            mixed = mixed * shrunk + weight * v[i]
            top = higher
        out[t] = mixed / total
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [4, 9])
def test_one_pass_over_keys_and_values_equals_the_matrix_form(width, causal):
    q, k, v = r((8, 4)), r((8, 4)), r((8, width))
    mask = causal_mask(8, dtype=np.float64) if causal else None
    matrix_form = mg.softmax(q @ k.T + (0 if mask is None else mask)) @ v
    assert np.allclose(one_pass(q, k, v, causal=causal), matrix_form.data, rtol=1e-12, atol=1e-14)
    formula, _ = attention(Tensor(q), Tensor(k), Tensor(v), mask)
    by_op = mg.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scaled = one_pass(q, k, v, 1 / math.sqrt(4), causal)
    assert np.allclose(scaled, formula.data, rtol=1e-12, atol=1e-14)
    assert np.allclose(scaled, by_op.data, rtol=1e-12, atol=1e-14)


def test_one_pass_survives_scores_whose_exponential_overflows():
    q, k, v = 100 * r((5, 4)), 100 * r((5, 4)), r((5, 3))
    assert np.abs(q @ k.T).max() > 710                      # e^710 is no float64
    expected = mg.scaled_dot_product_attention(q, k, v, scale=1.0, is_causal=True).data
    assert np.isfinite(expected).all()
    assert np.allclose(one_pass(q, k, v, causal=True), expected, rtol=1e-9, atol=1e-12)


def test_softmax_over_columns_of_keys_times_queries_is_the_transpose_of_rows():
    q, k = Tensor(r((6, 3))), Tensor(r((6, 3)))
    above = causal_mask(6, dtype=np.float64)
    rows = mg.softmax(q @ k.T + above)                      # of (q_i . k_j), closed above diagonal
    columns = mg.softmax(k @ q.T + above.T, axis=0)         # of (k_i . q_j), closed below it
    assert np.array_equal(above.T, np.where(np.tri(6, k=-1), -math.inf, 0))
    assert np.allclose(columns.data, rows.data.T, rtol=1e-14, atol=0)
    assert np.allclose(rows.data.sum(axis=1), 1) and np.allclose(columns.data.sum(axis=0), 1)


def test_values_of_low_rank_are_heads_side_by_side_times_one_output_matrix():
    C, H, D, T = 12, 3, 4, 5
    layer = MultiHeadAttention(C, C, H, causal=False, dtype=np.float64)
    layer.qkv.weight.data[...] = r((3 * C, C))
    layer.out.weight.data[...] = r((C, C))
    x = Tensor(r((T, C)))
    query, key, down = (part.reshape(H, D, C) for part in mg.split(layer.qkv.weight, 3))
    total = 0
    for h in range(H):
        up = layer.out.weight[:, h * D:(h + 1) * D]         # V_up of this head, (C, D)
        _, weights = attention(x @ query[h].T, x @ key[h].T, x)
        whole = up @ down[h]                                # W_V, (C, C) of rank D
        assert np.linalg.matrix_rank(whole.data) == D
        total = total + weights @ (x @ whole.T)             # sum_j a_ij V_up V_down e_j
    assert np.allclose(layer(x).data, total.data, rtol=1e-10, atol=1e-12)


def test_an_untrained_model_starts_close_to_ln_65():
    """4.174, and at most what the first weights can add to it.

    The logits are of size s = STD sqrt(C), which costs s^2 / 2 = 0.026.  The tied table lifts that
    of the character just read by s sqrt(C / 2) = 1.8 at most, which costs (e^1.8 - 1) / 65 = 0.08.
    """
    assert round(math.log(65), 3) == 4.174
    s = STD * math.sqrt(128)
    most = s * s / 2 + math.expm1(s * math.sqrt(128 / 2)) / 65
    assert round(most, 2) == 0.10
    for seed in range(3):
        model = Transformer(TransformerConfig(vocab_size=65), seed=seed)
        ids, targets = np.random.default_rng(seed).integers(65, size=(2, 12, 64))
        loss = mg.cross_entropy(model(ids), targets).item()
        error = 2 * s / math.sqrt(targets.size)             # of the mean over these targets
        assert -4 * error < loss - math.log(65) < most + 4 * error


def test_gradcheck_has_the_defaults_of_pytorchs():
    defaults = {name: p.default for name, p in inspect.signature(mg.gradcheck).parameters.items()}
    assert defaults["eps"] == 1e-6 and defaults["atol"] == 1e-5 and defaults["rtol"] == 1e-3


@pytest.fixture
def weightless(monkeypatch):
    """Let models be built whose weights have their shapes and no memory."""
    def normal(rng, shape, std, dtype):
        return Tensor(np.broadcast_to(dtype(0), shape), requires_grad=True)
    monkeypatch.setattr("model.layers.normal", normal)


def test_gpt3s_attention_has_the_published_58_billion_parameters(weightless):
    config = TransformerConfig(vocab_size=50257, block_size=2048, n_layer=96, n_head=96,
                               n_embd=12288)
    model = Transformer(config)
    memory = sum(p.size * p.data.itemsize for p in model.parameters() if p.data.strides[-1])
    assert memory < 2**24                                   # the norms; the rest takes none
    query, key, value = np.split(model.blocks[0].attention.qkv.weight.data, 3)
    one_key = key[:12288 // config.n_head]                  # of one head
    assert one_key.shape == (128, 12288) and round(one_key.size / 1e6, 2) == 1.57
    sizes = {path: p.size for path, p in model.named_parameters()}
    attention_sizes = {path: n for path, n in sizes.items() if ".attention." in path}
    first = sum(n for path, n in attention_sizes.items() if path.startswith("blocks.0."))
    assert first // 96 == 4 * one_key.size and round(first / 96 / 1e6, 1) == 6.3
    assert round(first / 1e6) == 604
    assert sum(attention_sizes.values()) == 57_982_058_496
    whole = sum(sizes.values())
    assert round(whole / 1e9) == 175
    assert abs(57_982_058_496 / whole - 1 / 3) < 0.005


@pytest.mark.parametrize("name, settings, expected", [
    ("small", dict(n_layer=4, n_head=4, n_embd=128, block_size=64), 804_096),
    ("baby", dict(n_layer=6, n_head=6, n_embd=384, block_size=256, dropout=0.2), 10_745_088)])
def test_the_two_usual_models_have_their_known_sizes(weightless, name, settings, expected):
    model = Transformer(TransformerConfig(vocab_size=65, bias=False, **settings))
    assert sum(p.size for p in model.parameters()) == expected
