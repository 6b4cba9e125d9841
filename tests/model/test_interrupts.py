"""Ctrl-C and similar signals."""
import contextlib
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from model import interrupts as module
from model.interrupts import Interrupts


@pytest.mark.parametrize("name", [name for name in Interrupts.NAMES if hasattr(signal, name)])
def test_a_signal_is_recorded_the_second_one_stops_and_an_ignored_one_stays_ignored(name):
    number = getattr(signal, name)
    before = signal.getsignal(number)
    try:
        with pytest.raises(KeyboardInterrupt):
            with Interrupts() as interrupts:
                assert not interrupts.received
                signal.raise_signal(number)
                assert interrupts.received
                signal.raise_signal(number)
        assert signal.getsignal(number) is before
        signal.signal(number, signal.SIG_IGN)
        with Interrupts() as interrupts:
            signal.raise_signal(number)
            assert not interrupts.received
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("signals, at_once", [(2, False), (1, True)])
def test_interrupts_come_again_where_an_exception_was_swallowed(signals, at_once, monkeypatch):
    monkeypatch.setattr(module, "AGAIN", 0.02)
    with pytest.raises(KeyboardInterrupt), Interrupts(at_once) as interrupts:
        for _ in range(signals):
            with contextlib.suppress(KeyboardInterrupt):        # as a callback from C does
                signal.raise_signal(signal.SIGINT)
        time.sleep(20)
    interrupts.again.join()
    time.sleep(0.05)            # and not once the body has ended


def test_interrupts_come_to_the_main_thread_alone():
    def seen():
        with Interrupts() as interrupts:
            return interrupts.received, signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(seen).result() == (False, signal.getsignal(signal.SIGINT))
