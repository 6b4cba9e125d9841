"""Train a character-level transformer on any text, and say how good it is.

    python train.py                             the built-in plays, about three minutes
    python train.py --data my_text.txt          a text of your own (UTF-8)
    python train.py --init_from resume          go on where a run was stopped
    python train.py --explain                   one step, explained from the text to the weights
    python train.py --replay out/nan.npz        what made a loss nan, in a run that met one
"""
import contextlib
import dataclasses
import functools
import itertools
import math
import os
import pathlib
import shlex
import sys
import time

import numba
import numpy as np
from tqdm import tqdm

import data
import minigrad as mg
from minigrad.kernels.ahead import compile_ahead, must_compile
from minigrad.optim import warmup_cosine
from model import CharTokenizer, Transformer, TransformerConfig, load_checkpoint, save_checkpoint
from model.causality import prove_causality
from model.checkpoint import (BEST, DAMAGED, LAST, PREVIOUS, Checkpoint, CheckpointError,
                              load_last, restore_optimizer)
from model.explain import explain
from model.files import claimed
from model.flags import Parser, flag, prepare_output
from model.generation import stream
from model.nan import Case, NotFinite, advice, replay
from model.scoring import ladder, yardstick
from model.training import (Interrupts, Log, State, decayed_and_other, evaluate,
                            forward_backward)
from model.transformer import POSITIONS

WARM_UP = 5             # steps before a profile begins
SKIPS_IN_A_ROW = 20     # after which skipping is given up


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that a run can be told; the names are nanoGPT's where it has one."""
    data: str = flag("lantern", "shakespeare, lantern, or the path of a UTF-8 text file")
    out_dir: str = flag("out", "folder for ckpt.npz (best), last.npz (to resume from), "
                               "previous.npz (the one before it), log.csv")
    init_from: str = flag("scratch", "scratch, or resume: go on from out_dir/last.npz as it is set")
    max_iters: int = flag(2800, "optimiser steps in all")
    batch_size: int = flag(12, "sequences of a batch, B")
    block_size: int = flag(64, "characters of a sequence, T")
    n_layer: int = flag(4, "blocks of attention and MLP")
    n_head: int = flag(4, "attention heads, H")
    n_embd: int = flag(128, "channels, C")
    dropout: float = flag(0.0, "share of activations dropped in training")
    bias: bool = flag(False, "biases in linear layers and norms")
    n_kv_head: int = flag(None, "heads of keys and values, each for several of the queries' "
                                "(default: n_head; 1 is multi-query attention)")
    position: str = flag("learned", f"what tells positions apart: {', '.join(POSITIONS)}")
    learning_rate: float = flag(4e-3, "the highest that AdamW gets")
    min_lr: float = flag(None, "what the learning rate falls to (default: a tenth of it)")
    warmup_iters: int = flag(100, "steps over which the learning rate rises")
    lr_decay_iters: int = flag(None, "step at which min_lr is reached (default: max_iters)")
    weight_decay: float = flag(0.1, "of matrices only")
    beta1: float = flag(0.9, "AdamW's memory of the gradient")
    beta2: float = flag(0.99, "AdamW's memory of its square")
    grad_clip: float = flag(1.0, "largest norm of the gradient; 0 does not clip")
    gradient_accumulation_steps: int = flag(1, "batches whose gradients are averaged for one step")
    eval_interval: int = flag(200, "steps between evaluations")
    eval_iters: int = flag(20, "batches of an evaluation, spread evenly over the validation split; "
                               "0 takes all of it, as the last evaluation always does")
    log_interval: int = flag(10, "steps between updates of the progress bar's numbers")
    checkpoint_interval: float = flag(60.0, "seconds between writes of last.npz, which each "
                                            "evaluation writes too; 0 leaves it to those")
    always_save_checkpoint: bool = flag(False, "write ckpt.npz at each evaluation, best or not")
    on_nan: str = flag("stop", "at a loss or gradient that is not finite stop the run, or skip "
                               "the step")
    replay: str = flag(None, "the out_dir/nan.npz of a run that met one: take that step again, and "
                             "show the first op that made a nan or inf; trains nothing")
    seed: int = flag(1337, "of the initial weights, the batches and dropout")
    threads: int = flag(0, "processors to use; 0 takes all that this process may run on")
    profile: int = flag(0, "after so many steps, a table of where their time went, by op "
                           "(50 if no number is given)", alone=50)
    explain: bool = flag(False, "walk through the next step, with numbers, shapes and lines of "
                                "source, and save nothing")

    def problems(self) -> list[str]:
        """What cannot work, one line each."""
        at_least = dict(max_iters=0, batch_size=1, block_size=1, warmup_iters=0, eval_interval=1,
                        eval_iters=0, log_interval=1, gradient_accumulation_steps=1, grad_clip=0,
                        weight_decay=0, checkpoint_interval=0, seed=0, threads=0, profile=0)
        found = [f"--{name} is at least {least}, not {getattr(self, name)}"
                 for name, least in at_least.items() if not getattr(self, name) >= least]
        if not 0 < self.learning_rate < math.inf:
            found.append(f"--learning_rate is a number above 0, not {self.learning_rate}")
        if not 0 <= (self.min_lr or 0.0) < math.inf or not self.weight_decay < math.inf:
            found.append("--min_lr and --weight_decay are numbers of at least 0")
        found += [f"--{name} is at least 0 and below 1, not {getattr(self, name)}"
                  for name in ("beta1", "beta2") if not 0 <= getattr(self, name) < 1]
        if self.init_from not in ("scratch", "resume"):
            found.append(f"--init_from is scratch or resume, not {self.init_from}")
        if self.on_nan not in ("stop", "skip"):
            found.append(f"--on_nan is stop or skip, not {self.on_nan}")
        if self.threads > numba.config.NUMBA_NUM_THREADS:
            found.append(f"--threads is at most {numba.config.NUMBA_NUM_THREADS} here, "
                         f"not {self.threads}")
        try:
            self.model_config(vocab_size=1)
        except ValueError as error:
            found.append(f"the model's {error}")
        return found

    def model_config(self, vocab_size: int) -> TransformerConfig:
        """The settings that shape the model."""
        return TransformerConfig(vocab_size, self.block_size, self.n_layer, self.n_head,
                                 self.n_embd, self.dropout, self.bias, self.n_kv_head,
                                 self.position)


