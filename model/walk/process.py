"""Judge a student's file in a process of its own: the file may print, exit, or loop for ever.

The process keeps the judge from the file's mistakes, and is no sandbox: the file may do whatever
its user may.
"""
import contextlib
import faulthandler
import functools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from model.command import ROOT, AtOnce, announced_if_slow, in_a_line
from model.walk.judge import Fault, Verdict, judge, source_of

OURS = 300          # seconds for what is not the student's code, such as compiling
GRACE = 5           # seconds in which the process can write the stack of an endless loop
TICK = 0.1          # seconds between looks at what the process has written
LONGEST = 1 << 20   # bytes that are read of what the process writes
COMPILER = os.sep.join(["", "numba", "core", ""])     # in the paths of its files
CUT_OFF = 70        # the exit status if the judge cannot answer


def check(path: str | os.PathLike, patience: float = 1) -> Verdict:
    """Judge a student's file; if that takes long, say so on standard error.

    The student's code gets `patience` times the usual seconds, and more if it waits for kernels.
    """
    path = os.path.abspath(path)
    with AtOnce(), announced_if_slow(
            f"judging {in_a_line(os.path.basename(path))}; this takes longer the first time, when "
            "parts of the engine are compiled"):
        while True:
            verdict, frames = attempt(path, patience)
            if patience >= 16 or not any(COMPILER in file for file, _ in frames):
                return verdict
            patience *= 2


def attempt(path: str, patience: float) -> tuple[Verdict, list[tuple[str, str]]]:
    """Judge a file in a new process.  Return the verdict, and the frames, (file, line), in which
    the process was if it was stopped, the innermost first."""
    nonce, seen, until = secrets.token_hex(), 0, time.monotonic() + OURS
    with started(path, nonce, patience) as (process, answer):
        while True:
            status = process.poll()         # before the look, so that the last line is seen
            with open(answer, "rb") as file:
                written = file.read(LONGEST).decode("ascii", "replace")
            for message in re.findall(f"^{nonce}(.*)\n", written, re.M)[seen:]:
                kind, what = json.loads(message)
                seen += 1
                if kind == "verdict":
                    return Verdict(*what), []
                if kind == "seconds":
                    until = time.monotonic() + what + GRACE
                else:
                    print(in_a_line(what), file=sys.stderr)
            if status is not None or time.monotonic() > until:
                break
            time.sleep(TICK)
    frames = re.findall(r'File "(.*)", line (\d+) in ', written)
    said = endless(path, frames) if frames or status is None else ended(status)
    return Verdict(False, [said]), frames


def endless(path: str, frames: list[tuple[str, str]]) -> str:
    """Say that a file did not end, and in which of its lines it was."""
    said = "It did not end in time.  Is there a loop without end?"
    folder, name = os.path.split(path)
    for file, number in frames:         # faulthandler writes ASCII
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
def started(path: str, nonce: str, patience: float) -> Iterator[tuple[subprocess.Popen, str]]:
    """Start a process that judges, and yield it with the path of the file that it answers in.  At
    the end, kill it and the processes that it has started.  If this process is killed, the pipe to
    its standard input is closed, and it ends itself and them."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        answer = os.path.join(folder, "answer")
        open(answer, "xb").close()
        process = subprocess.Popen(
            [sys.executable, "-m", "model.walk.process", path, nonce, str(patience), answer],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0))
        try:
            yield process, answer
        finally:
            with contextlib.suppress(OSError):      # none of the group is left
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            process.stdin.close()
            process.wait()


def _end_with_the_first(pipe):
    """Wait until the process that started this one has ended, and end the group of this one."""
    with contextlib.suppress(OSError):          # the file has closed the pipe
        os.read(pipe, 1)
        if hasattr(os, "killpg"):
            os.killpg(0, signal.SIGKILL)
        os._exit(CUT_OFF)


def main() -> None:
    """Judge the file that the command line names, and end whatever the file has left running."""
    sys.dont_write_bytecode = True          # leave nothing in the student's folder
    path, nonce, patience, answer = sys.argv[1:]
    del sys.argv[1:]
    threading.Thread(target=_end_with_the_first, args=(os.dup(0),), daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)        # which is empty, for the file
    answer = os.open(answer, os.O_WRONLY | os.O_APPEND)
    os.dup2(1, 2)                           # what is not caught of the student's output goes away

    def tell(kind, what):
        os.write(answer, f"\n{nonce}{json.dumps([kind, what])}\n".encode())

    @contextlib.contextmanager
    def limited(seconds):
        seconds *= float(patience)
        tell("seconds", seconds)
        faulthandler.dump_traceback_later(seconds, exit=True, file=answer)
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
