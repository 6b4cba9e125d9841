"""The loss over windows, of each target once; and the proof of causality: right models pass, and
planted leaks are refused with their place."""
import math
import re

import numpy as np
import pytest
from tqdm import tqdm

import data
import minigrad as mg
from data import IGNORE
from minigrad import Tensor
from model import MultiHeadAttention, Transformer, TransformerConfig
from model.attention import attention, causal_mask
from model.scoring import (LONG, SHORT, TOKENS, CausalityError, evaluate, count_proof_ids, ladder,
                           prove_causality, yardstick)
from model.config import POSITIONS
from tests import kit
from tests.pairwise import pairwise

pytestmark = pytest.mark.late
V = 11
T = 12
C = 8
H = 2
at_short_and_long_blocks = pytest.mark.parametrize("block_size", [T, 5000])


def test_an_evaluation_is_the_mean_over_every_target_once():
    ids = np.random.default_rng(0).integers(9, size=200)
    model = Transformer(TransformerConfig(9, 16, 1, 1, 8, dropout=0.5), dtype=np.float64)
    x, y = data.windows(ids, 16)
    logits = model(x).data
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    counted = y != IGNORE
    chosen = np.take_along_axis(log_p, np.where(counted, y, 0)[..., None], axis=-1)[..., 0]
    expected = -chosen[counted].mean()
    assert counted.sum() == 199
    for batch_size in (1, 5, 100):
        assert np.isclose(evaluate(model, x, y, batch_size), expected, rtol=1e-10)


def test_evaluate_counts_targets_and_not_batches_of_them():
    model = Transformer(TransformerConfig(9, 4, 1, 1, 8), dtype=np.float64)
    x = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    y = np.array([[2, 3, 4, 5], [6] + 3 * [IGNORE]])
    each = [evaluate(model, x[i:i + 1], y[i:i + 1], 1) for i in (0, 1)]
    assert each[0] != each[1]
    for batch_size in (1, 2, 3):
        assert np.isclose(evaluate(model, x, y, batch_size), (4 * each[0] + each[1]) / 5)


def test_evaluate_reads_few_windows_at_once_where_the_vocabulary_is_large(monkeypatch):
    model = Transformer(TransformerConfig(9, 4, 1, 1, 8), dtype=np.float64)
    x, y = np.random.default_rng(0).integers(9, size=(2, 7, 4))
    expected = evaluate(model, x, y, 7)
    at_once = []
    monkeypatch.setattr(mg, "cross_entropy", lambda logits, targets, real=mg.cross_entropy, **more:
                        at_once.append(len(targets)) or real(logits, targets, **more))
    for most in (3 * 4 * 9, 1):
        monkeypatch.setattr("model.scoring.LOGITS", most)
        assert np.isclose(evaluate(model, x, y, 5), expected)
    assert at_once == [3, 3, 1] + 7 * [1]


def test_ladder_goes_down_to_the_best_loss():
    lines = ladder(2.0, {"unigram": 3.25, "bigram": 2.5, "trigram": 1.0}).splitlines()
    assert [line.split()[0] for line in lines] == ["3.250", "2.500", "2.000", "1.000"]
    assert lines[2] == "    2.000  this model  <--"
    assert lines[0] == "    3.250  counted unigram"


def test_ladder_has_a_line_for_each_mixture_and_another_name_of_the_model():
    lines = ladder(2.0, {"unigram": 2.5}, "all", {"all, with counts": 1.5}).splitlines()
    assert lines == ["    2.500  counted unigram", "    2.000  all  <--",
                     "    1.500  all, with counts"]


def test_yardstick_counts_on_the_first_text_and_judges_the_second():
    train = np.array([0, 1] * 40)
    val = np.array([0, 0, 1, 1] * 5)
    found = yardstick(train, val, 2)
    other = yardstick(val, train, 2)
    assert list(found) == ["unigram", "bigram", "trigram", "4-gram", "5-gram"]
    assert found["unigram"] < 0.7 < found["bigram"]
    assert found["bigram"] != other["bigram"]


# The proof


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
        return attention(q, k, v, self.mask_of(x))[0]

    def mask_of(self, x):
        n = x.shape[1]
        return None if self.mask is None else self.mask[:n, :n]


def closed(block_size=T):
    """The causal mask for as much of a block as is shown."""
    return causal_mask(min(block_size, LONG), dtype=np.float64)


