"""Fixtures of the tests that type into the page of a model."""
import pytest

from model import load_checkpoint
from tests.model.look.pages import opened_page


@pytest.fixture(scope="module")
def run(trained):
    """The checkpoint of a trained model."""
    return load_checkpoint(trained / "ckpt.npz")


@pytest.fixture
def page(driver, run, tmp_path):
    """The page of that model, which reads 16 characters at once."""
    return opened_page(driver, tmp_path, *run[:2], "the quick brown", run.training)