# What a resumed run keeps.
ARCHITECTURE = ("block_size", "n_layer", "n_head", "n_embd", "bias", "n_kv_head", "position")


def main(argv: list[str] | None = None) -> None:
    """The command: find the settings, run, and answer mistakes in one line."""
    prepare_output()
    parser = Parser("python train.py", __doc__, Settings)
    given = parser.given(argv)
    out_dir = pathlib.Path(given.get("out_dir", Settings.out_dir))
    resumed, held = None, contextlib.ExitStack()
    try:
        if "replay" in given:
            if others := given.keys() - {"replay"}:
                parser.error("--replay takes all from its file; leave out "
                             + ", ".join(f"--{name}" for name in sorted(others)))
            return replay(given["replay"])
        if given.get("init_from") == "resume":
            resumed = earlier_run(out_dir, held, given.get("explain", False))
            earlier = dataclasses.asdict(Settings()) | resumed.training["settings"]
            for name in ARCHITECTURE:
                was = earlier["n_head" if name == "n_kv_head" and not earlier[name] else name]
                if given.get(name, was) != was:
                    parser.error(f"the run in {out_dir} has --{name} {was}, which cannot "
                                 f"become {given[name]} on the way; leave the flag out, or train "
                                 "anew into another --out_dir")
            given = earlier | given
            if unknown := given.keys() - {field.name for field in dataclasses.fields(Settings)}:
                raise ValueError(f"the run in {out_dir} has settings that this version does not "
                                 f"know ({', '.join(sorted(unknown))}); train anew into another "
                                 "--out_dir")
        if out_dir.exists() and not out_dir.is_dir():
            raise ValueError(f"--out_dir {out_dir} is a file; give a folder")
        s = Settings(**given)
        if problems := s.problems():
            parser.error("; ".join(problems))
        run(s, resumed, out_dir, held)
    except ValueError as error:         # all of them say what is wrong and what to do
        sys.exit(f"train.py: {error}")
    except MemoryError as error:
        sys.exit(f"train.py: there is not enough memory ({error}); take a smaller --batch_size, "
                 "--block_size or --n_embd")
    except BrokenPipeError:             # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        sys.exit(f"train.py: cannot write into {out_dir}: {error.strerror or error}; make room, or "
                 "give another folder with --out_dir.  What was saved there before is whole"
                 + (f"; go on from it with {resume_command(out_dir)}"
                    if (out_dir / LAST).exists() else ""))
    except KeyboardInterrupt:
        print(f"\nstopped at once; what was saved before is in {out_dir}", file=sys.stderr)
        sys.exit(130)
    finally:
        held.close()


