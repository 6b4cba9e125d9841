"""How much memory a process may use: what each limit says, and the least of them."""
import math
import os

import pytest

from minigrad import machine
from minigrad.machine import check_fits, memory_limit
from tests.kit import refusal


@pytest.fixture
def nowhere(tmp_path):
    """Where no control group is."""
    return tmp_path / "groups", tmp_path


def test_it_is_what_the_machine_has_where_nothing_less_is_allowed(nowhere):
    assert 1e8 < memory_limit() <= memory_limit(*nowhere) < 1e14
    if os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo") as file:
            assert memory_limit(*nowhere) == 1024 * int(file.readline().split()[1])


@pytest.mark.parametrize("says, limit", [("1048576\n", 2.0 ** 20), ("max\n", math.inf),
                                         ("9223372036854771712\n", math.inf), (None, math.inf)])
@pytest.mark.parametrize("groups, file", [
    ("0::/\n", "memory.max"), ("0::/a/b\n", "a/b/memory.max"), ("0::/a/b\n", "a/memory.max"),
    ("4:memory:/a\n0::/\n", "memory/a/memory.limit_in_bytes")])
def test_a_control_group_is_believed(nowhere, tmp_path, groups, file, says, limit):
    whole = memory_limit(*nowhere)
    (tmp_path / "groups").write_text(groups)
    if says is not None:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(says)
    assert memory_limit(*nowhere) == min(limit, whole)


@pytest.mark.skipif(os.name == "nt", reason="there are no limits of a process")
@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_of_the_process_is_believed(nowhere, monkeypatch, name):
    import resource
    usual = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda asked: (
        (100 << 20, resource.RLIM_INFINITY) if asked == getattr(resource, name) else usual(asked)))
    assert memory_limit(*nowhere) == 100 << 20


@pytest.mark.skipif(os.name == "nt", reason="it has another way")
def test_a_system_that_does_not_say_what_it_has_limits_nothing(nowhere, monkeypatch):
    def sysconf(name):
        raise ValueError("unrecognized configuration name")
    monkeypatch.setattr(os, "sysconf", sysconf)
    assert memory_limit(*nowhere) == math.inf


def test_check_fits_compares_with_what_the_machine_has(monkeypatch):
    monkeypatch.setattr(machine, "memory_limit", lambda: 1e9)
    check_fits(1e9, "these")
    assert refusal(ValueError, check_fits, 2e9, "these", "do that") == (
        "these need 2.000 GB of memory, and this machine has 1.000 GB; do that")
