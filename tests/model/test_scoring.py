"""The loss over windows: of each target once."""
import numpy as np

import data
from data import IGNORE
from model import Transformer, TransformerConfig
from model.scoring import evaluate, ladder, yardstick


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
    x, y = np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), np.array([[2, 3, 4, 5], [6] + 3 * [IGNORE]])
    each = [evaluate(model, x[i:i + 1], y[i:i + 1], 1) for i in (0, 1)]
    assert each[0] != each[1]
    for batch_size in (1, 2, 3):
        assert np.isclose(evaluate(model, x, y, batch_size), (4 * each[0] + each[1]) / 5)


def test_ladder_goes_down_to_the_best_loss():
    lines = ladder(2.0, {"unigram": 3.25, "bigram": 2.5, "trigram": 1.0}).splitlines()
    assert [line.split()[0] for line in lines] == ["3.250", "2.500", "2.000", "1.000"]
    assert lines[2] == "    2.000  this model  <--" and lines[0] == "    3.250  counted unigram"


def test_yardstick_counts_on_the_first_text_and_judges_the_second():
    train, val = np.array([0, 1] * 40), np.array([0, 0, 1, 1] * 5)
    found, other = yardstick(train, val, 2), yardstick(val, train, 2)
    assert list(found) == ["unigram", "bigram", "trigram", "4-gram", "5-gram"]
    assert found["unigram"] < 0.7 < found["bigram"] and found["bigram"] != other["bigram"]
