"""A beginning is typed and continued, again and again: through a pipe, and on a real terminal."""
import io
import os
import select
import subprocess
import sys
import time

import pytest

from model.convert.tokens import TokenTokenizer
from model import Transformer, TransformerConfig, generate, load_checkpoint, sample, save_checkpoint
from model.interactive.session import continue_typed
from tests.kit import ROOT, in_a_terminal
from tests.token_files import byte_level


def command(trained, *flags):
    return [sys.executable, "-m", "model.sample", "--out_dir", str(trained), "--interactive",
            *flags]


def test_each_line_is_continued_with_the_next_seed_and_a_mistake_costs_no_other_line(trained):
    said = subprocess.run(command(trained, "--max_new_tokens", "20", "--seed", "4"), cwd=ROOT,
                          input="the \nж\n".encode() + b"d\351j\n\nfox\n\4\nno",
                          capture_output=True,
                          env=os.environ | {"PYTHONIOENCODING": "cp1252"})      # as on Windows
    model, tokenizer, *_ = load_checkpoint(trained / "ckpt.npz")
    assert said.returncode == 0 and said.stdout.decode().replace("\r", "") == "".join(
        generate(model, tokenizer, start, 20, 0.8, seed=seed) + "\n"
        for start, seed in (("the ", 4), ("", 5), ("fox", 6)))
    unknown, no_utf8 = said.stderr.decode().splitlines()[:2]
    assert unknown.startswith("the character 'ж' (CYRILLIC SMALL LETTER ZHE)")
    assert no_utf8.startswith("the character ")


@pytest.mark.parametrize("tokens", [False, pytest.param(True, marks=pytest.mark.needs("convert"))])
def test_start_comes_first_and_each_has_its_samples(trained, tmp_path, monkeypatch, capsys, tokens):
    model, tokenizer, *_ = load_checkpoint(trained / "ckpt.npz")
    if tokens:
        tokenizer = TokenTokenizer(byte_level(), 0)
        model = Transformer(TransformerConfig(tokenizer.vocab_size, 16, 1, 2, 8))
    save_checkpoint(tmp_path / "ckpt.npz", model, tokenizer)
    starts = ("the in", "🙂") if tokens else ("a", "b")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{starts[1]}\n"))
    sample.main(["--out_dir", str(tmp_path), "--interactive", "--max_new_tokens", "9", "--seed",
                 "1", "--start", starts[0], "--num_samples", "2"])
    first, second = (f"\n{20 * '-'}\n".join(generate(model, tokenizer, start, 9, 0.8, seed=seed)
                                            for seed in seeds)
                     for start, seeds in zip(starts, ((1, 2), (3, 4))))
    assert capsys.readouterr().out == f"{first}\n{second}\n"


@pytest.mark.parametrize("platform, words", [("linux", "Ctrl-D leaves."),
                                             ("win32", "Ctrl-Z and Enter leave.")])
def test_continue_typed_says_how_to_leave(monkeypatch, capsys, tmp_path, platform, words):
    stdin = io.StringIO("")
    stdin.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    continue_typed("", len, print)
    assert capsys.readouterr().err.endswith(f"continuation, {words}\n")


@pytest.mark.skipif(os.name != "posix", reason="there are no pseudo-terminals")
def test_on_a_terminal_ctrl_c_ends_a_text_lines_come_back_and_ctrl_d_leaves(trained, tmp_path):
    shown = b""
    read_until = 0

    def wait_for(text, again=b""):
        """Read until `text` is shown after all that was waited for before; press keys `again` and
        again where Python may miss them: a Ctrl-C while it takes in another key."""
        nonlocal shown, read_until
        for _ in range(30):
            waited_until = time.monotonic() + 5
            while time.monotonic() < waited_until:
                if (at := shown.find(text, read_until)) >= 0:
                    read_until = at + len(text)
                    return
                if select.select([controller], [], [], 0.2)[0]:
                    shown += os.read(controller, 65536)
            os.write(controller, again)
        raise AssertionError(shown)

    def type_(keys, until, again=b""):
        os.write(controller, keys)
        wait_for(until, again)

    _, *words = command(trained, "--max_new_tokens", "1000000", "--stop", "zzzzzz")
    with in_a_terminal(*words, MINIGRAD_CACHE=str(tmp_path), TERM="dumb") as (run, controller):
        wait_for(b"Ctrl-D leaves")
        wait_for(b"> ")
        type_(b"the dog\n", b"the dog\r\n")
        wait_for(b"the dog")                            # continued
        type_(b"\x03", b"> ", again=b"\x03")
        type_(b"\x10", b"the dog")                      # Ctrl-P: the line before
        type_(b"\n", b"the dog")
        type_(b"\x03", b"> ", again=b"\x03")
        type_(b"half a l", b"half a l")
        type_(b"\x03", b"> ", again=b"\x03")
        os.write(controller, b"\x04")
        assert run.wait(timeout=60) == 0
    os.close(controller)
    assert b"Traceback" not in shown
    assert (tmp_path / "history").read_text(encoding="utf-8").split("\n")[0] == "the dog"
