"""What a run prints: what it will do, its progress, and how good its model is."""
import math
import os
import statistics
import sys
import time

import numpy as np
from tqdm import tqdm

import data
import minigrad as mg
from minigrad import compiled
from minigrad.words import number_of
from model.answers import announced_if_slow, command_line
from model.checkpoint import BEST, LAST, load_checkpoint
from model.config import TransformerConfig
from model.folder import PAGE
from model.generation import generate
from model.interrupts import Interrupts
from model.run import WARM_UP, Run, State, Step
from model.scoring import count_proof_ids, ladder, mean_losses
from model.settings import MINUTES, USUAL_PASSES, Settings, describe_settings, is_short
from model.transformer import Transformer

LEAST_KNOWN = 50        # losses that must be known to judge the next one
DEVIATIONS, SHARE = 8.0, 0.3    # a spike is this far above the usual loss, and this share of it
QUIET = 20              # steps without a spike, or spans in time, before another is reported
BAR_INTERVAL = 10       # steps between new numbers of the progress bar
BAR_COLUMNS = 80        # of the bar in a terminal that does not say how wide it is
SILENCE = 30.0          # seconds without a line, at most, where no bar is shown
SPAN = 5.0              # seconds of steps, of which it is judged whether they had a processor
BUSY = 2.0              # times the seconds that they had one
SLOWED = 1.2            # the same of all steps, from which the last report says it again
LONG = 20.0             # seconds from which it is said beforehand how long something takes
PIECE = 64              # ids of which that is estimated
A_STEP = 3              # times as long as its ids take forward: backward takes twice as long
LOWER = 10              # times lower rates are proposed where no step made a model better


def describe(run: Run, counted: dict[str, float]) -> None:
    """Print what a run will do, and the losses of counted n-grams to compare it with."""
    s = run.settings
    text = run.text
    unit = text.tokenizer.unit
    print(f"text        {text.name}: {number_of(len(text), unit)}, {text.different:,} different "
          f"ones; the last {len(text.val):,} to validate")
    if warning := data.repetition_warning(*text.parts()):
        print(f"warning     {warning}")
    print(f"recipe      {describe_settings(s)}")
    from model.count.sizes import parameters
    print(f"model       {describe_model(run.model.config, parameters(run.model.config))}")
    if s.lora:
        from model.lora.begin import describe_adapter
        print(describe_adapter(run.model))
    print(f"training    {describe_training(run)}")
    if s.minutes is not None:
        print(f"{'':12}(evaluating, compiling and saving not counted)")
    losses = ", ".join(f"{name} {loss:.3f}" for name, loss in counted.items())
    print(f"yardstick   counted {losses} nats a {unit}")
    if s.page and not s.explain:
        print(f"page        {run.folder / PAGE} from the first evaluation on; open it in a browser")


def print_estimates(run: Run) -> None:
    """Say how long the proof of causality, the steps and the evaluations will take, if that is
    long."""
    s = run.settings
    each = seconds_an_id(run.model, min(s.block_size, PIECE))
    proof = each * count_proof_ids(run.text.tokenizer.vocab_size, s.block_size)
    evaluation = each * run.windows[0].size / run.ranks.size
    last = each * len(run.text.val) / run.ranks.size
    steps = ""
    seconds = 0.0
    if s.lora and s.minutes is None:        # else the clock says it, or the progress bar
        seconds = (s.steps - run.state.iteration) * A_STEP * each * s.characters / run.ranks.size
        steps = f"{format_seconds(seconds)} for the steps, "
    if max(proof, evaluation, last, seconds) >= LONG:
        print(f"time        about {format_seconds(proof)} for the proof that the model is causal, "
              f"{steps}{format_seconds(evaluation)} for each evaluation, and "
              f"{format_seconds(last)} for the last one")


