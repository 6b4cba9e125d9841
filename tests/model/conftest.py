"""What the tests of the pages share: one browser."""
import os

import pytest

from tests import browser


@pytest.fixture(scope="session")
def driver():
    """Skips where there is no Chromium, or no selenium; with REQUIRE_BROWSER set it fails."""
    if lacking := browser.missing():
        (pytest.fail if os.environ.get("REQUIRE_BROWSER") else pytest.skip)(lacking)
    with browser.browser() as driver:
        yield driver