def test_many_tokens_are_tried_at_as_many_positions_and_few_at_once(monkeypatch):
    tried = []
    model = small(100)

    def counted(ids):
        tried.append(len(ids))
        return model(ids)
    prove_causality(counted, V, 100)
    assert tried == [63, 63, 40, 40]
    monkeypatch.setattr("model.scoring.LOGITS", 10 * SHORT * V)
    prove_causality(counted, V, 100)
    # The sequence as it was is read once for batches of one size; 63 is 7 times 9.
    assert tried[4:] == 8 * [9] + [6] + 5 * [6] + [5] + 2 * [5]
    monkeypatch.setattr("model.scoring.LOGITS", 1)
    prove_causality(counted, V, 3)


def refusal(model, block_size=T):
    """Which position moved, and from where on the input had changed, as the refusal says."""
    said = kit.refusal(CausalityError, prove_causality, model, V, block_size)
    found = re.fullmatch(r"the model sees the future: the logits at position (\d+) changed when "
                         r"only the input from position (\d+) on did; look at its mask", said)
    assert found, said
    position, cut = map(int, found.groups())
    assert 0 <= position < cut < block_size
    return position, cut


@pytest.mark.parametrize("vocab_size, block_size, n_head, n_embd", [
    *pairwise([V], [1, 2, 3, 11, 33, LONG + 1], [1, 4], [4, 100]),
    (65, 64, 4, 128),
    (1, T, 4, 128)])
def test_the_right_model_passes_at_every_size(vocab_size, block_size, n_head, n_embd):
    config = TransformerConfig(vocab_size, block_size, 2, n_head, n_embd)
    prove_causality(Transformer(config), vocab_size, block_size)
    prove_causality(PlainAttention(closed(block_size)), V, block_size)


@pytest.mark.parametrize("position, n_kv_head, parts, dtype", pairwise(
    POSITIONS, [None, 1], [{}, dict(norm="rms", qk_norm=True, activation="relu2", ngrams=3),
                           dict(norm="rms_gain", activation="swiglu", n_inner=9, tied=False)],
    [np.float32, np.float64]))
def test_with_any_option_the_right_model_alone_passes(position, n_kv_head, parts, dtype):
    model = kit.opinionated(TransformerConfig(V, 40, 2, H, 20, bias=True, position=position,
                                              n_kv_head=n_kv_head, **parts), 10, dtype=dtype)
    prove_causality(model, V, 40)
    for block in model.blocks:
        block.attention.__class__ = kit.LeakyAttention
        assert refusal(model, 40) == (0, 1)
        block.attention.__class__ = MultiHeadAttention


@pytest.mark.parametrize("n", [2, 3, T])
def test_one_open_place_in_the_mask_is_refused_and_named(n):
    for t, s in zip(*np.triu_indices(n, 1)):
        mask = causal_mask(n, dtype=np.float64)
        mask[t, s] = 0
        position, cut = refusal(PlainAttention(mask), n)
        assert position == t
        assert t < cut <= s


@pytest.mark.parametrize("s, block_size", [(99, 100), (1500, 5000)])
def test_a_far_leak_into_one_position_of_a_long_sequence_is_refused_and_named(s, block_size):
    mask = closed(block_size)
    mask[2, s] = 0
    position, cut = refusal(PlainAttention(mask), block_size)
    assert position == 2
    assert 2 < cut <= s


