"""The sampling command: text on standard output, all else on standard error, one-line mistakes."""
import pathlib
import subprocess
import sys

import pytest

from model import generate, load_checkpoint, sample


def sampled(capsys, *flags):
    sample.main(list(flags))
    return capsys.readouterr()


def refused(capsys, *flags):
    with pytest.raises(SystemExit) as caught:
        sample.main(list(flags))
    assert capsys.readouterr().out == ""
    return caught.value.code


def test_it_writes_what_generate_gives(trained, capsys):
    out, err = sampled(capsys, "--out_dir", str(trained), "--start", "the ",
                       "--max_new_tokens", "40", "--seed", "3", "--top_k", "10",
                       "--temperature", "0.9")
    model, tokenizer, *_ = load_checkpoint(trained / "ckpt.npz")
    assert out == generate(model, tokenizer, "the ", 40, 0.9, top_k=10, seed=3) + "\n" and err == ""
    assert len(out) == 4 + 40 + 1


def test_several_samples_differ_and_the_first_is_what_one_alone_would_be(trained, capsys):
    one = sampled(capsys, "--out_dir", str(trained), "--max_new_tokens", "30").out
    three = sampled(capsys, "--out_dir", str(trained), "--max_new_tokens", "30",
                    "--num_samples", "3").out
    parts = three.split("-" * 20 + "\n")
    assert parts[0] == one and len(set(parts)) == 3


def test_the_beginning_may_come_from_a_file(trained, capsys, tmp_path):
    start = tmp_path / "start.txt"
    start.write_text("the fox", encoding="utf-8")
    from_file = sampled(capsys, "--out_dir", str(trained), "--start", f"FILE:{start}",
                        "--max_new_tokens", "9").out
    assert from_file == sampled(capsys, "--out_dir", str(trained), "--start", "the fox",
                                "--max_new_tokens", "9").out
    assert "cannot read the beginning" in refused(capsys, "--out_dir", str(trained),
                                                  "--start", f"FILE:{tmp_path / 'no'}")
    start.write_bytes(b"\xff")
    assert "is not UTF-8 (byte 0)" in refused(capsys, "--out_dir", str(trained),
                                              "--start", f"FILE:{start}")


def test_it_stops_before_the_stop_text(trained, capsys):
    out = sampled(capsys, "--out_dir", str(trained), "--start", "the", "--stop", " ").out
    assert " " not in out


def test_mistakes_are_answered_in_one_line(trained, capsys, tmp_path):
    assert "there is no checkpoint" in refused(capsys, "--out_dir", str(tmp_path))
    unknown = refused(capsys, "--out_dir", str(trained), "--start", "the É")
    assert ("'É' (LATIN CAPITAL LETTER E WITH ACUTE) at position 4" in unknown
            and "the nearest are 'e'" in unknown)
    assert "temperature is a number of at least 0" in refused(capsys, "--temperature", "-1")
    assert "top_k is a whole number of at least 1, not 0" in refused(capsys, "--top_k", "0")
    assert ("top_p is a probability above 0 and at most 1, not 2.0"
            in refused(capsys, "--top_p", "2"))
    assert "num_samples is at least 0" in refused(capsys, "--num_samples", "-1")


def test_a_closed_pipe_ends_it_quietly(trained):
    command = [sys.executable, "-m", "model.sample", "--out_dir", str(trained),
               "--max_new_tokens", "2000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          cwd=pathlib.Path(__file__).parents[1]) as process:
        assert process.stdout.read(5)
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait(timeout=60) == 0
