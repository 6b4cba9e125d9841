"""Judge a student's file in a process of its own: it may print, end or never end.

The process keeps the judge from the file's mistakes, and is no sandbox: the file may do whatever
its user may.
"""
import contextlib
import faulthandler
import functools
import json
import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from minigrad.kernels.compiler import compiling
from model.command import ROOT, AtOnce, in_a_line
from model.walk.judge import Fault, Verdict, judge, source_of

OURS = 300          # seconds for what is not the student's, such as compiling
GRACE = 5           # seconds in which the process can show the line of a loop without end
SILENT = 1          # seconds after which a word is said
TICK = 0.5          # seconds between looks at the process
LONGEST = 1 << 16   # bytes of a line of the process
FRAMES = 1000       # lines of a stack
CUT_OFF = 70        # the exit status if the judge cannot answer


def check(path: str | os.PathLike, patience: float = 1) -> Verdict:
    """Judge a student's file; if that takes long, say so on standard error.

    The student's code gets `patience` times the usual seconds.
    """
    path, nonce, stack = os.path.abspath(path), secrets.token_hex(), []
    slow, until = time.monotonic() + SILENT, time.monotonic() + OURS
    with AtOnce(), started([path, nonce, patience]) as (process, lines):
        while True:
            status, line = process.poll(), ""
            with contextlib.suppress(queue.Empty):
                line = lines.get(timeout=TICK)
            now = time.monotonic()
            if line.startswith(nonce):
                kind, what = json.loads(line.removeprefix(nonce))
                if kind == "verdict":
                    return Verdict(*what)
                elif kind == "seconds":
                    until = now + what + GRACE
                else:
                    print(in_a_line(what), file=sys.stderr)
            elif now > until or (status is not None and not line):
                break
            elif len(stack) < FRAMES:
                stack.append(line)
            if now > slow:
                print(f"judging {in_a_line(os.path.basename(path))}; this takes longer the first "
                      "time, when parts of the engine are compiled", file=sys.stderr)
                slow = float("inf")
    frames = re.findall(r'File "(.*)", line (\d+) in (.*)', "".join(stack))
    if patience < 16 and (compiling.__file__, "compile_version") in [
            (file, name) for file, _, name in frames]:
        return check(path, 2 * patience)    # it had to wait for the compiler
    return Verdict(False, [endless(path, frames) if frames or status is None else ended(status)])


def endless(path: str, frames: list[tuple[str, str, str]]) -> str:
    """Say that a file did not end, and in which of its lines it was."""
    said = "It did not end in time.  Is there a loop without end?"
    folder, name = os.path.split(path)
    for file, number, _ in frames:      # faulthandler writes ASCII
        if os.path.dirname(file) == folder.encode("ascii", "backslashreplace").decode():
            base = os.path.basename(file)
            with contextlib.suppress(Fault, IndexError):
                line = source_of(os.path.join(folder, base)).splitlines()[int(number) - 1]
                return (f"{said}  It was in line {number}{f' of {base}' * (base != name)}: "
                        f"{line.decode('utf-8', 'replace').strip()}")
    return said


def ended(status: int) -> str:
    """Say that a file ended the process, with this exit status."""
    if status == CUT_OFF:
        return ("The file closed what the judge answers on.  Take os.close(), os.closerange() and "
                "the like out of it.")
    if status < 0:
        return (f"The file ended the program ({signal.Signals(-status).name}) before it was "
                "judged.  Did it fill the memory, call itself without end, or use ctypes?")
    return ("The file ended the program before it was judged.  Take os._exit() and the like out of "
            "it.")


@contextlib.contextmanager
def started(task: list) -> Iterator[tuple[subprocess.Popen, queue.Queue]]:
    """Start a process that judges, and yield it with the lines that it writes.  At the end kill it
    and the processes that it has started."""
    process = subprocess.Popen(
        [sys.executable, "-m", "model.walk.process"], cwd=ROOT, bufsize=0,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0))
    lines = queue.Queue(100)

    def read():             # a process that has left the group may keep the pipe open for ever
        with process.stdout as pipe:
            while line := pipe.readline(LONGEST):
                lines.put(line.decode("ascii", "replace"))
    threading.Thread(target=read, daemon=True).start()
    try:
        with contextlib.suppress(OSError), process.stdin as pipe:
            pipe.write(json.dumps(task).encode())
        yield process, lines
    finally:
        with contextlib.suppress(OSError):      # none of the group is left
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()


def main() -> None:
    """Judge the file that standard input names, and end whatever the file has left running."""
    sys.dont_write_bytecode = True          # leave nothing in the student's folder
    path, nonce, patience = json.load(sys.stdin)
    answer = os.dup(1)
    for number in range(3):                 # what the student's code reads and writes
        os.dup2(os.open(os.devnull, os.O_RDWR), number)

    def tell(kind, what):
        os.write(answer, f"\n{nonce}{json.dumps([kind, what])}\n".encode())

    @contextlib.contextmanager
    def limited(seconds):
        tell("seconds", patience * seconds)
        faulthandler.dump_traceback_later(patience * seconds, exit=True, file=answer)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            tell("seconds", OURS)
    try:
        tell("verdict", judge(path, limited, functools.partial(tell, "said")))
    except OSError:
        os._exit(CUT_OFF)
    finally:
        os._exit(0)                         # without waiting for threads


if __name__ == "__main__":
    main()
