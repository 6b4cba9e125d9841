"""A test without its extra is skipped with a line that names it; a required extra must be there."""
import configparser

import pytest

import conftest
from tests import extras
from tests.kit import ROOT

NOT_THERE = "no_such_module"
LINE = f"needs '.[board]': there is no {NOT_THERE}"


def test_each_extra_of_tests_is_one_of_setup_cfg_and_begins_with_its_library():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    for extra, needed in extras.NEEDED.items():
        assert needed[0] in settings["options.extras_require"][extra], extra


@pytest.mark.parametrize("needed, line", [
    (["pytest"], ""), (["pytest", NOT_THERE], LINE),
    ([NOT_THERE, "nor_it"], f"{LINE} and no nor_it")])
def test_one_line_names_the_extra_and_what_is_not_there(monkeypatch, needed, line):
    monkeypatch.setitem(extras.NEEDED, "board", needed)
    assert extras.lacking("board") == line


def test_what_needs_an_absent_extra_is_skipped(monkeypatch, request):
    monkeypatch.setitem(extras.NEEDED, "board", [NOT_THERE])
    request.node.add_marker(pytest.mark.needs("board"))
    conftest.pytest_collection_modifyitems([request.node])
    assert request.node.get_closest_marker("skipif") == pytest.mark.skipif(True, reason=LINE).mark


def test_an_absent_extra_that_is_required_is_an_error(monkeypatch, request):
    monkeypatch.setitem(extras.NEEDED, "board", [NOT_THERE])
    monkeypatch.setenv("REQUIRE_EXTRAS", "mpi,board")
    monkeypatch.setitem(extras.NEEDED, "mpi", [])
    with pytest.raises(pytest.UsageError) as caught:
        conftest.pytest_configure(request.config)
    assert str(caught.value) == f"REQUIRE_EXTRAS: {LINE}"
