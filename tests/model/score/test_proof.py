"""The proof of a score: what is not a probability must not pass."""
import re
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas
from model import CharTokenizer, Transformer, TransformerConfig
from model.score import proof, text, windows
from model.generation import USELESS
from model.score.proof import Decoder, ProofError, encode, prove
from tests.kit import LeakyAttention, refusal

pytestmark = pytest.mark.late
V = 11
TOKENIZER = CharTokenizer("abcdefghijk")
IDS = np.random.default_rng(1).integers(V, size=90)


@pytest.fixture
def model():
    made = Transformer(TransformerConfig(V, 16, n_layer=1, n_head=2, n_embd=8, ngrams=3,
                                         ngram_rows=50))
    for p in made.parameters():
        p.data *= 20 if p.ndim > 1 else 1       # so that its predictions differ from each other
    return made


def nats(model, slide=False):
    return text.text_losses(model, IDS, slide).sum()


def refused(model):
    """What the proof says against a model."""
    return refusal(ProofError, prove, model, TOKENIZER, IDS, nats(model))


@pytest.mark.parametrize("slide", [False, True])
def test_the_text_is_restored_from_as_many_bits_as_the_loss_says(model, slide):
    said = prove(model, TOKENIZER, IDS, nats(model, slide), slide)
    assert "at 89 positions" in said
    assert "sum to 1, within" in said
    assert f"the loss says {nats(model, slide) / np.log(2):,.1f} bits" in said
    assert mg.sum(model.token_embedding.weight).requires_grad       # ops are recorded again


@pytest.mark.parametrize("share", [0.95, 1.05, np.nan])
def test_a_loss_that_is_not_that_of_the_probabilities_is_refused(model, share):
    with pytest.raises(ProofError, match="the loss says .* bits, and the text takes"):
        prove(model, TOKENIZER, IDS, share * nats(model))


@pytest.mark.parametrize("error, said", [(0.01, "0.01"), (-0.01, "0.01"), (np.nan, "nan")])
def test_probabilities_that_do_not_sum_to_1_are_refused(model, monkeypatch, error, said):
    def wrong(model, x):
        for part, logp in windows.log_probabilities(model, x):
            logp[0, -1] += np.float32(error)        # at one position, which nothing follows
            yield part, logp
    monkeypatch.setattr(proof, "log_probabilities", wrong)
    assert f"do not sum to 1, but differ by {said}" in refused(model)


def test_a_reader_whose_logits_are_nan_is_refused(model, monkeypatch):
    monkeypatch.setattr(proof.Reader, "logits", lambda reader: np.full((1, V), np.nan))
    assert refused(model) == USELESS


def test_a_leak_of_the_next_id_is_named_by_the_place_where_the_change_began(model, monkeypatch):
    def leaking(_, x):
        of_next = np.append(x[:, 1:], np.zeros_like(x[:, :1]), axis=1) / 100
        p = np.full((*x.shape, V), 1 / V)
        p[..., 0] *= 1 + of_next
        p[..., 1] *= 1 - of_next
        yield slice(0, x.shape[1]), np.log(p)
    monkeypatch.setattr(proof, "log_probabilities", leaking)
    said = refusal(ProofError, proof.check_windows, model, IDS)
    found = re.fullmatch(r"the probabilities of id (\d+) changed when only the ids from number "
                         r"(\d+) on did: the model sees the future", said)
    assert found[1] == found[2]


def test_attention_that_sees_the_future_is_refused(model):
    model.blocks[0].attention.__class__ = LeakyAttention
    assert "the model sees the future" in refused(model)


def test_an_n_gram_that_sees_the_next_character_is_refused(model, monkeypatch):
    rows = formulas.ngram_rows
    monkeypatch.setattr(formulas, "ngram_rows", lambda ids, *of_table: rows(
        np.roll(ids, -1, axis=-1), *of_table))
    said = refused(model)
    assert "the model sees the future" in said
    changed, first = map(int, re.findall(r"(?:of id|from number) (\d+)", said))
    assert changed == first         # it is that very character


class Peeking:
    """Foretells one of two ids by the last one of its window, at the position before that."""

    def __init__(self, block_size):
        self.config = SimpleNamespace(block_size=block_size, vocab_size=2)

    def log_probabilities(self, ids):
        logp = np.full((*ids.shape, 2), np.log(0.5))
        if ids.shape[1] > 1:
            logp[:, -2] = np.log(np.where(ids[:, -1:], [0.4, 0.6], [0.6, 0.4]))
        yield slice(0, ids.shape[1]), logp


def test_check_windows_also_changes_the_last_id_of_a_window_alone():
    ids = np.random.default_rng(0).integers(2, size=40)
    for block_size in (2, 3, 4):
        said = refusal(ProofError, proof.check_windows, Peeking(block_size), ids)
        assert "the model sees the future" in said
    windows, error = proof.check_windows(Peeking(1), ids)
    assert windows == 39 and error < 1e-15


def test_a_model_that_keeps_the_text_that_it_scores_is_not_restored(model, monkeypatch):
    """Counts over the text that is scored pass every other check: they see no changed future."""
    logits = proof.Reader.logits
    calls = []

    def peeking(reader):
        found = logits(reader).copy()
        if len(calls) < len(IDS) - 1:           # only while the text is known
            found[0, IDS[reader.n]] += 5
        calls.append(reader)
        return found
    monkeypatch.setattr(proof.Reader, "logits", peeking)
    monkeypatch.setattr(proof, "CODED", 1.0)
    assert "the compressed text is not restored" in refused(model)


@pytest.mark.parametrize("likely", [1 / V, 0.5, 1 - 1e-12])
def test_the_arithmetic_coder_restores_ids_of_any_probability(likely):
    rng = np.random.default_rng(0)
    parts = np.full(V, max(1, int(proof.WHOLE * (1 - likely) / (V - 1))))
    parts[4] = int(proof.WHOLE * likely)
    ids = [4, 4, 0, 4, V - 1, 4, 4, *rng.integers(V, size=300).tolist(), 4]
    bits = encode(ids, [parts] * len(ids))
    decoder = Decoder(bits)
    assert [decoder.next(parts) for _ in ids] == ids
    ideal = -np.log2(parts[ids] / parts.sum()).sum()
    assert ideal <= len(bits) <= ideal + 3


def test_an_id_that_the_model_rules_out_is_coded_too():
    parts = proof.whole_parts(np.array([0, -40, 1], np.float32))
    bits = encode([0, 1, 2], [parts] * 3)
    decoder = Decoder(bits)
    assert [decoder.next(parts) for _ in range(3)] == [0, 1, 2]
    assert len(bits) == 43 and parts[1] == 1        # of 2 ** 40


def test_every_bit_of_the_code_matters():
    parts = np.full(V, proof.WHOLE // V)
    ids = IDS[:40].tolist()
    bits = encode(ids, [parts] * len(ids))
    for i in range(len(bits) - 2):
        decoder = Decoder([*bits[:i], 1 - bits[i], *bits[i + 1:]])
        assert [decoder.next(parts) for _ in ids] != ids
