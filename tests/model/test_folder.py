"""The folder of a run: what is refused before anything is read or written."""
import os
from types import SimpleNamespace

import pytest

from model.folder import problems_of_folder, settings_of
from model.settings import Settings
from tests.kit import refusal


def test_a_folder_that_cannot_be_written_is_refused_unless_nothing_is(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    for path in (tmp_path, tmp_path / "new" / "out"):
        says, = problems_of_folder(Settings(out_dir=str(path)))
        assert says.startswith(f"--out_dir {path} cannot be written: {tmp_path} does not allow it")
        assert problems_of_folder(Settings(out_dir=str(path), explain=True)) == []


@pytest.mark.parametrize("saved, says", [
    ({"window": 3}, "there is no --window"), ({"n_layer": "x" * 500}, "--n_layer takes a whole"),
    ({"seed": None}, "--seed takes a whole number"), ({"rate\n": 1}, r"there is no --rate\n")])
def test_saved_settings_that_can_be_used_are_and_others_are_refused(saved, says):
    older = {"n_layer": 2, "threads": 10 ** 6, "data": ["a", "b"], "reduce": "exact",
             "n_inner": 9, "tied": False}
    s = settings_of(SimpleNamespace(training={"settings": older}), "out")
    assert s == Settings(recipe="gpt2", n_layer=2, data=("a", "b"), threads=s.threads)
    assert s.problems() == []
    said = refusal(ValueError, settings_of, SimpleNamespace(training={"settings": saved}), "out")
    assert said.startswith("the run in out has settings that this ") and "; train" in said
    assert says in said and len(said) < 400