def earlier_run(out_dir: pathlib.Path, held: contextlib.ExitStack, explain: bool) -> Checkpoint:
    """What to go on from.  The folder is held from then on, except to explain a step."""
    last = out_dir / LAST
    if out_dir.is_dir() and not explain:
        held.enter_context(claimed(out_dir))
    resumed, warning = load_last(out_dir)
    if not resumed.optimizer:
        raise ValueError(f"{last} holds a model, but no run to go on with; train.py writes a "
                         "last.npz that does")
    if warning:
        print(f"warning     {warning}, at step {resumed.training['state']['iteration']:,}")
        if last.exists() and not explain:       # else it would become the one before the next
            os.replace(last, out_dir / DAMAGED)
    return resumed


def run(s: Settings, resumed: Checkpoint | None, out_dir: pathlib.Path,
        held: contextlib.ExitStack) -> None:
    """Train, from the beginning or from a checkpoint; `held` is what is let go at the end."""
    if s.threads:
        numba.set_num_threads(s.threads)
    min_lr = s.learning_rate / 10 if s.min_lr is None else s.min_lr
    decay_iters = s.max_iters if s.lr_decay_iters is None else s.lr_decay_iters

    # The text
    text = data.read_text(s.data)
    tokenizer = CharTokenizer(text)
    train, val = data.split(tokenizer.encode(text))
    data.check_lengths(train, val, s.block_size)
    val_x, val_y = data.windows(val, s.block_size)                          # (N, T) each
    some = data.spread(len(val_x), s.eval_iters * s.batch_size)             # the same every time
    digest = data.digest(text)
    if resumed and resumed.training["text"] != digest:
        raise data.TextError(f"the text {s.data} is not the one that the run in {out_dir} was "
                             "trained on; give that with --data, or train anew into another "
                             "--out_dir")

    # The model
    model = resumed.model if resumed else Transformer(s.model_config(tokenizer.vocab_size), s.seed)
    optimizer = mg.AdamW(decayed_and_other(model), s.learning_rate, (s.beta1, s.beta2),
                         weight_decay=s.weight_decay)
    state = State(s.seed)
    if resumed:
        state.restore(resumed.training["state"])
        restore_optimizer(optimizer, model, resumed.optimizer, state.iteration - state.skipped)

    # What the run will do, and the proof that it cannot cheat
    counted = yardstick(train, val, tokenizer.vocab_size)
    describe(s, text, tokenizer, model, counted, state)
    if s.explain:
        lr = warmup_cosine(state.iteration, s.learning_rate, min_lr, s.warmup_iters, decay_iters)
        step = functools.partial(take_step, s, model, optimizer, lr, train, state)
        return explain(step, s, model, optimizer, tokenizer, state, counted)
    prove_causality(model, tokenizer.vocab_size, s.block_size)
    out_dir.mkdir(parents=True, exist_ok=True)
    if not resumed:
        held.enter_context(claimed(out_dir))
        keep_earlier_run(out_dir)
    log = Log(out_dir / "log.csv", state.evaluated if resumed else None,
              skips=s.on_nan == "skip" or state.skipped > 0)

    def save(name, also=None, **more):
        settings = dataclasses.asdict(s) | {"init_from": "scratch", "out_dir": str(out_dir),
                                            "profile": 0}
        if s.data not in data.KNOWN_TEXTS:
            settings["data"] = os.path.abspath(os.path.expanduser(s.data))
        training = dict(settings=settings, text=digest, state=state.saved()) | (also or {})
        save_checkpoint(out_dir / name, model, tokenizer, training, **more)

    def save_last():
        save(LAST, optimizer=optimizer, before=out_dir / PREVIOUS)

    if resumed and not know_best(state, out_dir / BEST):
        save(BEST)

    def stop_or_skip(case, generators, seconds=0.0):
        """Say what made a nan or inf, once, and keep it in nan.npz; then leave the step out, or end
        the run."""
        skips = s.on_nan == "skip" and case.part == "training"
        gives_up = skips and state.skipped_in_row + 1 == SKIPS_IN_A_ROW
        first = not state.skipped
        if first or gives_up or not skips:
            now = state.generators()
            state.restore(generators)
            _, finding = case.again(model, state.dropout)
            bar.write(f"\n{case}\n{finding or '   taken again, all of it is finite'}\n", sys.stderr)
            if first or not skips:
                save("nan.npz", {"nan": case.saved()}, optimizer=optimizer)
            state.restore(now)
            remedy = advice(finding, dataclasses.asdict(s))
            if gives_up or not skips:
                raise ValueError(stopped(case, remedy, gives_up, out_dir))
            bar.write(f"step {case.step:,} is skipped, and those like it will be: weights and "
                      f"optimiser stay as they were.  {remedy}.  To see this again:\n"
                      f"    {replayed(out_dir)}\n", sys.stderr)
        state.note_skip(seconds)

    def evaluated(which):
        """Loss over such windows of the validation split; ends the run where it is not finite."""
        x, y = val_x[which], val_y[which]
        loss = evaluate(model, x, y, s.batch_size)
        if not math.isfinite(loss):
            case = Case.of_validation(state.iteration, model, x, y, s.batch_size)
            stop_or_skip(case, state.generators())
        return loss

    # The loop
    first, profile = state.iteration, mg.Profile()
    tokens = s.batch_size * s.block_size * s.gradient_accumulation_steps    # of a step
    bar = tqdm(total=s.max_iters, initial=state.iteration, unit="step", dynamic_ncols=True,
               disable=None)
    saved, took = time.monotonic(), 0.0
    with bar, Interrupts() as interrupts:
        while True:
            stop = interrupts.came          # a later one is for the next step
            lr = warmup_cosine(state.iteration, s.learning_rate, min_lr, s.warmup_iters,
                               decay_iters)
            last = state.iteration >= s.max_iters
            due = state.iteration % s.eval_interval == 0 or last
            if due and state.iteration != state.evaluated:
                val_loss = evaluated(some)
                train_loss, tokens_per_s = state.since_evaluation(tokens)
                improved = state.note_evaluation(val_loss)
                if last and len(some) < len(val_x):
                    val_loss = evaluated(slice(None))
                log.write(state.iteration, train_loss, val_loss, lr, tokens_per_s, state.seconds,
                          state.skipped)
                # In this order: each of them is done again where a run ends before the last.
                if improved or s.always_save_checkpoint:
                    save(BEST)
                save_last()
                saved = time.monotonic()
                bar.write(progress(state, train_loss, val_loss, counted), sys.stdout)
            # Another step like the one before would end too late.
            elif stop or 0 < s.checkpoint_interval < time.monotonic() - saved + took:
                save_last()
                saved = time.monotonic()
            if last or stop:
                break

            started, before = time.perf_counter(), state.generators()
            measured = WARM_UP <= state.iteration - first < WARM_UP + s.profile
            try:
                with profile if measured else contextlib.nullcontext():
                    step_loss, norm = take_step(s, model, optimizer, lr, train, state)
                took = time.perf_counter() - started
            except NotFinite as error:
                took = time.perf_counter() - started
                stop_or_skip(error.case, before, took)
            else:
                usual = state.spike(step_loss)
                state.note_step(step_loss, took)
                if usual is not None:
                    bar.write(f"step {state.iteration:6,}   a spike: the training loss is "
                              f"{step_loss:.3f}, where {usual:.3f} is usual; gradient norm "
                              f"{norm:.3g} before clipping", sys.stdout)
            bar.update()
            if measured and profile.steps == s.profile:
                bar.write(f"\n{profile.table()}\n", sys.stdout)
            if state.iteration % s.log_interval == 0:
                speed = state.since_evaluation(tokens)[1]
                loss = f"loss {state.recent[-1]:.3f}" if state.recent else "no finite loss"
                bar.set_postfix_str(f"{loss}, {speed:,.0f} characters/s{skip_count(state)}")
    if not last:
        print(f"\nstopped after {state.iteration:,} steps; all is kept in {out_dir / LAST}.  "
              f"Go on with:\n    {resume_command(out_dir)}")
        sys.exit(130)
    best = load_checkpoint(out_dir / BEST)
    report(best, evaluate(best.model, val_x, val_y, s.batch_size), counted, s.seed, out_dir)
    if state.skipped:
        print(f"\nof {state.iteration:,} steps {state.skipped:,} were skipped, as their loss or "
              f"gradient was not finite; the first of them:\n    {replayed(out_dir)}")


