"""Train a character-level transformer on any text, and say how good it is.

    python train.py                             the built-in plays, three minutes of training
    python train.py --data my_text.txt          a text of your own (UTF-8)
    python train.py --minutes 10                longer, and better
    python train.py --init_from resume          go on where a run was stopped
    python train.py --explain                   one step, explained from the text to the weights
    python train.py --replay out/nan.npz        what made a loss nan, in a run that met one
"""
from model.console import startup       # first: Ctrl-C may come while the rest is loaded

import contextlib
import dataclasses
import functools
import os
import pathlib
import shlex
import sys
import time

import numba
from tqdm import tqdm

import data
import minigrad as mg
from minigrad.kernels import ahead
from minigrad.kernels.build import compiling, threads
from model import CharTokenizer, generate, load_checkpoint
from model.console.flags import Parser, mistyped, prepare_output
from model.console.words import in_a_line, number_of
from model.looking.explain import explain
from model.sampling.scoring import ladder, yardstick
from model.storage.checkpoint import BEST, LAST, Checkpoint
from model.storage.files import claimed
from model.training.causality import prove_causality
from model.training.nan import replay
from model.training.recipes import MINUTES, MODERN, USUAL_PASSES, completed, is_short, told
from model.training.run import Run, earlier_run, keep_earlier_run, resume_command
from model.training.settings import ARCHITECTURE, Settings
from model.training.state import Interrupts, State, evaluate

WARM_UP = 5             # steps before a profile begins


def main(argv: list[str] | None = None) -> None:
    """Run the command: find the settings, train, and answer mistakes, each in a line."""
    prepare_output()
    parser = Parser("python train.py", __doc__, Settings(**MODERN, minutes=MINUTES))
    given, mistakes = parser.read(argv)
    out_dir = pathlib.Path(os.path.expanduser(given.get("out_dir", Settings.out_dir)))
    resumed, elsewhere, held = None, "", contextlib.ExitStack()
    try:
        startup.main_begins()
        if "replay" in given:
            if others := given.keys() - {"replay"}:
                mistakes.append("--replay takes all from its file; leave out "
                                + ", ".join(f"--{name}" for name in sorted(others)))
            parser.refuse(mistakes)
            return replay(given["replay"])
        if given.get("out_dir") != "":          # an empty one is refused
            given["out_dir"] = str(out_dir)     # here, wherever a resumed run was begun
        if given.get("init_from") == "resume":
            resumed = earlier_run(out_dir, held, given.get("explain", False))
            elsewhere = ("" if "data" in given else f".  The run in {out_dir} was trained on it; "
                         "where the same text is in another file, give that with --data FILE")
            given, wrong = go_on_with(given, resumed, out_dir)
            mistakes += wrong
        text, unreadable = "", []
        try:
            text = data.read_text(given.get("data", Settings.data))
        except data.TextError as error:
            unreadable = [f"{error}{elsewhere}"]
        s = Settings(**given if resumed else completed(given, len(text)))
        parser.refuse(mistakes + s.problems() + (unreadable or s.problems_with(text)))
        for warning in s.warnings():
            print(f"warning     {warning}")
        run(s, text, resumed, held)
    except ValueError as error:         # all of them say what is wrong and what to do
        sys.exit(f"train.py: {in_a_line(error)}")
    except MemoryError as error:
        sys.exit(f"train.py: there is not enough memory ({error}); take a smaller --batch_size, "
                 "--block_size or --n_embd")
    except BrokenPipeError:             # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        what, otherwise = ((f"into {out_dir}", "give another folder with --out_dir")
                           if error.filename else ("what it has to say", "send that elsewhere"))
        sys.exit(in_a_line(
            f"train.py: cannot write {what}: {error.strerror or error}; "
            + data.remedy(error, otherwise)
            + (f".  What was saved in {out_dir} before is whole; go on from it with "
               f"{resume_command(out_dir)}" if os.path.exists(out_dir / LAST) else "")))
    except KeyboardInterrupt:
        kept = (f"what was saved before is in {out_dir}" if os.path.exists(out_dir / LAST)
                else "nothing had been saved yet")
        print(f"\nstopped at once; {kept}", file=sys.stderr)
        sys.exit(130)
    finally:
        held.close()