def seconds_an_id(model: Transformer, T: int) -> float:
    """Return how long a model takes for an id, as measured with T of them."""
    took = []
    for _ in range(2):              # the first one may be slower
        started = time.perf_counter()
        with mg.no_grad():
            model(np.zeros((1, T), np.int64))
        took.append(time.perf_counter() - started)
    return min(took) / T


def format_seconds(seconds: float) -> str:
    """Return a time as "50 seconds" or "3 minutes"."""
    if seconds < 100:
        return number_of(math.ceil(seconds), "second")
    return number_of(round(seconds / 60), "minute")


def compile_kernels(s: Settings) -> None:
    """Compile the kernels of a run, and say so if that takes time."""
    compiled.announce("compiling  ")
    with Interrupts(at_once=True):
        compiled.compile_ahead(
            muon=s.optimizer == "muon",
            qk_norm=s.qk_norm,
            ngrams=s.ngrams > 1,
            gated=s.activation == "swiglu",
            sample=not (s.explain or s.lora))
    print(flush=True)


def describe_model(config: TransformerConfig, parameters: int) -> str:
    """Return a line on the size of a model."""
    heads = number_of(config.n_head, "head")
    if config.kv_heads < config.n_head:
        heads += f" ({config.kv_heads} of keys and values)"
    return (f"{parameters:,} parameters: {number_of(config.n_layer, 'layer')}, {heads}, "
            f"{number_of(config.n_embd, 'channel')}, block of {config.block_size:,}")


def describe_training(run: Run) -> str:
    """Return a line on the steps of a run, on its end and on where it begins."""
    s = run.settings
    steps = f"of {number_of(s.characters, run.text.tokenizer.unit)}"
    if s.optimizer == "muon":
        steps += " by Muon and AdamW"
    minutes = "" if s.minutes is None else number_of(s.minutes, "minute")
    if s.max_iters is None:
        line = f"{minutes} of steps {steps}"
    else:
        times = s.max_iters * s.characters / len(run.text.train)
        line = f"{number_of(s.max_iters, 'step')} {steps}, {times:.1f} times the text"
        if minutes:
            line += f", or {minutes} of them"
    line += f", on {number_of(compiled.thread_count(), 'thread')}"
    if run.ranks.size > 1:
        line += f" of each of {run.ranks.size} ranks"
    if run.first:
        line += f"; resumed after step {run.first:,}"
    return line + describe_skips(run.state)