def take_step(s: Settings, model: Transformer, optimizer: mg.AdamW, lr: float, train: np.ndarray,
              state: State) -> tuple[float, float]:
    """One step of the optimiser, over one or more batches; returns the training loss and the norm
    of its gradient before clipping.  If one is not finite it raises NotFinite, and weights and
    optimiser are as before."""
    batches = [data.random_batch(train, s.batch_size, s.block_size, state.batches)
               for _ in range(s.gradient_accumulation_steps)]
    loss = forward_backward(model, batches, state.dropout)
    norm = mg.clip_grad_norm_(model.parameters(), s.grad_clip or math.inf)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        optimizer.zero_grad()
        raise NotFinite(Case("training", state.iteration + 1, loss, norm, batches))
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    optimizer.zero_grad()
    return loss, norm


def describe(s: Settings, text: str, tokenizer: CharTokenizer, model: Transformer,
             counted: dict[str, float], state: State) -> None:
    """Say what the run will do, and what its losses are to be held against."""
    train, val = data.split(text)
    characters = s.batch_size * s.block_size * s.gradient_accumulation_steps    # of a step
    print(f"text        {s.data}: {len(text):,} characters, {tokenizer.vocab_size} different ones; "
          f"the last {len(val):,} to validate")
    if warning := data.repetition_warning(train, val):
        print(f"warning     {warning}")
    print(f"model       {sum(p.size for p in model.parameters()):,} parameters: "
          f"{s.n_layer} layers, {s.n_head} heads"
          + (f" ({model.config.kv_heads} of keys and values)"
             if model.config.kv_heads < s.n_head else "")
          + f", {s.n_embd} channels, block of {s.block_size}"
          + (f", positions: {s.position}" if s.position != Settings.position else ""))
    print(f"training    {s.max_iters:,} steps of {characters:,} characters, "
          f"{s.max_iters * characters / len(train):.1f} times the text, "
          f"on {numba.get_num_threads()} threads"
          + (f"; going on after step {state.iteration:,}" if state.iteration else "")
          + skip_count(state))
    print("yardstick   counted " + ", ".join(f"{n} {loss:.3f}" for n, loss in counted.items())
          + " nats a character")
    if must_compile(parallel=(numba.get_num_threads() > 1,)):
        print("compiling   the kernels for this machine, this once; some 15 seconds"
              + ("" if s.explain else ", and 5 before the sample at the end"), flush=True)
        compile_ahead(s.batch_size * s.block_size * s.n_embd)
    print(flush=True)


