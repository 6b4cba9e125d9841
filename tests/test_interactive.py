"""A beginning is typed and continued, again and again: through a pipe, and on a real terminal."""
import os
import pathlib
import select
import subprocess
import sys

import pytest

from model import generate, load_checkpoint

ROOT = pathlib.Path(__file__).parents[1]


def command(trained, *flags):
    return [sys.executable, "-m", "model.sample", "--out_dir", str(trained), "--interactive",
            *flags]


def test_each_line_is_continued_with_the_next_seed_and_a_mistake_is_said(trained):
    said = subprocess.run(command(trained, "--max_new_tokens", "20", "--seed", "4"),
                          input="the \nZ\n\nfox", capture_output=True, text=True, cwd=ROOT)
    model, tokenizer, *_ = load_checkpoint(trained / "ckpt.npz")
    assert said.returncode == 0 and said.stdout == "".join(
        generate(model, tokenizer, start, 20, 0.8, seed=seed) + "\n"
        for start, seed in (("the ", 4), ("", 5), ("fox", 6)))
    assert said.stderr.startswith("the character 'Z' (LATIN CAPITAL LETTER Z)")


def test_a_beginning_on_the_command_line_comes_first_and_each_has_so_many_samples(trained):
    said = subprocess.run(command(trained, "--max_new_tokens", "5", "--seed", "1", "--start", "a",
                                  "--num_samples", "2"),
                          input="b\n", capture_output=True, text=True, cwd=ROOT)
    model, tokenizer, *_ = load_checkpoint(trained / "ckpt.npz")
    a, b = (f"\n{20 * '-'}\n".join(generate(model, tokenizer, start, 5, 0.8, seed=seed)
                                   for seed in seeds)
            for start, seeds in (("a", (1, 2)), ("b", (3, 4))))
    assert said.stdout == f"{a}\n{b}\n"


@pytest.mark.skipif(os.name != "posix", reason="there are no pseudo-terminals")
def test_on_a_terminal_ctrl_c_ends_a_text_lines_come_back_and_ctrl_d_leaves(trained, tmp_path):
    import pty
    controller, terminal = pty.openpty()
    shown = b""

    def type_(keys, until):
        """Press keys, and read on until something new is shown."""
        nonlocal shown
        seen = len(shown)
        os.write(controller, keys)
        while until not in shown[seen:]:
            assert select.select([controller], [], [], 60)[0], shown
            shown += os.read(controller, 4096)

    def interrupt(until):
        """Press Ctrl-C, and again if Python misses one that comes while it takes in a key."""
        nonlocal shown
        seen = len(shown)
        for _ in range(60):
            os.write(controller, b"\x03")
            while until not in shown[seen:] and select.select([controller], [], [], 1)[0]:
                shown += os.read(controller, 4096)
            if until in shown[seen:]:
                return
        raise AssertionError(shown)

    with subprocess.Popen(command(trained, "--max_new_tokens", "1000000", "--stop", "zzzzzz"),
                          stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT,
                          env=os.environ | {"MINIGRAD_CACHE": str(tmp_path), "TERM": "dumb"},
                          start_new_session=True,
                          preexec_fn=lambda: control_terminal(terminal)) as run:
        os.close(terminal)
        try:
            type_(b"", b"Ctrl-D leaves")
            type_(b"", b"> ")
            type_(b"the dog\n", b"the dog\r\n")
            type_(b"", b"the dog")          # continued
            type_(b"\x03", b"> ")
            type_(b"\x10", b"the dog")      # Ctrl-P: the line before
            type_(b"\n", b"the dog")
            type_(b"\x03", b"> ")
            type_(b"half a l", b"half a l")
            interrupt(b"> ")
            os.write(controller, b"\x04")
            assert run.wait(timeout=60) == 0
        finally:
            run.kill()
            os.close(controller)
    assert b"Traceback" not in shown
    assert (tmp_path / "history").read_text(encoding="utf-8").split("\n")[0] == "the dog"


def control_terminal(terminal):
    """Make it the one whose Ctrl-C reaches this process."""
    import fcntl
    import termios
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
