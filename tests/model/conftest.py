"""What the tests of the pages share: one browser."""
import pytest

from tests import browser


@pytest.fixture(scope="session")
def driver():
    with browser.browser() as driver:
        yield driver