def progress(state: State, train_loss: float | None, val_loss: float,
             counted: dict[str, float]) -> str:
    """A line for an evaluation, with the best n-gram that its loss is below."""
    beaten = [name for name, loss in counted.items() if val_loss < loss]
    training = "" if train_loss is None else f"training {train_loss:.3f}"
    standing = f"below the counted {beaten[-1]}" if beaten else "above every counted n-gram"
    return (f"step {state.iteration:6,}   {training:14}   validation {val_loss:.3f}   {standing}"
            + skip_count(state))


def skip_count(state: State) -> str:
    """How many steps were skipped, if any, to end a line with."""
    return f", {state.skipped:,} steps skipped" if state.skipped else ""


def stopped(case: Case, remedy: str, gives_up: bool, out_dir: pathlib.Path) -> str:
    """Why a run ends that met a nan or inf, what is kept, and what to do."""
    why = (f"{SKIPS_IN_A_ROW} steps in a row were to be skipped; {case}" if gives_up else str(case))
    kept = "nothing had been saved yet"
    if (last := out_dir / LAST).exists():
        step = load_checkpoint(last).training["state"]["iteration"]
        kept = (f"the best model so far is in {out_dir / BEST}, and {resume_command(out_dir)} goes "
                f"on after step {step:,}, with other settings if you give them")
    return (f"{why}, so the run ends; the op that made it is named above, and again by "
            f"{replayed(out_dir)}.  {remedy}; {kept}")


