"""The trial of the last exercise: it proves causality, trains, and says how low the loss got."""
import numpy as np
import pytest

import minigrad as mg
from model.walk import trial
from model.walk.exercises.e8_model import model


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, size in dict(B=2, T=8, C=8, H=2, BLOCKS=1, WINDOWS=4, STEPS=6, EVERY=2,
                           SAMPLE=5).items():
        monkeypatch.setattr(trial, name, size)


def counted(monkeypatch, *losses):
    monkeypatch.setattr(trial, "ngram_losses", lambda *args: list(losses))


def test_a_model_below_both_counts_is_right_and_writes(monkeypatch):
    counted(monkeypatch, 9.0, 9.0, 8.0)
    told = []
    right, said = trial.run(model, told.append)
    assert told == [f"step 2 of 6: loss {said[1].partition(': loss ')[2][:5]}"]
    assert right and said[0].startswith("The model is causal")
    assert "step 2: loss 5." in said[1] and said[1].endswith("below the counted bigram (9.000).")
    assert said[2].endswith("below the counted trigram (8.000).")
    assert said[3].startswith("It writes:\n    ")


@pytest.mark.parametrize("bigram, seconds, step, says", [
    (6.0, 60, 6, "not below the counted trigram.  The values are right"),
    (0.2, 0, 2, "not below the counted bigram and trigram.  The computer is slow, or a loop")])
def test_a_model_that_stays_above_is_not_right_and_its_training_ends(bigram, seconds, step, says,
                                                                     monkeypatch):
    counted(monkeypatch, 6.0, bigram, 0.1)
    monkeypatch.setattr(trial, "SECONDS", seconds)
    right, said = trial.run(model, str)
    assert not right and f"step {step} of 6, the loss is " in said[-1] and says in said[-1]


def test_a_model_that_sees_the_future_is_not_trained():
    def seeing(ids, w, heads):
        return model(ids, w, heads) + w["tokens"][ids][..., ::-1, :].mean(axis=-1, keepdims=True)
    right, said = trial.run(seeing, str)
    assert not right and len(said) == 1 and "the model sees the future" in said[0]


def test_words_pass_nothing_on_at_the_beginning_and_do_in_the_proof():
    rng = np.random.default_rng(0)
    ids = np.array([1, 0, 2])
    drawn = trial.e8_model.weights(rng, 3, 8, 8, 1)

    def moved(mixing):
        w, parameters = trial.tensors(drawn, mixing)
        assert all(isinstance(p, mg.Tensor) and p.dtype == np.float32 for p in parameters)
        return (model(ids, w, 2).data != model(np.array([2, 0, 2]), w, 2).data).any(axis=-1)
    assert moved(0.0).tolist() == [True, False, False]
    assert moved(1.0).tolist() == [True, True, True]


def test_training_makes_the_loss_smaller(monkeypatch):
    for name, size in dict(B=8, WINDOWS=16, STEPS=60, EVERY=10).items():
        monkeypatch.setattr(trial, name, size)
    counted(monkeypatch, 6.0, 3.8, 3.4)
    assert trial.run(model, str)[0]
