"""What to do about an error of the system, whatever the system."""
import errno
import os

import pytest

from data.errors import REMEDIES, remedy


def raised(do):
    with pytest.raises(OSError) as caught:
        do()
    return remedy(caught.value, "give another")


@pytest.mark.skipif(os.name == "nt", reason="Windows has other numbers for some")
def test_the_remedy_is_that_of_the_cause(tmp_path):
    (tmp_path / "file").touch()
    assert raised(lambda: open(tmp_path / "no" / "x", "w")) == (
        "make its folder first, or give another")
    assert raised(lambda: open(tmp_path, "w")) == (
        "remove the folder that has its name, or give another")
    for under_file in (lambda: open(tmp_path / "file" / "x", "w"), (tmp_path / "file").mkdir):
        assert raised(under_file) == "remove the file that has its folder's name, or give another"
    assert raised(lambda: open(tmp_path / ("x" * 1000), "w")) == (
        "take a shorter name, or give another")
    for number, do in ((errno.ENOSPC, "make room"), (errno.EROFS, "have its disk made writable"),
                       (errno.EACCES, "have its rights or its folder's changed")):
        assert remedy(OSError(number, ""), "give another") == f"{do}, or give another"


def test_where_the_cause_is_not_known_something_else_is_to_be_taken():
    assert remedy(OSError(errno.EDOM, ""), "give another") == "give another"
    assert remedy(OSError("of no number"), "give another") == "give another"


def test_no_cause_has_two_remedies():
    names = " ".join(REMEDIES.values()).split()
    assert len(set(names)) == len(names) and all(name.startswith("E") for name in names)
