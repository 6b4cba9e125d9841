"""Tables on the screen, and all of it with the raw times in one JSON file; the machine's name."""
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import textwrap
import time

import llvmlite.binding
import numba
import numpy as np

from tests.benchmarks.timing import Timed

WIDTH = 100
VECTORS = {"avx512f": "AVX-512", "avx512bf16": "AVX-512 BF16", "amx-bf16": "AMX BF16",
           "avx2": "AVX2", "fma": "FMA", "neon": "NEON"}


class Report:
    """What was measured: printed as it comes, and written after every table.

    Parameters
    ----------
    path : of the JSON file; an earlier one is written over; None for none.
    earlier : what such a file held that is shown again, or added to.
    """

    def __init__(self, path: pathlib.Path | None, earlier: dict | None = None) -> None:
        self.path = path
        self.content = (earlier or {"machine": machine()}) | {"tables": []}
        if earlier is None:
            self._write()
        for name, value in self.content["machine"].items():
            print(f"{name:11} {value}")

    def keep(self, name: str, found: object) -> None:
        """Write raw results under a name of their own, now."""
        self.content[name] = found
        self._write()

    def table(self, title: str, columns: dict[str, str], rows: list[list],
              notes: list[str] = (), raw: list[Timed] = ()) -> None:
        """Print and keep a table.

        Parameters
        ----------
        columns : heading -> format, such as "{:.1f}"; a nan is left blank.
        raw : whose times the rows are made of.
        """
        if not rows:        # interrupted before the first
            return
        cells = [list(columns)] + [[_shown(form, value) for form, value in zip(columns.values(), r)]
                                   for r in rows]
        widths = [max(map(len, column)) for column in zip(*cells)]
        print("", *textwrap.wrap(title, WIDTH), "", sep="\n")
        for first, *others in cells:
            print("  ".join([first.ljust(widths[0]),
                             *(c.rjust(w) for c, w in zip(others, widths[1:]))]).rstrip())
        if notes:
            print()
        for note in notes:
            print(textwrap.fill(note, WIDTH, subsequent_indent="    "), flush=True)
        self.content["tables"].append({
            "title": title, "columns": list(columns), "notes": list(notes),
            "seconds": {t.name: t.times for t in raw},
            "rows": [[None if _blank(value) else value for value in row] for row in rows]})
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


def _blank(value):
    return isinstance(value, float) and math.isnan(value)


def _shown(form, value):
    return "" if _blank(value) else form.format(value)


def machine() -> dict[str, str]:
    """What the times depend on."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    versions = [f"{name} {_version(name)}" for name in ("numpy", "numba", "llvmlite", "torch")]
    return {"processor": f"{_processor()}; {', '.join(_vectors()) or 'vector features unknown'}",
            "threads": f"{numba.get_num_threads()} of {os.cpu_count()}",
            "system": platform.platform(),
            "software": ", ".join([f"python {platform.python_version()}", *versions]),
            "BLAS": f"{blas['name']} {blas['version']}",
            "date": time.strftime("%Y-%m-%d %H:%M")}


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor():
    try:
        if platform.system() == "Linux":
            lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            return next(line.split(":")[1].strip() for line in lines if "model name" in line)
        if platform.system() == "Darwin":
            command = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except (OSError, StopIteration):
        pass
    return platform.processor() or platform.machine()


def _vectors():
    if platform.machine().lower() in ("arm64", "aarch64"):      # LLVM does not say so on every one
        return ["NEON"]
    try:
        features = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:
        return []
    return [word for feature, word in VECTORS.items() if features.get(feature)]
