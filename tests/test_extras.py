"""The extras that tests need are those of setup.cfg, and a required one must be there."""
import configparser

import pytest

import conftest
from tests import extras
from tests.kit import ROOT, refusal


def test_each_extra_of_tests_is_one_of_setup_cfg_and_begins_with_its_library():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    for extra, needed in extras.NEEDED.items():
        assert needed[0] in settings["options.extras_require"][extra], extra


def test_an_absent_extra_that_is_required_is_an_error(monkeypatch, request):
    monkeypatch.setitem(extras.NEEDED, "mpi", ["pytest"])
    monkeypatch.setitem(extras.NEEDED, "board", ["pytest", "no_such_module", "nor_it"])
    monkeypatch.setenv("REQUIRE_EXTRAS", "mpi,board")
    assert refusal(pytest.UsageError, conftest.pytest_configure, request.config) == (
        "REQUIRE_EXTRAS: needs '.[board]': there is no no_such_module and no nor_it")
