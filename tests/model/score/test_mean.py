"""The mean of several models' probabilities."""
import dataclasses

import numpy as np
import pytest

import minigrad as mg
from model import Transformer, TransformerConfig, load_checkpoint, sample, save_checkpoint
from model.score.mean import Ensemble, average_checkpoints, log_mean
from model.score.text import text_losses
from tests.kit import refusal, written

pytestmark = pytest.mark.late
SHAKEN = 1.5


@pytest.fixture
def two(trained):
    """A trained model and another one, with a shorter block and other weights."""
    first, *_ = load_checkpoint(trained / "ckpt.npz")
    second = Transformer(dataclasses.replace(first.config, block_size=9), seed=5)
    for p in second.parameters():
        p.data *= SHAKEN
    return first, second


def probabilities(model, ids):
    with mg.no_grad():
        return mg.softmax(model(ids)).data.astype(np.float64)


def test_its_probabilities_are_the_mean_of_its_models_probabilities(two):
    ids = np.array([[1, 4, 2, 3, 0, 1, 2, 7, 5]])
    mean = (probabilities(two[0], ids) + probabilities(two[1], ids)) / 2
    assert abs(probabilities(Ensemble(two), ids) - mean).max() < 1e-6


def test_its_blocks_are_the_shortest(two):
    assert Ensemble(two).config.block_size == Ensemble(two[::-1]).config.block_size == 9


@pytest.mark.parametrize("logs, mean", [
    ([-2000, -2000], -2000), ([-np.log(2), -3000], -np.log(4)),
    *((np.log(p), np.log(np.mean(p))) for p in ([0.3], [0.1, 0.2, 0.6], [0.1, 0.2, 0.3, 0.8]))])
def test_log_mean_divides_by_the_number_of_models_and_does_not_underflow(logs, mean):
    assert np.allclose(log_mean([np.array([log]) for log in logs]), mean, rtol=1e-12)


def test_a_text_is_scored_by_the_mean_of_the_probabilities(two):
    ids = np.random.default_rng(3).integers(0, 9, 30)
    short = Transformer(two[1].config)
    state = two[0].state_dict()
    state["position_embedding.weight"] = state["position_embedding.weight"][:9]
    short.load_state_dict(state)
    each = [np.exp(-text_losses(model, ids)) for model in (short, two[1])]
    assert np.allclose(text_losses(Ensemble([short, two[1]]), ids), -np.log(sum(each) / 2),
                       atol=1e-5)


def test_one_model_twice_writes_what_it_writes_alone(trained, capsys):
    texts = []
    for folders in ([trained], [trained, trained]):
        sample.main(["--out_dir", *map(str, folders), "--start", "a", "--max_new_tokens", "40"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and len(texts[0]) == 42


def test_another_vocabulary_is_refused_by_name(trained, tmp_path):
    first = load_checkpoint(trained / "ckpt.npz")
    path = tmp_path / "ckpt.npz"
    tokenizer = type(first.tokenizer)("other letters")
    save_checkpoint(path, Transformer(TransformerConfig(tokenizer.vocab_size, 4, 1, 1, 4)),
                    tokenizer)
    message = refusal(ValueError, average_checkpoints, first, [path])
    assert f"{path} has another vocabulary" in message


def test_ngrams_are_counted_only_if_all_were_trained_on_one_text(trained, tmp_path):
    first = load_checkpoint(trained / "ckpt.npz")
    assert average_checkpoints(first, [trained / "ckpt.npz"]).training == first.training
    path = tmp_path / "ckpt.npz"
    save_checkpoint(path, first.model, first.tokenizer, first.training | {"text": "another"})
    assert average_checkpoints(first, [path]).training == {}


def test_its_score_is_proven_to_be_one_of_probabilities(trained, tmp_path, capsys):
    path = written(tmp_path / "t.txt", "the quick brown fox runs over the green wood")
    sample.main(["--out_dir", str(trained), str(trained), "--score", str(path), "--prove"])
    assert "the proof:" in capsys.readouterr().out