@pytest.mark.parametrize("rows", [2, 24, 32])
def test_blocks_of_queries_that_see_to_their_end_are_refused_wherever_they_begin(rows):
    for first in (0, 100, 200):
        mask = closed(500)
        t = np.arange(500)
        to_the_end = t < (t[:, None] // rows + 1) * rows
        mask[(t[:, None] >= first) & to_the_end] = 0
        position, cut = refusal(PlainAttention(mask), block_size=500)
        assert position >= first
        assert cut // rows == position // rows
    mask = closed(500)              # and where the last one of a block sees the next block
    mask[np.arange(rows - 1, 499, rows), np.arange(rows, 500, rows)] = 0
    assert refusal(PlainAttention(mask), block_size=500) == (rows - 1, rows)


@pytest.mark.parametrize("block_size", [2, SHORT, SHORT + 1, 256, LONG, LONG + 1, 100_000])
def test_the_work_of_the_proof_is_bounded_at_every_block_size(block_size):
    shown = []

    def counting(ids):
        shown.append(ids.shape)
        return Tensor(np.zeros((*ids.shape, V)))
    prove_causality(counting, V, block_size)
    assert sum(B * n for B, n in shown) <= 4 * TOKENS
    assert sum(B * n * n for B, n in shown) <= 2 * TOKENS * (LONG + SHORT)      # queries x keys
    assert max(n for _, n in shown) == min(block_size, LONG)
    assert all(B == n - 1 for B, n in shown if n <= SHORT)      # each position has its row


@pytest.mark.parametrize("patience, shown", [(1, False), (0, True)])
def test_the_proof_shows_a_bar_if_it_takes_long_and_takes_it_away(monkeypatch, patience, shown):
    told = kit.Terminal()
    monkeypatch.setattr("model.scoring.tqdm", lambda *args, delay, **settings: tqdm(
        *args, delay=delay * patience, file=told, **settings))
    prove_causality(lambda ids: Tensor(np.zeros((*ids.shape, V))), V, T)
    assert ("proving" in told.getvalue()) == shown
    assert not told.getvalue().rpartition("\r")[2].strip() and "\n" not in told.getvalue()


def leak(change):
    """Plain attention whose `mix` is another function of itself and x, (B, T, C)."""
    return type("Leak", (PlainAttention,), {"mix": change})


def mix_up_time_and_heads(self, x):
    heads = x.reshape(len(x), H, -1, C // H)            # where a swap of axes is missing
    return attention(heads, heads, heads, self.mask_of(x))[0].swapaxes(1, 2).reshape(*x.shape)


class Narrow(PlainAttention):
    def __call__(self, ids):
        return super().__call__(ids) + 1e-9 * np.eye(V)[3] * np.roll(ids, -1, axis=1)[..., None]


class Shifted(PlainAttention):
    def embed(self, ids):
        return super().embed(np.roll(ids, -1, axis=-1))


def last_into(position, self, x):
    return PlainAttention.mix(self, x) + np.eye(x.shape[1])[position][:, None] * x[:, -1:]


right = PlainAttention.mix
LEAKS = {
    "the mean over time": leak(lambda self, x: right(self, x) + 1e-3 * x.mean(1, keepdims=True)),
    "norms over time": leak(lambda self, x: right(
        self, mg.layer_norm(x.swapaxes(1, 2)).swapaxes(1, 2))),
    "one logit": Narrow, "targets as input": Shifted,
    "the last position into the first": leak(lambda self, x: last_into(0, self, x)),
    "the last position into the one before": leak(lambda self, x: last_into(-2, self, x)),
    "time read as the batch": leak(lambda self, x: right(
        self, x.swapaxes(0, 1).reshape(*x.shape))),
    "time read as heads": leak(mix_up_time_and_heads),
    "no mask": lambda mask: PlainAttention(None),
    "a mask off by one": lambda mask: PlainAttention(np.where(np.tri(len(mask), k=1) > 0, 0, mask)),
    "an almost closed mask": lambda mask: PlainAttention(np.where(mask < 0, -20.0, 0)),
    "a transposed mask": lambda mask: PlainAttention(mask.T)}


@at_short_and_long_blocks
@pytest.mark.parametrize("name", LEAKS)
def test_a_planted_leak_is_refused_and_its_position_named(name, block_size):
    position, cut = refusal(LEAKS[name](closed(block_size)), block_size)
    last = min(block_size, SHORT) - 1
    if name == "the last position into the one before":
        assert (position, cut) == (last - 1, last)
    elif name != "time read as the batch":
        assert position == 0 and (cut == 1 or name == "the last position into the first")


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_model_without_finite_logits_proves_nothing(number):
    with pytest.raises(CausalityError, match="^nothing can be proven of a model whose logits are"):
        prove_causality(lambda ids: Tensor(np.full((*ids.shape, V), number)), V, T)


@pytest.mark.parametrize("vocab_size, block_size", [(5, 1), (1, 8), (5, 2), (5, 64), (40, 90)])
@pytest.mark.parametrize("at_once", [1 << 23, 9000])
def test_count_proof_ids_are_those_that_the_model_reads(vocab_size, block_size, at_once,
                                                        monkeypatch):
    monkeypatch.setattr("model.scoring.LOGITS", at_once)
    read = []

    def model(ids):
        read.append(ids.size)
        return mg.Tensor(np.zeros((*ids.shape, 1)))
    prove_causality(model, vocab_size, block_size)
    assert count_proof_ids(vocab_size, block_size) == sum(read)
    assert bool(read) == (vocab_size > 1 and block_size > 1)


def test_the_proof_records_nothing_and_leaves_no_trace():
    model = small(dropout=0.5)
    recorded = []
    before = model.state_dict()

    def watched(ids):
        logits = model(ids)
        recorded.append(logits.requires_grad)
        return logits
    prove_causality(watched, V, T)
    assert recorded
    assert not any(recorded)
    assert all(np.array_equal(p.data, before[path]) and p.grad is None
               for path, p in model.named_parameters())
    refusal(PlainAttention(None))
    assert small()(np.zeros((1, T), int)).requires_grad     # and after a refusal too
