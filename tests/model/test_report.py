"""What a run prints."""
import contextlib
import io
import os
import re
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from model import report
from model.checkpoint import Checkpoint
from model.folder import Folder
from model.report import describe_evaluation
from model.run import State, Step
from model.settings import Settings
from tests.kit import small_run


@pytest.mark.parametrize("loss, says", [
    (3.6, "above every counted n-gram"),
    (3.51, "above every counted n-gram"),
    (3.5, "below the counted trigram"),
    (3.4, "below the counted 4-gram"),
    (3.3, "below the counted unigram"),
    (3.2, "below the counted bigram")])
def test_an_evaluation_is_compared_with_the_best_n_gram_even_if_longer_ones_are_worse(loss, says):
    counted = {"unigram": 3.31, "bigram": 3.25, "trigram": 3.51, "4-gram": 3.5}     # a short text
    assert describe_evaluation(State(0), None, loss, counted).endswith(f"   {says}")


@pytest.mark.parametrize("taken, limit, says, longer", [
    (0.000643, 0.0005, "2 steps in less than 0.01 minutes, and --minutes 0.0005", "0.01"),
    (0.25, 0.2, "2 steps in 0.25 minutes, and --minutes 0.2", "0.45"),
    (3.0, 3.0, "2 steps in 3 minutes, and --minutes 3", "6"),
    (1232.5, 1.0, "2 steps in 1232.5 minutes, and --minutes 1", "1233.5")])
def test_describe_complete_rounds_minutes_and_names_more_than_were_taken(taken, limit, says,
                                                                         longer):
    run = small_run(minutes=limit, folder=Folder("out"))
    run.state.iteration = 2
    run.state.seconds = 60 * taken
    said = report.describe_complete(run)
    assert says in said
    assert re.search("--minutes (.*)$", said.splitlines()[1])[1] == longer
    assert float(longer) > taken


def said_of(run, steps):
    """What is said above the bar while these steps are shown."""
    said = []
    with report.Progress(run, {}) as progress:
        progress.bar.write = lambda line, *_: said.append(line)
        for number, step in enumerate(steps, start=1):
            step.number = number
            run.state.note_step(step.loss, step.seconds)
            progress.show(step)
    return "\n".join(said)


def spikes(losses, run):
    """The steps of which a spike is reported, and the usual losses."""
    run.state.recent = []
    said = said_of(run, [Step(0, {}, loss=loss, norm=1.0, taken=True) for loss in losses])
    return [(int(number), float(usual)) for number, usual in re.findall(
        r"step +(\d+)   a spike: the training loss is \d+\.\d{3}, where (\S+) is usual; gradient "
        r"norm 1 before clipping", said)]


@pytest.mark.parametrize("times, told", [
    ([(1.0, 0.51)] * 200, []),
    ([(1.0, 0.5)] * 4, []),
    ([(1.0, 0.5)] * 200, ["2.0"]),
    ([(1.0, 0.9)] * 4 + [(6.0, 1.0)] + [(1.0, 1.0)] * 5, ["2.2"]),
    ([(9.0, 0.0)], ["9000000000.0"]),
    ([(5.0, 1.0)] + [(5.0, 5.0)] * 19 + [(5.0, 2.0)] + [(5.0, 5.0)] * 19 + [(5.0, 1.25)],
     ["5.0", "2.5", "4.0"]),
    ([(5.0, 1.0)] + [(5.0, 5.0)] * 18 + [(5.0, 2.0)], ["5.0"])], ids=str)
def test_show_says_once_that_the_machine_is_busy(times, told):
    steps = [Step(0, {}, loss=2.0, seconds=seconds, processor=processor)
             for seconds, processor in times]
    said = said_of(small_run(max_iters=1000), steps)
    assert told == re.findall(r"the machine is busy: the last steps took (\S+) times", said)
    assert said.count("\n") == max(0, len(told) - 1)        # and nothing else


@pytest.mark.parametrize("times, minutes, says", [
    ([(5.0, 5.0)] * 9, None, ""),
    ([(5.0, 2.5)], None, "the machine was busy: the steps took 2.0 times the processor time that "
                         "they had"),
    ([(5.0, 0.5)] + [(5.0, 5.0)] * 9, 3, ""),        # too little to matter
    ([(5.0, 1.0)] * 3 + [(5.0, 5.0)] * 3, 3.0, "the machine was busy: the steps took 1.7 times the "
     "processor time that they had; on a free one, more of them would fit into 3 minutes"),
    ([(9.0, 0.0)], 1, "the machine was busy: the steps took 9000000000.0 times the processor time "
                      "that they had; on a free one, more of them would fit into 1 minute")],
    ids=str)
