"""Ranks that differ in what decides the result are refused."""
import pytest

from model.ranks import alike
from model.ranks.alike import check_alike
from model.processes import Ranks


class Pair(Ranks):
    """The first of two ranks, where the other has what it is made with."""
    size = 2

    def __init__(self, **other):
        self.other = other

    def of_each(self, value):
        return [value, value | self.other]


def test_ranks_that_are_alike_pass_wherever_their_files_are():
    Ranks().check_alike({"beta1": 0.5})
    pair, sent = Pair(), []
    pair.of_each = lambda value: sent.append(value) or [value, value]
    check_alike(pair, {"beta1": 0.5, "threads": 3, "out_dir": "a", "data": "b"})
    assert "--beta1" in sent[0] and not {"--threads", "--out_dir", "--data"} & sent[0].keys()


@pytest.mark.parametrize("other, says", [
    ({"--beta1": 0.6}, "rank 1 has --beta1 0.6, where the first rank has 0.5"),
    ({"--beta2": 0.6}, "rank 1 has --beta2 0.6, where the first rank has left out"),
    ({"NumPy": "1.0"}, "rank 1 has NumPy 1.0, where the first rank has "),
    ({"the program with the digest": "0"}, "rank 1 has the program with the digest 0, ")])
def test_other_settings_and_other_software_are_named_with_the_rank(other, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        check_alike(Pair(**other), {"beta1": 0.5})


def test_the_digest_is_of_every_file_of_the_program(tmp_path, monkeypatch):
    monkeypatch.setattr(alike, "ROOT", str(tmp_path))
    for folder in ("data", "minigrad", "model", "tests"):
        (tmp_path / folder / "deep").mkdir(parents=True)
    for name in ("train.py", "data/a.py", "minigrad/deep/b.py", "model/c.py"):
        (tmp_path / name).write_text("1")
    before = alike.program()
    (tmp_path / "tests" / "d.py").write_text("1")
    assert alike.program() == before
    for name in ("train.py", "data/a.py", "minigrad/deep/b.py", "model/c.py"):
        (tmp_path / name).write_text("2")
        assert alike.program() != before
        (tmp_path / name).write_text("1")
