"""A folder of kernels for a test."""
import pytest

from minigrad.kernels.compiler import cache, compiling


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Where kernels are kept in this test, of which none is on disk; compiling is announced."""
    monkeypatch.setattr(cache, "places", lambda: [tmp_path])
    monkeypatch.setattr(cache, "removed", [])
    monkeypatch.setattr(compiling, "KERNELS", {})
    compiling.announce("compiling")
    return cache.cache_folder()
