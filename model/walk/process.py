"""Judge a student's file in a process of its own: the file may print, exit, or loop for ever.

`check` starts the process, waits, and reads the verdict; `main` is what runs in the process.  This
is for a file's mistakes, and is no sandbox: the file may do what its user may.
"""
import contextlib
import faulthandler
import functools
import json
import linecache
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from minigrad.words import in_a_line
from model.answers import announced_if_slow
from model.interrupts import Interrupts
from model.start import ROOT
from model.walk.judge import Verdict, judge

TICK = 0.1          # seconds between looks at the process
MOST_PATIENCE = 16
COMPILER = os.sep.join(["", "numba", "core", ""])     # in the paths of its files
CRASH = 0xC0000000  # the exit status of a crash on Windows is this or larger, as 0xC0000005


def check(path: str | os.PathLike, patience: float = 1) -> Verdict:
    """Judge a student's file; if that takes long, say so on standard error.

    The student's code gets `patience` times the usual seconds, and more if it waits for kernels.
    """
    path = os.path.abspath(path)
    name = in_a_line(os.path.basename(path))
    what = (f"judging {name}; this takes longer the first time, when parts of the engine are "
            "compiled")
    with Interrupts(at_once=True), announced_if_slow(what):
        while True:
            verdict, stack = attempt(path, patience)
            if COMPILER not in stack or patience >= MOST_PATIENCE:
                return verdict
            patience *= 2


def attempt(path: str, patience: float) -> tuple[Verdict, str]:
    """Judge a file in a new process.  Return the verdict, and, if the file did not end in time,
    the calls that it was in, the innermost first, as faulthandler writes them."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        status = run([path, str(patience), folder])
        left = {file.name: file.read_text("utf-8", "replace")
                for file in pathlib.Path(folder).iterdir()}
    stack = left.get("stack", "")
    if "verdict" in left:
        return Verdict(*json.loads(left["verdict"])), ""
    return Verdict(False, [endless(path, stack) if stack else ended(status)]), stack


def run(words: list[str]) -> int:
    """Run `main` on these words in a new process, with a group of its own; when it ends, or this
    call does, end the others of its group.  Return its exit status."""
    process = subprocess.Popen(
        [sys.executable, "-m", "model.walk.process", *words], cwd=ROOT,
        stdin=subprocess.DEVNULL, stdout=2, start_new_session=True,     # prints go to stderr
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0))       # on Windows
    try:
        while process.poll() is None:
            time.sleep(TICK)                # on Windows, Ctrl-C does not end process.wait
        return process.returncode
    finally:
        end_group(process.pid)
        process.kill()
        process.wait()


def end_group(pid: int) -> None:
    """End the processes in the group of this one: itself, and those that it has started."""
    with contextlib.suppress(OSError):      # none of the group is left
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.CTRL_BREAK_EVENT)       # Windows sends it to the group


def endless(path: str, stack: str) -> str:
    """Say that a file did not end, and in which of its lines it was."""
    said = "It did not end in time.  Is there a loop without end?"
    folder, name = os.path.split(path)
    in_ascii = folder.encode("ascii", "backslashreplace").decode()      # as faulthandler writes
    for file, number in re.findall(r'File "(.*)", line (\d+) in ', stack):
        base = os.path.basename(file)
        line = linecache.getline(os.path.join(folder, base), int(number)).strip()
        if os.path.dirname(file) == in_ascii and line:
            of = "" if base == name else f" of {base}"
            return f"{said}  It was in line {number}{of}: {line}"
    return said


def ended(status: int) -> str:
    """Say that a file ended the process, with this exit status."""
    if status < 0:
        name = signal.Signals(-status).name
    elif status >= CRASH:
        name = f"0x{status:X}"
    else:
        return ("The file ended the program before it was judged.  Take os._exit() and the like "
                "out of it.")
    return (f"The file ended the program ({name}) before it was judged.  Did it fill the memory, "
            "call itself without end, or use ctypes?")


def main() -> None:
    """Judge the file that the command line names, and leave the verdict in the folder."""
    sys.dont_write_bytecode = True          # leave nothing in the student's folder
    path, patience, folder = sys.argv[1:]

    @contextlib.contextmanager
    def limited(seconds: float) -> Iterator[None]:
        with open(os.path.join(folder, "stack"), "w", encoding="ascii") as stack:
            faulthandler.dump_traceback_later(seconds * float(patience), exit=True, file=stack)
            try:
                yield
            finally:
                faulthandler.cancel_dump_traceback_later()
    verdict = judge(path, limited, functools.partial(print, file=sys.stderr, flush=True))
    pathlib.Path(folder, "verdict").write_text(json.dumps(verdict), encoding="utf-8")
    os._exit(0)                             # without waiting for the file's threads


if __name__ == "__main__":
    main()
