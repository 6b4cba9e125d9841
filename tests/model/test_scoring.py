"""The loss of a text: each character's, from the window that sampling would predict it from."""
import tracemalloc

import numpy as np
import pytest

import data
from data import IGNORE
from model import CharTokenizer, Transformer, TransformerConfig
from model.generation import Reader
from model.score.text import text_losses, training_text
from model.scoring import evaluate


def losses_one_by_one(model, ids, slide):
    """What sampling gives each character, as it would come to it."""
    reader, losses = Reader(model, ids[None, :1], slide=slide), []
    for x in ids[1:]:
        logits = reader.logits()[0].astype(np.float64)
        losses.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[x])
        reader.append(np.array([[x]]))
    return np.array(losses)


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize("block", [1, 2, 5, 8])
def test_losses_are_those_that_sampling_would_have_one_by_one(block, slide, monkeypatch):
    model = Transformer(TransformerConfig(13, block, n_layer=1, n_head=2, n_embd=8))
    for p in model.parameters():
        p.data *= 20 if p.ndim > 1 else 1
    for N in (2, 3, block + 1, block + 2, 2 * block + 1, 50):
        ids = np.random.default_rng(N).integers(13, size=N)
        losses = text_losses(model, ids, slide)
        assert losses.shape == (N - 1,) and losses.dtype == np.float64
        assert np.allclose(losses, losses_one_by_one(model, ids, slide), atol=1e-4)
    for few in ("AT_ONCE", "LOGITS"):       # windows that go through at once
        monkeypatch.setattr(f"model.score.text.{few}", 1)
        assert np.allclose(text_losses(model, ids, slide), losses, atol=1e-6)


def test_many_tokens_take_no_more_memory_than_few(monkeypatch):
    model, most = Transformer(TransformerConfig(50_000, 64, n_layer=1, n_head=1, n_embd=2)), []
    ids = np.random.default_rng(0).integers(50_000, size=300)
    for logits in (1 << 18, 1 << 24):
        monkeypatch.setattr("model.score.text.LOGITS", logits)
        tracemalloc.start()
        text_losses(model, ids)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] > 4 * most[0]


def test_the_text_of_a_run_comes_back_with_the_ids_of_its_model(small_text):
    text = data.Text.read(str(small_text))
    training = {"settings": {"data": text.name}, "text": text.digest}
    tokenizer = CharTokenizer.of(text.tokenizer.vocabulary[::-1])
    known = training_text(training, tokenizer)
    assert known.tokenizer is tokenizer
    assert np.array_equal(known.train, tokenizer.vocab_size - 1 - text.train)
    with pytest.raises(ValueError, match="is no longer the one that the model was trained on"):
        training_text(training | {"text": ""}, CharTokenizer("a"))


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
