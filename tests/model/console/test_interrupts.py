"""Ctrl-C and the other ways to be asked to stop."""
import signal
import threading

import pytest

from model.command import Interrupts


def test_an_interrupt_is_remembered_and_a_second_one_stops_at_once():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        with Interrupts() as interrupts:
            assert not interrupts.came
            signal.raise_signal(signal.SIGINT)
            assert interrupts.came
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("name", [name for name in Interrupts.NAMES if hasattr(signal, name)])
def test_every_way_to_be_asked_to_stop_is_remembered_and_one_that_is_ignored_stays_so(name):
    number = getattr(signal, name)
    before = signal.getsignal(number)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(number)
            assert interrupts.came
        signal.signal(number, signal.SIG_IGN)
        with Interrupts() as interrupts:
            signal.raise_signal(number)
            assert not interrupts.came
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_interrupts_come_to_the_main_thread_alone_and_other_threads_run_on_without():
    before, seen = signal.getsignal(signal.SIGINT), []

    def run():
        with Interrupts() as interrupts:
            seen.append((interrupts.came, signal.getsignal(signal.SIGINT)))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