def go_on_with(given: dict, resumed: Checkpoint, out_dir: pathlib.Path) -> tuple[dict, list[str]]:
    """Return the settings of a resumed run, by name, and a line for each that it cannot have."""
    earlier = (dataclasses.asdict(Settings(recipe="gpt2"))        # as it once was
               | resumed.training["settings"])
    if wrong := mistyped(Settings, earlier):
        raise ValueError(f"the run in {out_dir} has settings of another type than theirs "
                         f"({', '.join(wrong)}); train anew into another --out_dir")
    earlier["threads"] = min(earlier["threads"], threads.limit()[0])    # of this machine
    mistakes = []
    for name, other in (("minutes", "max_iters"), ("max_iters", "minutes")):
        if name in given and other not in given:        # the end that was meant before
            earlier[other] = None
    for name in ("recipe", *ARCHITECTURE, "optimizer"):
        was = earlier["n_head" if name == "n_kv_head" and not earlier[name] else name]
        if given.get(name, was) != was:
            mistakes.append(f"the run in {out_dir} has --{name} {was}, which cannot become "
                            f"{given[name]} on the way; leave the flag out, or train anew into "
                            "another --out_dir")
            given = given | {name: earlier[name]}
    if unknown := earlier.keys() - {field.name for field in dataclasses.fields(Settings)}:
        raise ValueError(f"the run in {out_dir} has settings that this version does not know "
                         f"({', '.join(sorted(unknown))}); train anew into another --out_dir")
    return earlier | given, mistakes


def run(s: Settings, text: str, resumed: Checkpoint | None, held: contextlib.ExitStack) -> None:
    """Train on a text, from the beginning or from a checkpoint; `held` is released at the end."""
    if s.threads:
        numba.set_num_threads(s.threads)
    out_dir = pathlib.Path(s.out_dir)

    # The text
    tokenizer = CharTokenizer(text)
    train, val = data.split(tokenizer.encode(text))
    val_x, val_y = data.windows(val, s.block_size)                          # (N, T) each
    some = data.spread(len(val_x), s.eval_iters * s.batch_size)             # the same every time
    if resumed and resumed.training["text"] != data.digest(text):
        raise data.TextError(f"the text {s.data} is not the one that the run in {out_dir} was "
                             "trained on; give that with --data, or train anew into another "
                             "--out_dir")

    # The model, what the run will do, and the proof that it cannot cheat
    this = Run(s, tokenizer, text, resumed)
    state = this.state
    counted = yardstick(train, val, tokenizer.vocab_size)
    describe(this, text, counted)
    if s.explain:
        step = functools.partial(this.take_step, train)
        return explain(step, s, this.model, this.optimizer, tokenizer, state, counted)
    prove_causality(this.model, tokenizer.vocab_size, s.block_size)
    if resumed:
        this.know_best(resumed)
    else:
        out_dir.mkdir(parents=True, exist_ok=True)
        held.enter_context(claimed(out_dir))
        keep_earlier_run(out_dir)
    log = this.open_log(resumed is not None)

    # The loop
    first, profile = state.iteration, mg.Profile()
    saved, took = time.monotonic(), 0.0
    with progress_bar(this) as bar, Interrupts() as interrupts:
        while True:
            stop = interrupts.came          # a later one is for the next step
            last = this.progress >= 1
            due = state.iteration % s.eval_interval == 0 or last
            if due and state.iteration != state.evaluated:
                val_loss = this.evaluate(val_x[some], val_y[some])
                train_loss, tokens_per_s = state.since_evaluation(s.characters)
                improved = state.note_evaluation(val_loss)
                log.write(state.iteration, train_loss, val_loss, this.learning_rate, tokens_per_s,
                          state.seconds, state.skipped)
                # In this order: each of them is done again where a run ends before the last.
                if improved or s.always_save_checkpoint:
                    this.save(BEST)
                if this.save_last():
                    saved = time.monotonic()
                bar.write(progress(state, train_loss, val_loss, counted), sys.stdout)
            # Another step would end too late if it took twice as long as the one before.
            elif stop or 0 < s.checkpoint_interval < time.monotonic() - saved + 2 * took:
                if this.save_last():
                    saved = time.monotonic()
            if last or stop:
                break

            measured = WARM_UP <= state.iteration - first < WARM_UP + s.profile
            started = time.monotonic()
            with profile if measured else contextlib.nullcontext():
                this.step(train)
            took = time.monotonic() - started
            bar.update(1 if s.minutes is None else
                       min(state.seconds / 60, s.minutes) - bar.n)
            if measured and profile.steps == s.profile:
                bar.write(f"\n{profile.table()}\n", sys.stdout)
            if state.iteration % s.log_interval == 0:
                speed = state.since_evaluation(s.characters)[1]
                loss = f"loss {state.recent[-1]:.3f}" if state.recent else "no finite loss"
                bar.set_postfix_str(f"{loss}, {speed:,.0f} characters/s{skip_count(state)}")
    if not last:
        kept = ("all is kept" if this.kept == state.iteration else
                f"those up to {this.kept:,}, after which they were skipped, are kept")
        print(f"\nstopped after {number_of(state.iteration, 'step')}; {kept} in {out_dir / LAST}.  "
              f"Go on with:\n    {resume_command(out_dir)}")
        sys.exit(130)
    best = load_checkpoint(out_dir / BEST)
    passes = state.iteration * s.characters / len(train)
    report(best, evaluate(best.model, val_x, val_y, s.batch_size), counted, text, passes, s.seed,
           out_dir)
    if state.skipped:
        print(f"\nof {number_of(state.iteration, 'step')} {state.skipped:,} "
              f"{'was' if state.skipped == 1 else 'were'} skipped, as the loss or its gradient was "
              f"not finite; to see the first again:\n    {this.replay_command()}")


