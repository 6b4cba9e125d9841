"""The losses of a run while it goes on, or of several runs in one chart, as an HTML page."""
import dataclasses
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from data.files import is_in_use, replacing
from minigrad.words import number_of
from model.answers import command_line
from model.checkpoint import BEST, load_arrays, recorded_texts
from model.folder import LOG, PAGE, read_log
from model.look.curves import (counted_losses, describe_comparison, describe_counts,
                               describe_finding, log_table, loss_cell)
from model.look.shell import filled, shell, table
from model.run import Run
from model.score.text import training_text
from model.settings import Settings

FILES = ("curves.css", "curves.js", "runs.js")
MOST_RUNS = 6           # as many lines can be told apart
RENEWED = 5             # seconds after which the page of a run that goes on loads itself anew
# Settings that change neither the model nor how it is judged
ASIDE = ("out_dir", "page", "profile", "explain", "checkpoint_interval", "always_save_checkpoint")


class Record(NamedTuple):
    """What a run has left in its folder."""
    name: str
    log: list[list[float | None]]
    training: dict[str, Any]
    tokenizer: Any

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings; those that its checkpoint does not know have their defaults."""
        return dataclasses.asdict(Settings()) | self.training.get("settings", {})


def read_record(name: str) -> Record:
    """Return what the run in a folder has left there.

    Raises
    ------
    ValueError : there is no such folder, it holds no run, or one without an evaluation.
    """
    folder = pathlib.Path(os.path.expanduser(name))
    if not os.path.isdir(folder):
        what = "is no folder" if os.path.exists(folder) else "is not there"
        raise ValueError(f"{name} {what}; give the folders of runs of train.py")
    if not os.path.exists(folder / LOG):
        raise ValueError(f"{name} holds no {LOG}, in which a run of train.py writes its losses; "
                         "give the folder of such a run")
    log, problem = read_log(folder / LOG)
    if problem:
        raise ValueError(f"{problem}; give the folder of another run")
    if not log:
        raise ValueError(f"the run in {name} has no evaluation yet; look again after its first one")
    checkpoint, arrays = load_arrays(folder / BEST, finite=False)
    arrays.close()
    return Record(name, log, checkpoint.training, checkpoint.tokenizer)


def compare(names: Sequence[str]) -> tuple[str, list[str]]:
    """Return a page with the losses of several runs, by their folders, and lines that say what it
    shows.

    Raises
    ------
    ValueError : a folder holds no run with an evaluation, or stands there twice; or there are too
        many of them.
    """
    if len(names) > MOST_RUNS:
        raise ValueError(f"at most {MOST_RUNS} runs can be told apart in a chart, and these are "
                         f"{len(names)}; leave some out")
    places = {}
    for name in names:
        place = os.path.realpath(os.path.expanduser(name))
        if place in places:
            same = "" if places[place] == name else f", as {places[place]} and as {name}"
            raise ValueError(f"{name} is given twice{same}; give each run once")
        places[place] = name
    records = [read_record(name) for name in names]
    warning = describe_mismatch(records)
    finding = ""
    counted, no_counts = None, "their losses cannot be compared"
    if not warning:
        finding = describe_comparison({record.name: record.log for record in records})
        counted, no_counts = _counted(records[0])
    differences = differing_settings(records)
    facts = {
        "unit": records[0].tokenizer.unit,
        "series": [{"name": record.name, "points": [[line[0], line[2]] for line in record.log]}
                   for record in records],
        "counted": counted}
    windows = describe_windows(records)
    parts = {"title": "Runs side by side", "finding": finding, "state": "",
             "warning": f"{warning}  {windows}".strip(),
             "counts": describe_counts(counted, no_counts)}
    page = _page(parts, facts, _losses_table(records), differences)
    lines = [f"    {name}: {' | '.join(values)}" for name, values in differences]
    return page, [*filter(None, (finding, warning, windows)),
                  *(["what differs in their settings:", *lines] if lines else
                    ["their settings are the same"])]


def describe_mismatch(records: Sequence[Record]) -> str:
    """Return why the losses of runs cannot be compared; "" if they can."""
    first = records[0]
    for other in records[1:]:
        both = f"{first.name} and {other.name}"
        if other.tokenizer.unit != first.tokenizer.unit:
            return (f"The losses cannot be compared: those of {first.name} are nats a "
                    f"{first.tokenizer.unit}, those of {other.name} nats a "
                    f"{other.tokenizer.unit}.")
        if list(other.tokenizer.vocabulary) != list(first.tokenizer.vocabulary):
            return f"The losses cannot be compared: {both} have different tokenizers."
        if other.training.get("text") != first.training.get("text"):
            texts = " and ".join(map(_text_name, (first, other)))
            return f"The losses cannot be compared: {both} read different texts, {texts}."
    return ""


def _text_name(record):
    texts = [pathlib.Path(text).name for text in recorded_texts(record.training)]
    return ", ".join(texts) or "one without a name"


def describe_windows(records: Sequence[Record]) -> str:
    """Return a line if runs were evaluated on other windows of the validation part; else ""."""
    windows = {(s["eval_iters"] * s["batch_size"], s["block_size"])
               for s in (record.settings for record in records)}
    if len(windows) == 1:
        return ""
    return ("They were evaluated on other windows of the validation part (--eval_iters, "
            "--batch_size, --block_size): small differences say little.")


def differing_settings(records: Sequence[Record]) -> list[tuple[str, list[str]]]:
    """Return the flags in which runs differ, each with its value in every run."""
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    settings = [record.settings for record in records]
    differences = []
    for name in fields:
        values = [_shown(fields[name], each[name]) for each in settings]
        if name not in ASIDE and len(set(values)) > 1:
            differences.append((f"--{name}", values))
    return differences


def _shown(field, value):
    """Return the value of a setting in words."""
    if value is None:
        return field.metadata["unset"] or "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _counted(record):
    """Return the losses of n-grams counted on the text of a run; or None, and why."""
    try:
        return counted_losses(training_text(record.training, record.tokenizer)), ""
    except ValueError as error:
        return None, str(error)


def write_page(run: Run, counted: dict[str, float], goes_on: bool) -> None:
    """Write the page of a run into its folder; if the run goes on, an open page renews itself."""
    log = run.log.lines
    steps = number_of(run.state.iteration, "step")
    facts = {
        "unit": run.text.tokenizer.unit,
        "log": log,
        "counted": [(name, round(loss, 3)) for name, loss in counted.items()],
        "renewed": RENEWED if goes_on else None,
        "written": round(time.time())}
    state = f"The run goes on, and has taken {steps}."
    if not goes_on:
        look = command_line("model.look", "--out_dir", run.folder.path)
        state = f"The run has ended after {steps}.  To type into its model: {look}"
    parts = {"title": f"The run in {run.folder.path}", "warning": "", "state": state,
             "finding": describe_finding(log, counted, facts["unit"]),
             "counts": describe_counts(facts["counted"], "")}
    page = _page(parts, facts, log_table(log, facts["unit"]))
    path = run.folder / PAGE
    try:
        with replacing(path) as file:
            file.write(page.encode("utf-8"))
    except PermissionError as error:
        if not is_in_use(error):
            raise
        print(f"warning: another program has {path} open, so it could not be written; close it "
              "there, and the next evaluation writes it", file=sys.stderr)


def _losses_table(records):
    """Return a table in HTML: a row for each step at which a run was evaluated, a column a run."""
    losses = [{int(line[0]): line[2] for line in record.log} for record in records]
    rows = [(f"{step:,}", *(loss_cell(each.get(step)) for each in losses))
            for step in sorted(set().union(*losses))]
    return table(("step", *(record.name for record in records)), rows)


def _page(parts, facts, log, differences=()):
    """Return the page; `parts` are its sentences, `log` is a table in HTML, `differences` the flags
    with their values in each run."""
    nav = {"losses": "Losses"}
    names = ()
    if differences:
        nav["settings"] = "Settings"
        names = [series["name"] for series in facts["series"]]
    settings = table(("flag", *names), [(flag, *values) for flag, values in differences])
    words = {name: escape(part) for name, part in parts.items()}
    body = filled("runs.html", words | {"unit": facts["unit"], "log": log, "settings": settings})
    command = "python train.py --page" if "log" in facts else "python -m model.look"
    return shell(
        parts["title"],
        nav,
        body,
        facts,
        FILES,
        command)
