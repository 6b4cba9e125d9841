"""The source distribution: it holds every file, so that its tests run."""
import pathlib
import subprocess

import pytest

from tests.kit import ROOT, python

# setuptools lists the files of a source distribution when it describes the package.
LISTING = ("import setuptools, sys; sys.argv[1:] = ['-q', 'egg_info', '-e', sys.argv[1]]; "
           "setuptools.setup()")


def test_the_source_distribution_holds_all_files_that_are_checked_in(tmp_path):
    pytest.importorskip("setuptools")
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone of the repository")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.splitlines()
    ended = python("-c", LISTING, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    sources = (tmp_path / "minigrad.egg-info" / "SOURCES.txt").read_text(encoding="utf-8")
    taken = {pathlib.Path(name).as_posix() for name in sources.splitlines()}
    wanted = {name for name in listed if not name.startswith(".")}      # those of git and .ci
    assert len(wanted) > 100 and wanted - taken == set()