class Progress:
    """A progress bar of steps, or of minutes if the clock may end the run; and lines above it."""

    def __init__(self, run: Run, counted: dict[str, float]) -> None:
        self.run = run
        self.counted = counted
        self.reported = {"spike": -QUIET, "busy": -QUIET}
        self.spans = 0
        self.seconds = 0.0          # of this span
        self.processor = 0.0
        self.took = 0.0             # the same of all spans
        self.had = 0.0
        self.printed_at = time.monotonic()
        s = run.settings
        from minigrad.watch.text import ASCII, signs_for
        columns = bar_columns()
        format = None
        if s.minutes is not None:
            format = "{l_bar}{bar}| {n:.2f}/{total:g} minutes [{elapsed}<{remaining}{postfix}]"
        self.bar = tqdm(
            total=s.minutes or s.steps,
            initial=self._progress(),
            unit="step",
            ncols=columns,
            nrows=columns,          # enough to show it
            dynamic_ncols=columns is None,
            ascii=signs_for(sys.stderr) is ASCII or None,   # None: as its encoding allows
            disable=None,
            bar_format=format)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type | None, error: Exception | None, traceback: object) -> None:
        self.bar.close()
        if not isinstance(error, OSError):      # a full disk would be met again
            self._write_page(goes_on=False)

    def _write_page(self, goes_on):
        """Write the page of the losses, if it is asked for and there are any."""
        run = self.run
        if run.settings.page and run.log and run.log.lines:     # the log is the first rank's
            from model.look.runs import write_page
            write_page(run, self.counted, goes_on)

    def _progress(self):
        """Return the steps, or the minutes, that are done."""
        minutes = self.run.settings.minutes
        state = self.run.state
        return min(state.seconds / 60, minutes) if minutes else state.iteration

    def show(self, step: Step) -> None:
        """Show a step; report a spike of its loss, or that the machine is busy."""
        s = self.run.settings
        state = self.run.state
        bar = self.bar
        if step.taken and (usual := usual_below(state.recent[:-1], step.loss)) is not None:
            self._report("spike", step.number, f"step {step.number:6,}   a spike: the training "
                         f"loss is {step.loss:.3f}, where {usual:.3f} is usual; gradient norm "
                         f"{step.norm:.3g} before clipping")
        self._judge_time(step)
        bar.update(self._progress() - bar.n)
        seen = step.number - self.run.first - WARM_UP
        if 0 < seen <= s.profile and (seen == s.profile or self.run.is_over()):
            bar.write(f"\n{self.run.profile.table()}\n", sys.stdout)
        if step.number % BAR_INTERVAL == 0:
            loss = f"loss {state.recent[-1]:.3f}" if state.recent else "no finite loss"
            bar.set_postfix_str(f"{loss}, {self._describe_speed()}{describe_skips(state)}")
        # The next step may take as long as this one.
        if bar.disable and time.monotonic() - self.printed_at + step.seconds >= SILENCE:
            self._print(self._describe_progress())

    def _describe_speed(self):
        """Return how fast the steps since the last evaluation are."""
        speed = self.run.state.since_evaluation(self.run.settings.characters)[1]
        return f"{speed:,.0f} {self.run.text.tokenizer.unit}s/s"

    def _describe_progress(self):
        """Return a line that takes the place of the bar."""
        s = self.run.settings
        state = self.run.state
        loss = state.since_evaluation(s.characters)[0]
        training = "no finite loss" if loss is None else f"training {loss:.3f}"
        if s.minutes:
            done = f"{self._progress():.2f} of {number_of(s.minutes, 'minute')}"
        else:
            done = f"{state.iteration:,} of {number_of(s.steps, 'step')}"
        return (f"step {state.iteration:6,}   {training:14}   {done}, {self._describe_speed()}"
                f"{describe_skips(state)}")

    def _print(self, line):
        """Print a line above the bar; into a pipe at once, too."""
        self.bar.write(line, sys.stdout)
        sys.stdout.flush()
        self.printed_at = time.monotonic()

    def _judge_time(self, step):
        """Report if the steps of a span took far longer than they had a processor."""
        self.seconds += step.seconds
        self.processor += step.processor
        if self.seconds >= SPAN:
            self.spans += 1
            self.took += self.seconds
            self.had += self.processor
            if self.seconds >= BUSY * self.processor and self.run.ranks.size == 1:
                times = self.seconds / max(self.processor, 1e-9)
                self._report("busy", self.spans, f"step {step.number:6,}   the machine is busy: "
                             f"the last steps took {times:.1f} times the processor time that they "
                             "had; other programs use it, or memory is short")
            self.seconds = self.processor = 0.0

    def describe_slowness(self) -> str:
        """Return what to say at the end of steps that were told to take far longer than they had a
        processor; "" if they did not."""
        if self.reported["busy"] < 0 or self.took < SLOWED * self.had:
            return ""
        line = (f"the machine was busy: the steps took {self.took / max(self.had, 1e-9):.1f} times "
                "the processor time that they had")
        if (minutes := self.run.settings.minutes) is not None:
            line += f"; on a free one, more of them would fit into {number_of(minutes, 'minute')}"
        return line

    def _report(self, what, number, line):
        """Print a line, unless there was one of this kind a few numbers before."""
        if number - self.reported[what] >= QUIET:
            self._print(line)
        self.reported[what] = number

    def show_evaluation(self, train_loss: float | None, val_loss: float) -> None:
        """Show an evaluation, with the best n-gram that its loss is below."""
        line = describe_evaluation(
            self.run.state,
            train_loss,
            val_loss,
            self.counted)
        self._print(line)
        self._write_page(goes_on=True)


