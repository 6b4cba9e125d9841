"""log.csv: no line twice, none cut, and what is damaged is said to be."""
import csv
import os

import pytest

from model.run import Log, read_log


def test_a_resumed_log_has_no_line_twice_and_keeps_the_earlier_ones(tmp_path):
    path = tmp_path / "log.csv"
    log = Log(path, start=None)
    for i in (0, 10, 20):
        log.write(i, None if i == 0 else 2.0, 2.5, 1e-3, 1000.0, 1.0)
    Log(path, start=10).write(20, 1.0, 1.5, 1e-3, 1000.0, 2.0)
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["iter", "0", "10", "20"]
    assert rows[1][1] == "" and rows[3] == ["20", "1.000000", "1.500000", "0.001", "1000", "2.00"]
    Log(path, start=0)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2
    Log(path, start=None)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1


def test_a_log_is_read_as_it_was_written(tmp_path):
    log = Log(tmp_path / "log.csv", start=None)
    assert read_log(log.path) == []
    log.write(0, None, 4.5, 1e-5, 0.0, 0.0), log.write(10, 2.25, 2.5, 1e-3, 1000.0, 1.25)
    assert read_log(log.path) == [[0, None, 4.5, 1e-5, 0, 0], [10, 2.25, 2.5, 1e-3, 1000, 1.25]]


@pytest.mark.parametrize("cut", ["20,1.0", "20,1,1.5,1e-3,1000,2", "2"])
def test_a_line_that_was_cut_is_dropped_without_a_word(tmp_path, capsys, cut):
    log = Log(tmp_path / "log.csv", start=None)
    log.write(0, None, 4.5, 1e-5, 0.0, 0.0), log.write(10, 2.25, 2.5, 1e-3, 1000.0, 1.25)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + cut.encode())
    Log(log.path, start=10)
    assert log.path.read_bytes() == whole and not capsys.readouterr().err


@pytest.mark.parametrize("damage", [
    lambda whole: None, lambda whole: b"", lambda whole: whole.replace(b"10,", b"1x,"),
    lambda whole: whole[:-40], lambda whole: b"\xff" * 50,
    lambda whole: whole.replace(b"4.5", b"4,5"),
    lambda whole: whole.replace(b"10,", b"9" * 5000 + b",")])
def test_a_log_that_lacks_lines_is_said_to_and_the_others_are_kept(tmp_path, capsys, damage):
    log = Log(tmp_path / "log.csv", start=None)
    log.write(0, None, 4.5, 1e-5, 0.0, 0.0), log.write(10, 2.25, 2.5, 1e-3, 1000.0, 1.25)
    damaged = damage(log.path.read_bytes())
    log.path.unlink() if damaged is None else log.path.write_bytes(damaged)
    Log(log.path, start=10).write(20, 1.0, 1.5, 1e-3, 1000.0, 2.0)
    what = "not there" if damaged is None else "damaged"
    assert f"warning: {log.path} is {what}; of its lines " in capsys.readouterr().err
    lines = read_log(log.path)
    assert len(lines) in (1, 2) and lines[-1] == [20, 1, 1.5, 1e-3, 1000, 2]


def test_a_log_is_whole_whenever_it_is_read(tmp_path, monkeypatch):
    log, seen = Log(tmp_path / "log.csv", start=None), []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (seen.append(read_log(log.path)), real(number)))
    log.write(0, None, 4.5, 1e-5, 0.0, 0.0), log.write(10, 2.25, 2.5, 1e-3, 1000.0, 1.25)
    assert [len(lines) for lines in seen[::len(seen) // 2]] == [0, 1]


@pytest.mark.parametrize("lines", [
    "", "iter,train_loss\n1,2\n", "{}\n0,,4.1,4e-5,0", "{}\n0,,4.1,4e-5,0,0,0", "{}\n,,4,4e-5,0,0",
    "{}\n0,,nan,4e-5,0,0", "{}\n0,,4.1,inf,0,0", "{}\n0,,4.1,x,0,0", "{}\n\n", "\0", b"\xff\xfe"])
def test_a_damaged_log_is_refused(tmp_path, lines):
    path = tmp_path / "log.csv"
    lines = lines if isinstance(lines, bytes) else lines.format(",".join(Log.COLUMNS)).encode()
    path.write_bytes(lines)
    with pytest.raises(ValueError, match="log.csv is damaged, or no log of this program"):
        read_log(path)


def test_a_log_of_skipped_steps_is_read_and_goes_on_from_one_without(tmp_path):
    path = tmp_path / "log.csv"
    Log(path, start=None).write(0, None, 4.5, 1e-5, 0.0, 0.0)
    Log(path, start=0, skips=True).write(10, None, 4.25, 1e-3, 0.0, 0.5, 10)
    assert read_log(path) == [[0, None, 4.5, 1e-5, 0, 0, 0], [10, None, 4.25, 1e-3, 0, 0.5, 10]]
    Log(path, start=10)
    assert read_log(path) == [[0, None, 4.5, 1e-5, 0, 0], [10, None, 4.25, 1e-3, 0, 0.5]]


def test_a_log_that_is_not_there_is_said_to_be_so(tmp_path):
    with pytest.raises(ValueError, match="log.csv cannot be read: No such file"):
        read_log(tmp_path / "log.csv")