def test_describe_slowness_says_at_the_end_that_the_machine_was_busy(times, minutes, says):
    run = small_run(max_iters=1000, minutes=minutes)
    with report.Progress(run, {}) as progress:
        progress.bar.write = lambda *_: None
        for number, (seconds, processor) in enumerate(times, start=1):
            step = Step(number, {}, loss=2.0, seconds=seconds, processor=processor)
            run.state.note_step(step.loss, step.seconds)
            progress.show(step)
    assert progress.describe_slowness() == says


@pytest.mark.parametrize("each, says", [
    (1e-4, ""),
    (0.01, "time        about 50 seconds for the proof that the model is causal, 20 seconds for "
           "each evaluation, and 3 seconds for the last one\n"),
    (1.0, "time        about 83 minutes for the proof that the model is causal, 32 minutes for "
          "each evaluation, and 4 minutes for the last one\n")])
def test_print_estimates_says_how_long_proof_and_evaluations_take_if_that_is_long(
        monkeypatch, capsys, each, says):
    run = small_run(block_size=8, eval_iters=0)
    run.windows = np.zeros((241, 8)), None
    monkeypatch.setattr(report, "seconds_an_id", lambda model, T: each)
    monkeypatch.setattr(report, "count_proof_ids", lambda *of: 5_000 if of == (9, 8) else 0)
    run.text = SimpleNamespace(tokenizer=SimpleNamespace(vocab_size=9), val=np.zeros(255))
    report.print_estimates(run)
    assert capsys.readouterr().out == says


@pytest.mark.parametrize("each, says", [(1e-5, ""), (0.01, "causal, 3 minutes for the steps, ")])
def test_print_estimates_says_how_long_the_steps_of_an_adapter_take(monkeypatch, capsys, each,
                                                                    says):
    run = small_run(block_size=8, batch_size=10, lora=4, max_iters=80)
    run.state.iteration = 5
    monkeypatch.setattr(report, "seconds_an_id", lambda model, T: each)
    report.print_estimates(run)
    said = capsys.readouterr().out
    assert says in said and bool(said) == bool(says)


def test_seconds_an_id_is_the_shorter_of_two_times(monkeypatch):
    ticks = iter([0.0, 9.0, 10.0, 14.0])
    monkeypatch.setattr(report.time, "perf_counter", lambda: next(ticks))
    read = []
    assert report.seconds_an_id(lambda ids: read.append(ids.shape), 8) == 0.5
    assert read == [(1, 8)] * 2


@pytest.mark.parametrize("settings, shown", [
    (dict(max_iters=9), [1, 2, 3]), (dict(minutes=0.5), [0.25, 0.5, 0.5])], ids=str)
def test_show_moves_the_bar_to_the_step_or_to_the_minutes_but_not_beyond_its_end(settings, shown):
    run = small_run(**settings)
    moves = []                  # from 0, as a bar that is not shown stays there
    closed = []
    with report.Progress(run, {}) as progress:
        progress.bar.close = lambda: closed.append(True)
        progress.bar.update = moves.append
        for number in (1, 2, 3):
            run.state.note_step(2.0, 15.0)
            progress.show(Step(number, {}, loss=2.0, seconds=15.0, processor=15.0))
    assert moves == shown
    assert progress.bar.total == settings.get("minutes", 9)
    assert closed == [True]


@pytest.mark.parametrize("loss, said", [
    (2.25, "loss 2.250, 480 characters/s"),
    (None, "no finite loss, 0 characters/s, 10 steps skipped")])
def test_show_says_the_loss_and_the_speed_at_each_tenth_step(loss, said):
    run = small_run(batch_size=6, block_size=8)
    shown = []
    with report.Progress(run, {}) as progress:
        progress.bar.set_postfix_str = shown.append
        for number in range(1, 12):
            run.state.note_step(loss or 9.0, 0.1, taken=loss is not None)
            progress.show(Step(number, {}, loss=9.0, seconds=0.1, processor=0.1))
    assert shown == [said]


class Pipe(io.StringIO):
    """A standard output that knows how much of it has been flushed."""
    flushed = 0

    def flush(self):
        self.flushed = self.tell()


@pytest.mark.parametrize("settings, says", [
    (dict(max_iters=9000),
     "step{:7d}   training 2.250   {} of 9,000 steps, 480 characters/s"),
    (dict(minutes=3.0), "step{:7d}   training 2.250   {:.2f} of 3 minutes, 480 characters/s")])
