"""The KV cache in plain NumPy gives what the model gives, and reads each character once."""
import functools
import operator

import numpy as np
import pytest

from minigrad import random
from model import Transformer, TransformerConfig
from model.attention import MultiHeadAttention
from model.cache import Drawing, KVCache
from model.config import ACTIVATIONS, NORMS, POSITIONS
from model.generation import Reader
from model.variants.alibi import AlibiAttention
from tests import kit, plain
from tests.kit import refusal
from tests.pairwise import pairwise

pytestmark = pytest.mark.late
USUAL = dict(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16)
PARTS = pairwise([dict(position=position) for position in POSITIONS],
                 [dict(norm=norm) for norm in NORMS],
                 [dict(activation=activation) for activation in ACTIVATIONS],
                 [dict(n_kv_head=1), dict(qk_norm=True), dict(bias=True, tied=False),
                  dict(qk_norm=True, qk_gain=True, head_dim=6)],
                 [dict(ngrams=3, ngram_rows=7), dict(rotary_base=100.0)])
OPTIONS = [functools.reduce(operator.or_, parts, {}) for parts in PARTS]


@pytest.fixture(autouse=True)
def in_plain_numpy(monkeypatch):
    plain.use(monkeypatch)
    monkeypatch.setattr("minigrad.COMPILED", False)


def model_with(dtype=np.float64, **options):
    return kit.opinionated(TransformerConfig(**USUAL | options), 8, 0, dtype)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_cached_logits_are_those_of_the_window_at_every_length(options):
    model = model_with(**options)
    ids = np.random.default_rng(1).integers(11, size=(3, 8))
    one_by_one = KVCache(model, 3)
    in_pieces = KVCache(model, 3)
    for after, T in ((0, 3), (3, 1), (4, 3)):
        end = after + T
        expected = model(ids[:, :end]).data[:, -1]
        assert np.allclose(in_pieces.read(ids[:, after:end], after), expected, rtol=0, atol=1e-12)
        for t in range(after, end):
            logits = one_by_one.read(ids[:, t:t + 1], t)
        assert np.allclose(logits, expected, rtol=0, atol=1e-12)
    # Begun again after fewer characters than were read, as when a window moves.
    others = ids[:, ::-1]
    expected = model(np.concatenate([ids[:, :2], others[:, :4]], axis=1)).data[:, -1]
    assert np.allclose(in_pieces.read(others[:, :4], 2), expected, rtol=0, atol=1e-12)


def test_a_character_more_costs_one_position(monkeypatch):
    model = model_with()
    lengths = []
    project = MultiHeadAttention.project
    monkeypatch.setattr(MultiHeadAttention, "project", lambda self, x, first: (
        lengths.append(x.shape[1]), project(self, x, first))[1])
    reader = Reader(model, np.zeros((1, 5), int))
    for _ in range(3):
        reader.logits()
        reader.append(np.ones((1, 1), int))
    assert lengths == [5, 5, 1, 1, 1, 1]        # in both blocks


def test_draw_gives_the_ids_that_are_drawn_one_by_one_from_the_model():
    model = model_with()
    ids = np.random.default_rng(1).integers(11, size=(2, 4))
    u = np.random.default_rng(2).random((2, 3))
    drawn = KVCache(model, 2).draw(ids, 0, u, Drawing(0.8, 5, 0.9))
    window = ids
    for column in u.T:
        chosen, _ = random.draw(model(window).data[:, -1], column, 0.8, 5, 0.9)
        window = np.concatenate([window, chosen[:, None]], axis=1)
    assert np.array_equal(drawn, window[:, 4:])


def test_read_refuses_what_is_no_window():
    cache = KVCache(model_with())
    cache.read(np.zeros((1, 3), int))
    for after, T, length in ((4, 1, 3), (3, 6, 3)):
        assert (f"after {after} of {length} characters that were read, {T} more are no window of "
                "at most 8") in refusal(ValueError, cache.read, np.zeros((1, T), int), after)


def test_a_layer_whose_keys_and_values_it_does_not_know_is_refused():
    model = Transformer(TransformerConfig(**USUAL))
    model.blocks[1].attention = AlibiAttention(16, 16, 2)
    said = refusal(ValueError, KVCache, model)
    assert said == ("the KV cache does not know AlibiAttention; sample with cache=False "
                    "(--no-cache)")
