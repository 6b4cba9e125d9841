"""Results as tables on the screen, as one JSON file with all raw times, and as plots."""
import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
import textwrap
import time

import llvmlite.binding
import numba
import numpy as np

from minigrad.watch.text import aligned
from tests.benchmarks.timing import dropped_turns, take_turns

WIDTH = 100
FASTER = "{:.2f} x as fast"
PLOTS = {"svg.fonttype": "none", "svg.hashsalt": "board", "font.size": 10,
         "axes.spines.top": False, "axes.spines.right": False}
NO_PLOT = 'No plot, because matplotlib is not installed: python -m pip install -e ".[board]"'


class Report:
    """What was measured; printed at once, and written to the file after every table.

    Parameters
    ----------
    path : of the JSON file; an earlier one is overwritten; None for no file.
    earlier : the content of such a file, if more is added to it.
    """

    def __init__(self, path, earlier=None):
        self.path = path
        self.content = (earlier or {"machine": machine()}) | {"tables": []}
        if earlier is None:
            self._write()
        for name, value in self.content["machine"].items():
            print(f"{name:11} {value}")

    def keep(self, name, found):
        """Write raw results under a name of their own."""
        self.content[name] = found
        self._write()

    def turns(self, title, contestants, rounds, rates, notes=(), form="{:,.1f}", calls=1, **how):
        """Let contestants take turns, and show a table of them, also after an interruption.

        Parameters
        ----------
        rates : heading -> format and amount; the column is the amount over the median in seconds.
        form : of milliseconds.
        calls : what a timed call does so many times; milliseconds are of one of these.
        how : what `take_turns` takes besides.
        """
        try:
            take_turns(contestants, rounds, title.split(",")[0], **how)
        finally:
            if how.get("only_quiet"):
                notes = [*notes, dropped_turns(contestants, rounds)]
            columns = {"": "{}", "median ms": form, "10 %": form, "90 %": form,
                       **{name: rate for name, (rate, _) in rates.items()}, "minigrad is": FASTER}
            self.table(title, columns, [
                [t.name, *(1e3 * t.quantile(q) / calls for q in (0.5, 0.1, 0.9)),
                 *(amount / t.median for _, amount in rates.values()),
                 t.median / contestants[0].median] for t in contestants if t.times], notes,
                contestants)

    def table(self, title, columns, rows, notes=(), raw=()):
        """Print and keep a table.

        Parameters
        ----------
        columns : heading -> format, such as "{:.1f}"; a nan is left blank.
        raw : what the times of the rows come from.
        """
        if not rows:        # interrupted before the first
            return
        rows = [[None if value != value else value for value in row] for row in rows]       # nan
        cells = [list(columns)] + [["" if value is None else form.format(value)
                                    for form, value in zip(columns.values(), row)] for row in rows]
        print("", *textwrap.wrap(title, WIDTH), "",
              *aligned(cells, "<" + ">" * (len(columns) - 1)), *[""] * bool(notes), sep="\n")
        for note in notes:
            print(textwrap.fill(note, WIDTH, subsequent_indent="    "), flush=True)
        self.content["tables"].append({
            "title": title, "columns": list(columns), "notes": list(notes), "rows": rows,
            "seconds": {t.name: t.times for t in raw}})
        self._write()

    def _write(self):
        if self.path is None:
            return
        text = json.dumps(self.content, indent=1, ensure_ascii=False, allow_nan=False)
        try:
            self.path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            sys.exit(f"tests.benchmarks: cannot write {self.path}: {error.strerror}; give another "
                     "file with --json")


def earlier(options):
    """Return the content of the JSON file if the command line says --resume."""
    if not options.resume:
        return None
    try:
        found = json.loads(options.json.read_text(encoding="utf-8"))
        if isinstance(found, dict) and isinstance(found.get("machine"), dict):
            return found
        why = "is not what --json writes"
    except (OSError, ValueError) as error:
        why = f"cannot be read: {getattr(error, 'strerror', None) or 'it is no JSON'}"
    sys.exit(f"tests.benchmarks: {options.json} {why}; name its file with --json, or begin without "
             "--resume")


def machine():
    """Return what the times depend on."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    versions, name = [], platform.processor() or platform.machine()
    for package in ("numpy", "numba", "llvmlite", "torch", "jax", "optax"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    with contextlib.suppress(OSError, StopIteration):       # Linux
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.split(":")[1].strip() for line in lines if "model name" in line)
    return {"processor": f"{name}; {llvmlite.binding.get_host_cpu_name()} to LLVM",
            "threads": f"{numba.get_num_threads()} of {os.cpu_count()}",
            "system": platform.platform(),
            "software": ", ".join([f"python {platform.python_version()}", *versions]),
            "BLAS": f"{blas['name']} {blas['version']}",
            "date": time.strftime("%Y-%m-%d %H:%M")}


def plot(draw_on, height, path):
    """Draw on the axes of a figure of this height in inches, and write it; return a note of the
    outcome."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        return NO_PLOT
    with matplotlib.rc_context(PLOTS):
        figure = Figure(figsize=(7.2, height), layout="constrained", facecolor="white")
        draw_on(figure.add_subplot())
        figure.legend(loc="outside upper center", ncols=4, frameon=False)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            return f"No plot: cannot write {path}: {error}; give another file"
    return f"Plotted in {path}."
