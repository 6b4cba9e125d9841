"""What the tests of the pages share: one browser, and a full disk."""
import pytest

from tests import browser


@pytest.fixture(scope="session")
def driver():
    with browser.browser() as driver:
        yield driver


@pytest.fixture
def full_disk(monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr("os.fsync", full)
