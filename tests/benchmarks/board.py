"""Whole runs of training by the clock, over several seeds: the recipes beside each other and beside
PyTorch, or one recipe beside itself without each of its parts.

All have the same text, split and threads, and the same minutes of training steps: evaluating,
compiling and saving do not count.  A run's loss is its best model's, over the whole validation
split.
"""
import argparse
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import data
from data import Text
from model import Transformer, load_checkpoint
from model.command import Parser, in_a_line
from model.scoring import evaluate, yardstick
from model.checkpoint import BEST, LAST
from model.run import Run, optimizer_of
from model.settings import Settings, completed
from tests.benchmarks import plot
from tests.benchmarks.remote import (ABSENT, PyTorch, environment_before_minigrad, has_pytorch,
                                     training_of)
from tests.benchmarks.report import Report, machine
from tests.benchmarks.timing import say

ROOT = pathlib.Path(__file__).parents[2]
MINUTES = {"board": [1.0, 3.0, 10.0], "ablation": [1.0]}
PYTORCH = ", PyTorch"
WHOLE = "modern"
WITHOUT = ("--norm layer", "--no-qk_norm", "--position learned", "--activation gelu",
           "--no-zero_init", "--ngrams 1", "--ngram_dropout 0", "--optimizer adamw",
           "--schedule cosine", "--block_size 64 --batch_size 32")
SPREAD = {"loss": "{:.3f}", "least": "{:.3f}", "most": "{:.3f}", "seeds": "{}"}
SAMPLE = 72         # characters of a sample that are shown


@dataclass(frozen=True)
class Entry:
    """What runs at each budget with each seed: train.py with these flags, or PyTorch's twin of
    what they make."""
    name: str
    flags: tuple[str, ...]
    pytorch: bool = False


def measure_board(options: argparse.Namespace, report: Report) -> None:
    """Each recipe, by minigrad and by PyTorch; also as a plot."""
    entries = []
    for recipe in options.recipes:
        entries.append(Entry(recipe, ("--recipe", recipe)))
        if options.pytorch and has_pytorch():
            entries.append(Entry(recipe + PYTORCH, ("--recipe", recipe), pytorch=True))
    notes = [ABSENT] if options.pytorch and not has_pytorch() else []
    found = begun("board", notes, options, report)
    try:
        take_runs("board", entries, found, options, report)
    finally:
        show_board(found, options.plot, report)


def measure_ablation(options: argparse.Namespace, report: Report) -> None:
    """The modern recipe, and the same without each of its parts."""
    entries = [Entry(WHOLE, ("--recipe", WHOLE)),
               *(Entry(flag, ("--recipe", WHOLE, *flag.split())) for flag in WITHOUT)]
    found = begun("ablation", [], options, report)
    try:
        take_runs("ablation", entries, found, options, report)
    finally:
        show_ablation(found, report)


def begun(what: str, notes: list[str], options: argparse.Namespace, report: Report) -> dict:
    """All that is found, before any run or as an earlier file has it; the report keeps it."""
    if options.earlier:
        if what not in report.content:
            sys.exit(f"tests.benchmarks: {options.earlier} holds no {what}; name another --from")
        return report.content[what]
    found = {"data": options.data, "threads": options.threads, "notes": notes, "counted": {},
             "runs": []}
    if options.resume and what in report.content:
        same = ("data", "threads")
        asked = {name: found[name] for name in same} | measured_on(machine())
        before = ({name: report.content[what][name] for name in same}
                  | measured_on(report.content["machine"]))
        if other := [name for name in asked if asked[name] != before.get(name)]:
            sys.exit(f"tests.benchmarks: the {what} in {options.json} has another "
                     f"{' and another '.join(other)}: {before.get(other[0])}, and not "
                     f"{asked[other[0]]}; its runs would not compare.  Begin a new one with "
                     "another --json")
        found["runs"] = report.content[what]["runs"]
    report.keep(what, found)
    return found


