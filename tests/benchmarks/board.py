"""Whole runs of training, over several seeds: the recipes beside each other and beside PyTorch,
or one recipe beside itself with one part replaced.

All have the same text, split and threads, and the same minutes of training steps, where
evaluating, compiling and saving do not count; or with --characters the same number of characters
trained on, which does not depend on the machine.  A run's loss is that of its best model, over the
whole validation split.
"""
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

import numpy as np

import data
from data import Text
from minigrad.words import in_a_line
from model import load_checkpoint
from model.checkpoint import BEST, LAST
from model.command import Parser
from model.run import Step
from model.scoring import evaluate, yardstick
from model.settings import Settings, complete_settings, resolve_from_scratch
from tests.benchmarks.remote import ABSENT, environment_before_minigrad, has_pytorch, pytorch
from tests.benchmarks.report import FASTER, machine, plot
from tests.benchmarks.timing import say
from tests.kit import ROOT, run_of

MINUTES = {"board": [1.0, 3.0, 10.0], "ablation": [1.0]}
PYTORCH = ", PyTorch"       # ends the name of what has its steps
WHOLE = "modern"
WITHOUT = ("--norm layer", "--no-qk_norm", "--position learned", "--activation gelu",
           "--no-zero_init", "--ngrams 1", "--ngram_dropout 0", "--ngram_decay 0.1",
           "--ahead 0", "--optimizer adamw", "--no-equal_rows", "--schedule cosine",
           "--block_size 64 --batch_size 32", "--windows random")
SPREAD = {"loss": "{:.3f}", "least": "{:.3f}", "most": "{:.3f}", "seeds": "{}"}
CONDITIONS = "unit", "data", "threads", "processor", "system", "software", "BLAS"
COLOURS = ("#0b62a4", "#c8500a")
GREY = "#666666"
ABOVE = 1.3         # times the highest loss: counted n-grams with more are not drawn


def measure_board(options, report):
    """Show each recipe, by minigrad and by PyTorch, in a table and a plot."""
    sides, notes = [""], []
    if not options.no_pytorch and has_pytorch():
        sides.append(PYTORCH)
    elif not options.no_pytorch:
        notes.append(ABSENT)
    take_runs("board", {recipe + side: ["--recipe", recipe] for recipe in options.recipes
                        for side in sides}, notes, options, report)


def measure_ablation(options, report):
    """Show the modern recipe, and the same with each of its parts replaced."""
    take_runs("ablation", {flags or WHOLE: ["--recipe", WHOLE, *flags.split()]
                           for flags in ("", *WITHOUT)}, [], options, report)


def begin(what, notes, options, report):
    """Return an empty board, or with --resume that of the file, if it was measured under the same
    conditions; the report keeps it."""
    now = {"unit": "characters" if options.characters else "minutes", "data": options.data,
           "threads": options.threads} | machine()
    found = {"conditions": {name: now[name] for name in CONDITIONS}, "notes": notes,
             "counted": {}, "runs": []}
    if options.resume and what in report.content:
        before = report.content[what]
        for name, value in found["conditions"].items():
            if value != before["conditions"][name]:
                sys.exit(f"tests.benchmarks: the {what} in {options.json} has another {name}: "
                         f"{before['conditions'][name]}, and not {value}; its runs do not compare."
                         "  Begin a new one with another --json")
        found["runs"] = before["runs"]
    report.keep(what, found)
    return found


