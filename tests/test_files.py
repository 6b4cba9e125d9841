"""Files that are written whole or not at all."""
import os

import pytest

from model.files import replacing


def test_a_file_takes_the_place_of_the_old_one_when_it_is_written(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(28, "No space")])
def test_whatever_happens_the_old_file_is_whole_and_nothing_else_is_left(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(type(error)) as caught:
        with replacing(path) as file:
            file.write(b"half")
            raise error
    assert caught.value is error
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]
    assert getattr(error, "filename", str(path)) == str(path)


def test_a_file_that_cannot_be_made_is_named_as_the_user_named_it(tmp_path):
    with pytest.raises(OSError) as caught:
        with replacing(tmp_path / "nowhere" / "a.txt"):
            pass
    assert caught.value.filename == str(tmp_path / "nowhere" / "a.txt")