def measured_on(machine: dict[str, str]) -> dict[str, str]:
    """What must not change within a board."""
    return {name: machine.get(name) for name in ("processor", "system", "software", "BLAS")}


def take_runs(what: str, entries: list[Entry], found: dict, options: argparse.Namespace,
              report: Report) -> None:
    """One run after the other, with all of the first seed before the second, but for those that
    are found already; each is written as soon as it has ended.  None with --from."""
    if options.earlier:
        return
    text = read_text(options.data)
    found["counted"] = yardstick(text.train, text.val, text.tokenizer.vocab_size)
    done = {(run["seed"], run["minutes"], run["entry"]) for run in found["runs"]}
    wanted = [(seed, minutes, entry) for seed in range(1, options.seeds + 1)
              for minutes in options.minutes or MINUTES[what] for entry in entries
              if (seed, minutes, entry.name) not in done]
    left = sum(minutes for _, minutes, _ in wanted)
    for i, (seed, minutes, entry) in enumerate(wanted):
        say(f"{what}: run {i + 1} of {len(wanted)}, seed {seed}, {minutes:g} min, {entry.name}; "
            f"{left:,.1f} minutes and more to go")
        left -= minutes
        flags = [*entry.flags, "--minutes", f"{minutes:g}", "--seed", str(seed), "--data",
                 text.name, "--threads", str(options.threads)]
        try:
            run = (train_twin if entry.pytorch else train)(flags, text)
            found["runs"].append({"entry": entry.name, "minutes": minutes, "seed": seed} | run)
        except RuntimeError as error:
            found["notes"].append(f"{entry.name}, {minutes:g} min, seed {seed}: absent, because "
                                  f"{error}")
        report.keep(what, found)


def read_text(name: str) -> Text:
    """A text by name or path, as train.py splits it."""
    try:
        return Text.read(name if name in data.KNOWN_TEXTS else
                         os.path.abspath(os.path.expanduser(name)))
    except data.TextError as error:
        sys.exit(in_a_line(f"tests.benchmarks: {error}"))


def run_of(s: Settings, text: Text) -> Run:
    """The run that train.py makes of these settings."""
    model = Transformer(s.model_config(text.tokenizer.vocab_size), s.seed)
    return Run(s, text, model, optimizer_of(model, s))