def take_runs(what, entries, notes, options, report):
    """Take one run after the other, all of the first seed before the second, except for those of an
    earlier board; write each as soon as it has ended, and show what there is at the end.

    Parameters
    ----------
    entries : name -> flags of train.py, or of its twin.
    """
    text, found = read_text(options.data), begin(what, notes, options, report)
    found["counted"] = yardstick(text.train, text.val, text.tokenizer.vocab_size)
    done = [(run["seed"], run["budget"], run["entry"]) for run in found["runs"]]
    unit = found["conditions"]["unit"]
    wanted = [(seed, budget, name) for seed in range(1, options.seeds + 1)
              for budget in options.characters or options.minutes or MINUTES[what]
              for name in entries if (seed, budget, name) not in done]
    left = sum(budget for _, budget, _ in wanted)
    try:
        for i, (seed, budget, name) in enumerate(wanted, 1):
            of = f"{name}, {budget:,.10g} {unit}, seed {seed}"
            say(f"{what}: run {i} of {len(wanted)}, {of}; {left:,.10g} {unit} and more to go")
            left -= budget
            flags = flags_of_run(entries[name], unit, budget, seed, text, options)
            try:
                run = (train_twin if PYTORCH in name else train)(flags, text)
                found["runs"].append({"entry": name, "budget": budget, "seed": seed} | run)
            except RuntimeError as error:
                found["notes"].append(f"{of}: absent, because {error}")
            report.keep(what, found)
    finally:
        show(what, found, options.plot, report)


def flags_of_run(flags, unit, budget, seed, text, options):
    """Return the flags of a run that ends after so many minutes, or after the steps that read so
    many characters."""
    limit = ["--minutes", f"{budget:g}"]
    if unit == "characters":
        given = Parser("train.py", "", Settings).parse([*flags, "--max_iters", "1"])
        step = Settings(**complete_settings(given, len(text))).characters
        limit = ["--max_iters", str(math.ceil(budget / step))]
    return [*flags, *limit, "--seed", str(seed), "--data", text.name,
            "--threads", str(options.threads)]


def read_text(name):
    """Return a text by name or path, split as by train.py."""
    if name not in data.KNOWN_TEXTS:
        name = os.path.abspath(os.path.expanduser(name))
    try:
        return Text.read(name)
    except data.TextError as error:
        sys.exit(in_a_line(f"tests.benchmarks: {error}"))


