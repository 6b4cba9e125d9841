"""The other side of `python -m tests.benchmarks real`: transformers, with the model of a
checkpoint."""
import numpy as np
import pytest

from model.convert.tokens import TokenTokenizer
from model import Transformer, TransformerConfig, save_checkpoint
from model.kv_cache.decoder import Decoder
from tests.token_files import of_words

pytestmark = [pytest.mark.needs("interop"), pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("options", [
    dict(position="rotary", norm="rms_gain", activation="swiglu", n_kv_head=1, rotary_base=50.0),
    dict(bias=True, activation="gelu_tanh")], ids=["Llama", "GPT-2"])
def test_the_other_side_has_the_same_model_and_draws_on_after_the_end_of_a_text(options, tmp_path):
    from tests.benchmarks.remote import transformers
    model = Transformer(TransformerConfig(2, 64, 2, 2, 8, **options))
    for p in model.parameters():
        p.data += 0.3 * np.random.default_rng(0).standard_normal(p.shape, np.float32)
    save_checkpoint(tmp_path / "ckpt.npz", model, TokenTokenizer(of_words("?", "a"), end=0))
    ids = np.array([[1, 0, 1, 1, 0]])
    other = transformers(tmp_path / "ckpt.npz")
    try:
        assert np.allclose(other.call("logits", ids), Decoder(model).read(ids), atol=1e-5)
        assert other.call("generate", ids, 40).shape == (1, 45)
    finally:
        other.close()
