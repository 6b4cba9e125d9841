"""The loss over windows: of each target once."""
import numpy as np

import data
from data import IGNORE
from model import Transformer, TransformerConfig
from model.scoring import evaluate


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
