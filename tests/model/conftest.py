"""What the tests of models share: two models, one browser, and a full disk."""
import pytest

from model import Transformer, TransformerConfig, load_checkpoint, save_checkpoint
from model.convert.tokens import TokenTokenizer
from tests import browser
from tests.token_files import byte_fallback, byte_level


@pytest.fixture(scope="session")
def driver():
    with browser.browser() as driver:
        yield driver


@pytest.fixture
def full_disk(monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr("os.fsync", full)


@pytest.fixture
def best(trained):
    """The best model of the run of `trained`, and its tokenizer."""
    return load_checkpoint(trained / "ckpt.npz")[:2]


@pytest.fixture(params=[byte_level, byte_fallback], ids=["byte level", "byte fallback"])
def of_tokens(request, tmp_path):
    """A folder with a model of tokens, which has not been trained."""
    tokenizer = TokenTokenizer(request.param(), None, 300)
    model = Transformer(TransformerConfig(300, 32, n_layer=1, n_head=2, n_embd=16))
    model.token_embedding.weight.data *= 40
    save_checkpoint(tmp_path / "ckpt.npz", model, tokenizer)
    return tmp_path