def train(flags, text):
    """Run train.py with these flags; return the loss of its best model, steps and seconds."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "train.py", *flags, "--out_dir", folder]
        with environment_before_minigrad():
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(f"tests.benchmarks: python {shlex.join(command[1:])} failed, for the reason "
                     "that it gave above")
        best, last = (load_checkpoint(pathlib.Path(folder, name)) for name in (BEST, LAST))
    windows = text.windows(best.model.config.block_size)
    state = last.training["state"]
    return {"loss": evaluate(best.model, *windows, best.training["settings"]["batch_size"]),
            "steps": state["iteration"], "seconds": state["seconds"]}


def train_twin(flags, text):
    """Take the run that train.py makes of these flags, with PyTorch's steps in place of minigrad's:
    the same first weights, batches, learning rates, clock and evaluations."""
    s = resolve_from_scratch(
        Parser("train.py", "", Settings).parse(flags),
        characters=len(text),
        vocabulary=text.tokenizer.vocab_size)
    run = run_of(s, text)
    state, some = run.state, text.windows(s.block_size, s.eval_iters * s.batch_size)
    with pytorch(run.model, s) as twin:
        while True:
            if run.is_time_to_evaluate():
                if state.note_evaluation(twin.call("evaluate", *some, s.batch_size)):
                    twin.call("keep")
            if run.is_over():
                break
            (ids, targets), = run.batches(Step(state.iteration + 1, {}))
            multiplier = run.multiplier()
            state.note_step(*twin.ask("step", ids, targets, s.learning_rate * multiplier,
                                      s.muon_lr * multiplier, run.ahead()))
        twin.call("go_back")
        loss = twin.call("evaluate", *text.windows(s.block_size), s.batch_size)
    if not math.isfinite(loss):
        raise RuntimeError("its loss is not finite")
    return {"loss": loss, "steps": state.iteration, "seconds": state.seconds}


def show(what, found, path, report):
    """Show the table of a board or an ablation; of a board also the counted n-grams and a plot."""
    where = "{data}, --threads {threads}".format_map(found["conditions"])
    unit, notes = found["conditions"]["unit"], list(found["notes"])
    groups = grouped(found["runs"])
    if what == "board":
        columns, compare = {"steps/s": "{:.1f}", "minigrad is": FASTER}, speeds
        notes += [f"counted {name}: {loss:.3f}" for name, loss in found["counted"].items()]
        if groups:
            budget = f"{unit} of training steps, {where} (log scale)"
            notes.append(plot(lambda axes: draw(axes, found["counted"], groups, budget), 4.6, path))
    else:
        columns, compare = {"above it": "{:+.3f}"}, above
        notes.append(f"Each is {WHOLE} with one part replaced; above it: the mean difference from "
                     f"the loss of {WHOLE} with the same seed.")
    rows = [[name, budget, *spread(runs), statistics.mean(run["steps"] for run in runs),
             *compare(groups, budget, name)] for (budget, name), runs in groups.items()]
    report.table(
        f"The {what}: validation loss after so many {unit} of training steps, {where}, nats a "
        "character: mean, least and most of the seeds",
        {"": "{}", unit: "{:,.10g}", **SPREAD, "steps": "{:,.0f}", **columns}, rows, notes)


def grouped(runs):
    """Return the runs in groups, (budget, name) -> those of all seeds; the shortest come first."""
    groups = {}
    for run in sorted(runs, key=lambda run: run["budget"]):
        groups.setdefault((run["budget"], run["entry"]), []).append(run)
    return groups


def spread(runs):
    """Return mean, least and most of the losses, and their number."""
    losses = [run["loss"] for run in runs]
    return [statistics.mean(losses), min(losses), max(losses), len(losses)]


def speeds(groups, budget, name):
    """Return steps per second, and how many times as fast minigrad is, beside PyTorch."""
    def speed(name):
        runs = groups.get((budget, name), [])
        return sum(run["steps"] for run in runs) / (sum(run["seconds"] for run in runs) or math.nan)
    ours = speed(name.removesuffix(PYTORCH)) if PYTORCH in name else math.nan
    return [speed(name), ours / speed(name)]


def above(groups, budget, name):
    """Return the mean difference from the whole recipe with the same seed."""
    whole = {run["seed"]: run["loss"] for run in groups.get((budget, WHOLE), [])}
    found = [run["loss"] - whole[run["seed"]] for run in groups[budget, name]
             if run["seed"] in whole and name != WHOLE]
    return [statistics.mean(found) if found else math.nan]


def draw(axes, counted, groups, title):
    """Draw loss over the budget: means, and bars from least to most.  A recipe has its colour,
    PyTorch is dotted; a counted n-gram that is not far above the runs is a level with its name."""
    budgets, names = (list(dict.fromkeys(of)) for of in zip(*groups))
    recipes = list(dict.fromkeys(name.removesuffix(PYTORCH) for name in names))
    for name in names:
        points = [(budget, *spread(runs)) for (budget, of), runs in groups.items() if of == name]
        budget, mean, least, most, _ = np.array(points).T
        colour = COLOURS[recipes.index(name.removesuffix(PYTORCH))]
        style = dict(linestyle="-", markerfacecolor=colour)
        if PYTORCH in name:
            style = dict(linestyle=":", markerfacecolor="white")
        axes.errorbar(budget, mean, [mean - least, most - mean], label=name, color=colour,
                      capsize=3, marker="o", **style)
    highest = max(run["loss"] for runs in groups.values() for run in runs)
    for name, loss in counted.items():
        if loss < ABOVE * highest:
            axes.axhline(loss, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
            axes.annotate(f"counted {name} {loss:.2f}", (1, loss), (0, 2),
                          ("axes fraction", "data"), "offset points", ha="right", va="bottom",
                          color=GREY, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(budgets[0] / 1.25, budgets[-1] * 1.8)         # room for the n-grams' names
    axes.set_xticks(budgets, [f"{budget:,.10g}" for budget in budgets])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(title)
    axes.set_ylabel("validation loss, whole split, nats per character")
    seeds = max(map(len, groups.values()))
    axes.set_title(f"mean, and bars from the least to the most of the seeds: {seeds}",
                   loc="left", fontsize=10)