def test_show_prints_a_line_within_30_seconds_of_the_last_one_where_there_is_no_bar(
        settings, says, monkeypatch):
    now = [1000.0]
    out = Pipe()
    monkeypatch.setattr(report.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stdout", out)
    run = small_run(batch_size=60, block_size=8, **settings)
    with report.Progress(run, {}) as progress:
        for number in range(1, 90):
            run.state.note_step(2.25, 1.0)
            now[0] += 1.0
            progress.show(Step(number, {}, loss=2.25, seconds=1.0, processor=1.0))
            if number == 40:
                progress.show_evaluation(2.25, 2.0)
    lines = out.getvalue().splitlines()
    assert [int(line[4:11]) for line in lines] == [29, 40, 69]
    assert lines[2] == says.format(69, 69 if "max_iters" in settings else 69 / 60)
    assert out.flushed == len(out.getvalue())


def test_show_prints_no_line_beside_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(report, "SILENCE", 0.0)
    run = small_run(max_iters=9)
    with report.Progress(run, {}) as progress:
        progress.bar = SimpleNamespace(
            disable=False,
            n=0,
            update=lambda n: None,
            close=lambda: None,
            write=lambda line, file: print(line, file=file))
        run.state.note_step(2.25, 1.0)
        progress.show(Step(1, {}, loss=2.25, seconds=1.0, processor=1.0))
    assert capsys.readouterr().out == ""


def read_all(terminal):
    """What was written to a terminal whose other side is closed; it may arrive in parts."""
    shown = b""
    with contextlib.suppress(OSError):      # as a terminal ends
        while part := os.read(terminal, 10_000):
            shown += part
    os.close(terminal)
    return shown.decode()


@pytest.mark.skipif(os.name == "nt", reason="it has other terminals")
@pytest.mark.parametrize("rows, columns, width", [(0, 0, 79), (24, 60, 60)])
def test_a_terminal_whose_size_nobody_has_set_has_a_bar(rows, columns, width, monkeypatch):
    import fcntl
    import struct
    import termios
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    with open(its, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        run = small_run(max_iters=9)
        with report.Progress(run, {}) as progress:
            assert report.bar_columns() == (None if columns else report.BAR_COLUMNS)
            run.state.note_step(2.25, 1.0)
            progress.show(Step(1, {}, loss=2.25, seconds=1.0, processor=1.0))
            progress.bar.refresh()
    shown = read_all(ours)
    bars = re.findall("[^\r\n]*/9 [^\r\n]*", shown)
    assert bars and all(width - 2 <= len(bar) <= width + 1 for bar in bars), bars


@pytest.mark.skipif(os.name == "nt", reason="it has other terminals")
@pytest.mark.parametrize("kind, is_ascii", [("dumb", True), ("xterm", False)])
def test_a_bar_is_drawn_in_signs_that_the_terminal_has(kind, is_ascii, monkeypatch):
    ours, its = os.openpty()
    with open(its, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
        patch.setenv("TERM", kind)
        patch.setattr(sys, "stderr", terminal)
        run = small_run(max_iters=9)
        with report.Progress(run, {}) as progress:
            run.state.iteration = 5
            progress.bar.update(5)
            progress.bar.refresh()
    shown = read_all(ours)
    assert "5/9" in shown and shown.isascii() == is_ascii


def test_bar_columns_of_what_is_no_terminal_is_left_to_tqdm(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert report.bar_columns() is None


def test_describe_course_has_the_first_and_the_last_loss_and_the_n_grams_in_a_line(monkeypatch):
    log = [[0, None, 4.127, 0, 0, 0.0], [100, 2.5, 1.55, 0, 0, 9.0], [200, 1.4, 1.2, 0, 0, 19.0]]
    counted = {"unigram": 3.279, "bigram": 2.332, "4-gram": 1.414}
    head, line = report.describe_course(log, 1.19, counted).splitlines()
    assert head == "from the first evaluation to the last; and the best model, ●, among n-grams:"
    assert line == "    4.127 █▂▁ 1.200   uni───────────bi────────────4──●"
    assert max(map(len, report.describe_course(log * 40, 1.0, counted).splitlines())) <= 79
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    head, line = report.describe_course(log, 2.0, counted).splitlines()
    assert head.isascii()
    assert line == "    4.127 #._ 1.200   uni-------------bi---o---------4"


@pytest.mark.parametrize("settings, says", [
    (dict(max_iters=9), "9 steps of 60 characters, 2.3 times the text, on "),
    (dict(minutes=0.5), "0.5 minutes of steps of 60 characters, on "),
    (dict(minutes=2.0, max_iters=1),
     "1 step of 60 characters, 0.3 times the text, or 2 minutes of them, on ")], ids=str)
def test_describe_training_says_how_many_steps_or_minutes_end_a_run(settings, says):
    run = small_run(batch_size=6, block_size=10, **settings)
    assert report.describe_training(run).startswith(says)
    run.first = 1234
    assert report.describe_training(run).endswith("; resumed after step 1,234")


@pytest.mark.parametrize("loss, steps, warns", [
    (2.5, 40, True), (2.6, 40, True), (2.4, 40, False), (2.6, 10, False)])
def test_report_warns_of_a_text_from_which_nothing_was_learnt(monkeypatch, tmp_path, capsys, loss,
                                                              steps, warns):
    run = small_run(batch_size=6, block_size=10, folder=Folder(tmp_path))
    best = Checkpoint(run.model, run.text.tokenizer, {"state": {"iteration": 7}}, {})
    monkeypatch.setattr(report, "load_checkpoint", lambda path: best)
    monkeypatch.setattr(report, "mean_losses", lambda *args, **settings: [loss, 1.25])
    monkeypatch.setattr(report, "generate", lambda *args, **settings: "to be")
    run.state.iteration = steps
    run.log = SimpleNamespace(lines=[[0, None, 4.0, 0, 0, 0], [steps, 3.0, 2.5, 0, 0, 9]])
    for skipped, said in ((0, None), (1, f"of {steps} steps 1 was skipped"),
                          (2, f"of {steps} steps 2 were skipped")):
        run.state.skipped = skipped
        report.report(run, {"unigram": 2.5, "bigram": 1.5})
        out = capsys.readouterr().out
        assert "n-grams:\n    4.000 █▁ 2.500   " in out
        assert "a character, best model (step 7):\n" in out and "a sample:\n\nto be\n" in out
        assert "    1.250  this model, with the counted 9-gram\n" in out
        assert ("warning     260 characters are too few to learn from" in out) == warns
        assert said in out if said else " skipped" not in out


def test_compile_kernels_asks_for_those_of_a_run_and_can_be_ended(monkeypatch):
    asked = []
    announced = []
    monkeypatch.setattr(report.compiled, "announce", announced.append)

    def compile_ahead(**parts):
        asked.append({name for name, is_asked in parts.items() if is_asked})
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    monkeypatch.setattr(report.compiled, "compile_ahead", compile_ahead)
    report.compile_kernels(Settings(optimizer="muon", ngrams=3, explain=True))
    report.compile_kernels(Settings(qk_norm=True, activation="swiglu"))
    assert asked == [{"muon", "ngrams"}, {"qk_norm", "gated", "sample"}]
    assert announced == ["compiling  "] * 2


USUAL = [1.9, 2.0, 2.1] * 40        # a deviation of 0.15
CALM = [2.0] * 120


@pytest.mark.parametrize("losses, expected", [
    ([*USUAL, 3.1], []),
    ([*USUAL, 3.3], [(121, 2.0)]),
    ([*CALM, 2.59], []),
    ([*CALM, 2.61], [(121, 2.0)])])
def test_a_spike_is_a_loss_far_above_the_usual_ones(losses, expected):
    assert spikes(losses, small_run(max_iters=1000)) == expected


@pytest.mark.parametrize("losses, expected", [
    ([4.0, *USUAL], []),
    (USUAL[:49] + [9.0], []),
    (USUAL[:50] + [9.0], [(51, 2.0)])])
def test_a_spike_needs_50_losses_before_it(losses, expected):
    assert spikes(losses, small_run(max_iters=1000)) == expected


@pytest.mark.parametrize("losses, expected", [
    ([*USUAL, 5.0, 2.0, 5.0, *USUAL[:18], 5.0, 5.0], [(121, 2.0)]),
    ([*USUAL, 5.0, *USUAL[:20], 5.0], [(121, 2.0), (142, 2.0)])])
def test_a_spike_is_reported_again_after_20_steps_without_one(losses, expected):
    assert spikes(losses, small_run(max_iters=1000)) == expected


def test_losses_that_stay_are_the_new_usual_ones_and_no_spikes():
    assert len(spikes(CALM + [4.0] * 300, small_run(max_iters=1000))) == 1