def train(flags: list[str], text: Text) -> dict[str, object]:
    """Run train.py with these flags, as a user would; says how good its best model is."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "train.py", *flags, "--out_dir", folder]
        with environment_before_minigrad():
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8",
                                  env=os.environ | {"PYTHONIOENCODING": "utf-8"})
        if done.returncode:
            sys.exit(f"tests.benchmarks: python {shlex.join(command[1:])} failed, for the reason "
                     "that it gave above")
        best, last = (load_checkpoint(pathlib.Path(folder, name)) for name in (BEST, LAST))
        windows = text.windows(best.model.config.block_size)
        state = last.training["state"]
        sample = done.stdout.partition("\na sample:\n\n")[2].partition("\n\nmore of it:")[0]
        return {"loss": evaluate(best.model, *windows, best.training["settings"]["batch_size"]),
                "steps": state["iteration"], "seconds": state["seconds"], "sample": sample}


def train_twin(flags: list[str], text: Text) -> dict[str, object]:
    """The run that train.py makes of these flags, with PyTorch's steps in place of minigrad's: the
    same first weights, batches, rates, clock and evaluations."""
    s = Settings(**completed(Parser("train.py", "", Settings).given(flags), len(text)))
    run = run_of(s, text)
    state, some = run.state, text.windows(s.block_size, s.eval_iters * s.batch_size)
    twin = PyTorch(run.model, **training_of(s))
    try:
        while True:
            if run.is_time_to_evaluate():
                if state.note_evaluation(twin.evaluate(*some, s.batch_size)):
                    twin.keep()
            if run.is_over():
                break
            batch = data.random_batch(text.train, s.batch_size, s.block_size, state.batches)
            rates = run.learning_rate(s.learning_rate), run.learning_rate(s.muon_lr)
            state.note_step(*twin.step_at(batch, *rates))
        twin.go_back()
        loss = twin.evaluate(*text.windows(s.block_size), s.batch_size)
        if not math.isfinite(loss):
            raise RuntimeError("its loss is not finite")
        return {"loss": loss, "steps": state.iteration, "seconds": state.seconds}
    finally:
        twin.close()


def show_board(found: dict, plotted: pathlib.Path, report: Report) -> None:
    """Table, yardsticks, beginnings of samples, and plot."""
    rows, notes, groups = [], list(found["notes"]), dict(grouped(found["runs"]))
    for (minutes, name), runs in groups.items():
        ours = groups.get((minutes, name.removesuffix(PYTORCH)))
        rows.append([name, minutes, *spread(runs), mean(runs, "steps"), speed(runs),
                     speed(ours) / speed(runs) if ours and name.endswith(PYTORCH) else math.nan])
    notes += [f"counted {name}: {loss:.3f}" for name, loss in found["counted"].items()]
    notes += [f"{name}, {minutes:g} min, writes: {runs[0]['sample'][:SAMPLE]!r} ..."
              for (minutes, name), runs in groups.items() if runs[0].get("sample")]
    if groups:
        notes.append(plot.draw(found, groups, plotted))
    report.table(
        f"Validation loss after so many minutes of training steps, {found['data']}, --threads "
        f"{found['threads']}, nats a character: mean, least and most of the seeds",
        {"": "{}", "min": "{:g}", **SPREAD, "steps": "{:,.0f}", "steps/s": "{:.1f}",
         "minigrad is": "{:.2f} x as fast"}, rows, notes)


def show_ablation(found: dict, report: Report) -> None:
    """Table, with differences of runs of the same seed."""
    rows, groups = [], dict(grouped(found["runs"]))
    for (minutes, name), runs in groups.items():
        whole = {run["seed"]: run["loss"] for run in groups.get((minutes, WHOLE), ())}
        differences = [run["loss"] - whole[run["seed"]] for run in runs if run["seed"] in whole]
        rows.append([name, minutes, *spread(runs),
                     statistics.mean(differences) if differences and name != WHOLE else math.nan,
                     mean(runs, "steps")])
    report.table(
        f"The recipe {WHOLE} with one part replaced, {found['data']}, --threads "
        f"{found['threads']}, validation loss, nats a character: mean, least and most of the "
        "seeds; and how far above the whole recipe's, seed by seed",
        {"": "{}", "min": "{:g}", **SPREAD, "above it": "{:+.3f}", "steps": "{:,.0f}"}, rows,
        found["notes"])


def grouped(runs: list[dict]) -> Iterator[tuple[tuple[float, str], list[dict]]]:
    """((minutes, name), runs of all seeds), shortest first and then in the order of the runs."""
    for minutes in sorted({run["minutes"] for run in runs}):
        for name in dict.fromkeys(run["entry"] for run in runs):
            alike = [run for run in runs if (run["minutes"], run["entry"]) == (minutes, name)]
            if alike:
                yield (minutes, name), alike


def mean(runs: list[dict], what: str) -> float:
    """Over the seeds."""
    return statistics.mean(run[what] for run in runs)


def spread(runs: list[dict]) -> list[float]:
    """Mean, least and most of the loss, and of how many."""
    losses = [run["loss"] for run in runs]
    return [statistics.mean(losses), min(losses), max(losses), len(losses)]


def speed(runs: list[dict]) -> float:
    """Steps a second."""
    return sum(run["steps"] for run in runs) / sum(run["seconds"] for run in runs)


def read_earlier(path: pathlib.Path, remedy: str) -> dict:
    """What a report wrote; the remedy is said where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and isinstance(found.get("machine"), dict):
            return found
    except OSError as error:
        sys.exit(f"tests.benchmarks: cannot read {path}: {error.strerror}; {remedy}")
    except ValueError:
        pass
    sys.exit(f"tests.benchmarks: {path} is not what --json writes; {remedy}")