def bar_columns() -> int | None:
    """Return how wide a bar on standard error is: BAR_COLUMNS in a terminal whose size nobody has
    set, 0 x 0, in which tqdm would show none; else None, and tqdm follows the terminal."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (AttributeError, OSError, ValueError):       # it is no terminal
        return None
    return None if columns else BAR_COLUMNS


def usual_below(losses: list[float], loss: float) -> float | None:
    """Return the median of a run's last losses if the next one is a spike, else None.

    A spike is DEVIATIONS standard deviations above the median, and SHARE of the median.
    """
    if len(losses) < LEAST_KNOWN:
        return None
    usual = statistics.median(losses)
    # 1.4826 median absolute deviations are the standard deviation of normal numbers.
    deviation = 1.4826 * statistics.median(abs(x - usual) for x in losses)
    return usual if loss > usual + max(DEVIATIONS * deviation, SHARE * usual) else None


def describe_evaluation(
        state: State,
        train_loss: float | None,
        val_loss: float,
        counted: dict[str, float]) -> str:
    """Return a line for an evaluation, with the best n-gram that its loss is below."""
    beaten = {name: loss for name, loss in counted.items() if val_loss < loss}
    training = "" if train_loss is None else f"training {train_loss:.3f}"
    where = "above every counted n-gram"
    if beaten:
        where = f"below the counted {min(beaten, key=beaten.get)}"
    return (f"step {state.iteration:6,}   {training:14}   validation {val_loss:.3f}   {where}"
            f"{describe_skips(state)}")


def describe_skips(state: State) -> str:
    """Return the number of skipped steps, if any, to end a line with."""
    return f", {number_of(state.skipped, 'step')} skipped" if state.skipped else ""


def describe_complete(run: Run) -> str:
    """Return what to say of a run that is complete, with the command that goes on."""
    s = run.settings
    steps = run.state.iteration
    minutes = run.state.seconds / 60
    flag = "--max_iters"
    limit = s.max_iters
    longer = f"{steps + (s.max_iters or 1)}"
    if s.minutes is not None and minutes >= s.minutes:
        flag = "--minutes"
        limit = s.minutes
        longer = f"{math.ceil(100 * (minutes + s.minutes)) / 100:g}"
    return (f"nothing is left to train: the run in {run.folder} has taken "
            f"{number_of(steps, 'step')} in {format_minutes(minutes)} minutes, and {flag} "
            f"{limit:g} counts all of a run, from its beginning.  Go on with:\n"
            f"    {run.folder.resume_command(s.data, flag, longer)}\n"
            f"or let it write:\n    {sample_command(run)}")


def format_minutes(minutes: float) -> str:
    """Return minutes to two digits after the point, in words if they are fewer."""
    return "less than 0.01" if minutes < 0.01 else f"{minutes:.2f}".rstrip("0").rstrip(".")


def describe_stop(run: Run) -> str:
    """Return what to say of a run that was interrupted."""
    if run.is_complete():
        return describe_complete(run)
    last = run.folder / LAST
    steps = run.state.iteration
    saved = f"all is kept in {last}"
    if run.last_saved != steps:
        saved = (f"{last} keeps the first {run.last_saved:,}, as no run could be resumed after the "
                 "others")
    return (f"stopped after {number_of(steps, 'step')}; {saved}.  Resume with:\n"
            f"    {run.folder.resume_command(run.settings.data)}")


def describe_no_progress(run: Run) -> str:
    """Return what to say of a run whose best model is the one that it began with."""
    s = run.settings
    lower = f"--learning_rate {s.learning_rate / LOWER:g}"
    if s.optimizer == "muon":
        lower += f" --muon_lr {s.muon_lr / LOWER:g}"
    return (f"no step made the model better, and {run.folder / BEST} is still the one that the run "
            f"began with; train anew with lower rates, as with {lower}, or on a longer text")


def sample_command(run: Run) -> str:
    """Return the command that writes text with the best model."""
    return command_line("model.sample", "--out_dir", run.folder.path)


def describe_course(log: list[list[float | None]], loss: float, counted: dict[str, float]) -> str:
    """Return the validation losses of a log as a line of blocks, between the first and the last;
    and the counted n-grams on a ruler, with a dot at the loss of the best model.  Above stands what
    is shown."""
    from minigrad.watch.text import block_line, ruler, signs_for
    signs = signs_for(sys.stdout)
    losses = [line[2] for line in log]
    marks = {name.removesuffix("gram").removesuffix("-"): x for name, x in counted.items()}
    return (f"from the first evaluation to the last; and the best model, {signs.dot}, among "
            f"n-grams:\n    {losses[0]:.3f} {block_line(losses, signs)} {losses[-1]:.3f}   "
            f"{ruler(marks | {signs.dot: loss}, signs)}")


def report(run: Run, counted: dict[str, float], slowness: str = "") -> None:
    """Print the loss of the best model over the whole validation part, a sample, and what to do
    next; `slowness` is said beside the loss."""
    s = run.settings
    text = run.text
    best = run.ranks.call_on_first(lambda: load_checkpoint(run.folder / BEST))
    from model.counted.mixture import usual_mixtures
    mixtures = usual_mixtures(best.model, text)
    with announced_if_slow("evaluating the best model on the whole validation part"):
        loss, *mixed = mean_losses(
            best.model,
            mixtures,
            *text.windows(s.block_size),
            batch_size=s.batch_size,
            ranks=run.ranks)
    if not run.ranks.first:
        return
    step = best.training["state"].get("iteration", 0)
    unit = text.tokenizer.unit
    print(f"\nvalidation loss over the whole split, nats a {unit}, best model (step {step:,}):\n"
          f"{ladder(loss, counted, mixed={m.name: x for m, x in zip(mixtures, mixed)})}")
    if run.log and len(run.log.lines) > 1:
        print(f"\n{describe_course(run.log.lines, loss, counted)}")
    taken = run.state.iteration
    passes = taken * s.characters / len(text.train)
    longer = loss >= counted["unigram"]
    if slowness:
        print(f"\nwarning     {slowness}")
    if loss >= counted["unigram"] and passes >= USUAL_PASSES and is_short(len(text)):
        longer = False
        print(f"\nwarning     {len(text):,} {unit}s are too few to learn from: counting single "
              f"{unit}s predicts the rest of the text better than the model does; give it a "
              f"longer text, of thousands of {unit}s at least")
    elif taken and not step and s.learning_rate:
        longer = False
        print(f"\nwarning     {describe_no_progress(run)}")
    compiled.announce("\ncompiling  ")     # of a short run, what draws a sample
    sample = generate(
        best.model,
        best.tokenizer,
        "",
        max_new_tokens=300,
        temperature=0.8,
        seed=s.seed)
    print(f"\na sample:\n\n{sample}\n\nmore of it:\n    {sample_command(run)}")
    if longer:
        minutes = math.ceil(2 * (s.minutes or run.state.seconds / 60))
        print(f"\ncounting single {unit}s still predicts the text better than the model; train it "
              "longer:\n    "
              f"{run.folder.resume_command(s.data, '--minutes', f'{max(MINUTES, minutes):g}')}")
    if skipped := run.state.skipped:
        were = "was" if skipped == 1 else "were"
        print(f"\nof {number_of(taken, 'step')} {skipped:,} {were} skipped, as the loss or its "
              "gradient was not finite; to repeat the first:\n"
              f"    {run.folder.replay_command()}")
