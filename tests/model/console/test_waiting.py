"""What takes long is said, once, and what does not is not."""
import threading

import pytest

from model import command as waiting
from model.command import told_if_slow


@pytest.mark.parametrize("slow", [False, True])
def test_a_line_says_what_is_done_only_if_it_takes_long(slow, monkeypatch, capsys):
    started = []

    class Timer(threading.Timer):
        def start(self):
            started.append(self)

    monkeypatch.setattr(waiting.threading, "Timer", Timer)
    with told_if_slow("reading x"):
        timer, = started
        assert timer.interval == waiting.PATIENCE and timer.daemon
        if slow:
            timer.function()
    assert timer.finished.is_set()      # it is cancelled
    out, err = capsys.readouterr()
    assert out == "" and err == "reading x ...\n" * slow