def progress_bar(this: Run) -> tqdm:
    """Return a progress bar of steps, or of minutes if the clock may end the run."""
    s, state, look = this.settings, this.state, dict(dynamic_ncols=True, disable=None)
    if s.minutes is None:
        return tqdm(total=s.steps, initial=state.iteration, unit="step", **look)
    return tqdm(total=s.minutes, initial=min(state.seconds / 60, s.minutes), **look, bar_format=(
        "{l_bar}{bar}| {n:.2f}/{total:g} minutes [{elapsed}<{remaining}{postfix}]"))


def describe(this: Run, text: str, counted: dict[str, float]) -> None:
    """Say what a run will do, and what its losses are to be compared with."""
    s, model, state = this.settings, this.model, this.state
    train, val = data.split(text)
    print(f"text        {s.data}: {len(text):,} characters, {model.config.vocab_size} different "
          f"ones; the last {len(val):,} to validate")
    if warning := data.repetition_warning(train, val):
        print(f"warning     {warning}")
    print(f"recipe      {told(s, len(text))}")
    print(f"model       {sum(p.size for p in model.parameters()):,} parameters: "
          f"{number_of(s.n_layer, 'layer')}, {number_of(s.n_head, 'head')}"
          + (f" ({model.config.kv_heads} of keys and values)"
             if model.config.kv_heads < s.n_head else "")
          + f", {number_of(s.n_embd, 'channel')}, block of {s.block_size}")
    of = f"of {number_of(s.characters, 'character')}"
    if s.optimizer == "muon":
        of += " by Muon and AdamW"
    minutes = None if s.minutes is None else number_of(s.minutes, "minute")
    if s.max_iters is None:
        steps = f"{minutes} of steps {of}"
    else:
        steps = (f"{number_of(s.max_iters, 'step')} {of}, "
                 f"{s.max_iters * s.characters / len(train):.1f} times the text"
                 + (f", or {minutes} of them" if minutes else ""))
    print(f"training    {steps}, on {number_of(threads.count(), 'thread')}"
          + (f"; going on after step {state.iteration:,}" if state.iteration else "")
          + skip_count(state))
    if s.minutes is not None:
        print(f"{'':12}(evaluating, compiling and saving not counted)")
    print("yardstick   counted " + ", ".join(f"{n} {loss:.3f}" for n, loss in counted.items())
          + " nats a character")
    compiling.announce(functools.partial(print, "compiling  ", flush=True))
    ahead.compile_ahead(s.batch_size * s.block_size * s.n_embd, s.optimizer == "muon", s.qk_norm,
                        s.ngrams > 1)
    print(flush=True)


def progress(state: State, train_loss: float | None, val_loss: float,
             counted: dict[str, float]) -> str:
    """Return a line for an evaluation, with the best n-gram that its loss is below."""
    beaten = {name: loss for name, loss in counted.items() if val_loss < loss}
    training = "" if train_loss is None else f"training {train_loss:.3f}"
    standing = (f"below the counted {min(beaten, key=beaten.get)}" if beaten else
                "above every counted n-gram")
    return (f"step {state.iteration:6,}   {training:14}   validation {val_loss:.3f}   {standing}"
            + skip_count(state))


def skip_count(state: State) -> str:
    """Return the number of skipped steps, if any, to end a line with."""
    return f", {number_of(state.skipped, 'step')} skipped" if state.skipped else ""


def report(best: Checkpoint, val_loss: float, counted: dict[str, float], text: str, passes: float,
           seed: int, out_dir: pathlib.Path) -> None:
    """Report the loss of the best checkpoint after that many passes over the text, show a sample of
    it, and say what to do next."""
    step = best.training["state"].get("iteration", 0)
    print(f"\nvalidation loss over the whole split, nats a character, best model (step {step:,}):")
    print(ladder(val_loss, counted))
    if val_loss >= counted["unigram"] and passes >= USUAL_PASSES and is_short(len(text)):
        print(f"\nwarning     {len(text):,} characters are too few to learn from: counting single "
              "characters predicts the rest of the text better than the model does; give it a "
              "longer text, of thousands of characters at least")
    compiling.announce(functools.partial(print, "\ncompiling  ", flush=True))
    sample = generate(best.model, best.tokenizer, "", 300, temperature=0.8, seed=seed)
    print(f"\na sample:\n\n{sample}\n\n"
          f"more of it:\n    python -m model.sample --out_dir {shlex.quote(str(out_dir))}")


if __name__ == "__main__":
    main()