def replayed(out_dir: pathlib.Path) -> str:
    """The command that shows again what was not finite."""
    return f"python train.py --replay {shlex.quote(str(out_dir / 'nan.npz'))}"


def keep_earlier_run(out_dir: pathlib.Path) -> None:
    """Move the files of an earlier run to a folder of their own instead of writing over them."""
    files = [out_dir / name for name in (LAST, PREVIOUS, DAMAGED, BEST, "log.csv", "nan.npz")]
    files = [file for file in files if file.exists()]
    if files:
        kept = next(folder for n in itertools.count(1)
                    if not (folder := out_dir.with_name(f"{out_dir.name}.{n}")).exists())
        kept.mkdir()
        for file in files:
            os.replace(file, kept / file.name)
        print(f"{out_dir} held an earlier run, which is now in {kept}\n")


def know_best(state: State, path: pathlib.Path) -> bool:
    """Whether the best model of a resumed run is there.

    It may be of a later step than the one that the run goes on from, if that was not kept any more.
    """
    try:
        best = load_checkpoint(path)
    except CheckpointError:
        print(f"warning     {path} is {'damaged' if path.exists() else 'not there'}; until the "
              "next evaluation the model that is gone on from takes its place")
        state.best = math.inf
        return False
    state.best = min(state.best, best.training.get("state", {}).get("best", math.inf))
    return True


def resume_command(out_dir: pathlib.Path) -> str:
    """What to type to go on."""
    return f"python train.py --init_from resume --out_dir {shlex.quote(str(out_dir))}"


def report(best: Checkpoint, val_loss: float, counted: dict[str, float], seed: int,
           out_dir: pathlib.Path) -> None:
    """Say how good the best checkpoint is, show a sample of it, and what to do next."""
    step = best.training["state"]["iteration"]
    print(f"\nvalidation loss over the whole split, nats a character, best model (step {step:,}):")
    print(ladder(val_loss, counted))
    print("\na sample:\n")
    for piece in stream(best.model, best.tokenizer, "", 300, temperature=0.8, seed=seed):
        print(piece, end="", flush=True)
    print(f"\n\nmore of it:\n    python -m model.sample --out_dir {shlex.quote(str(out_dir))}")


if __name__ == "__main__":
    main()
