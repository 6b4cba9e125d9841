"""Hand the program what was never meant for it, and let what reaches new code breed.

The guidance is atheris', an extra:  pip install -e .[fuzz].  Without it, `--plain` changes the same
beginnings at random, which is what the test suite does.
"""
import argparse
import collections
import importlib.util
import os
import pathlib
import random
import re
import subprocess
import sys
import time

from tests.reliability.mutations import mutated
from tests.reliability.outcome import ROOT
from tests.reliability.targets import TARGETS

MEMORY = 4000       # MB, of which a million inputs take some 500; beyond it is a fault
SECONDS = 10        # likewise


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The settings on the command line."""
    add = parser.add_argument
    add("--target", choices=TARGETS, action="append",
        help="what is fuzzed, may be given again (default: all)")
    add("--count", type=int, default=1_000_000, help="inputs for each (default: %(default)s)")
    add("--inputs", type=int, default=1, metavar="SEED", help="of them (default: %(default)s)")
    add("--plain", action="store_true", help="changed at random, without guidance")


def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    """Whether every input of every target had a plain answer."""
    if not options.plain and not importlib.util.find_spec("atheris"):
        sys.exit("reliability fuzz: atheris is not there; pip install -e .[fuzz], or give --plain")
    return all([(plain if options.plain else guided)(name, options.count, options.inputs, folder)
                for name in options.target or TARGETS])


def plain(name: str, count: int, seed: int, folder: pathlib.Path) -> bool:
    """Whether so many inputs, changed at random, had plain answers; says how they ended."""
    target, draw, started = TARGETS[name], random.Random(seed), time.monotonic()
    seeds, ended = target.seeds(), collections.Counter()
    for content in seeds:
        ended[target.check(content)] += 1
    for _ in range(count - len(seeds)):
        content = mutated(draw.choice(seeds), draw)
        try:
            ended[target.check(content)] += 1
        except Exception as error:
            print(f"{name}: {error!r}\n    at {content!r}")
            return False
    print(f"{name:12}{count:,} inputs at random, {time.monotonic() - started:,.0f} s: "
          + ", ".join(f"{n:,} {end}" for end, n in sorted(ended.items())))
    return True


def guided(name: str, count: int, seed: int, folder: pathlib.Path) -> bool:
    """The same with inputs that grow out of those that reached new code."""
    seeds = folder / name
    seeds.mkdir()
    for i, content in enumerate(TARGETS[name].seeds()):
        (seeds / str(i)).write_bytes(content)
    words = folder / f"{name}.words"
    words.write_text("# escaped\n" + "".join(f'"{escaped(word)}"\n'
                                             for word in TARGETS[name].words()))
    command = [sys.executable, "-m", "tests.reliability.guided", name, f"-runs={count}",
               f"-seed={seed}", f"-dict={words}", f"-max_len={TARGETS[name].most}",
               f"-rss_limit_mb={MEMORY}", f"-timeout={SECONDS}", f"-artifact_prefix={folder}/",
               seeds]
    # A fuzzer ends without removing what it wrote, which therefore goes here.
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"TMPDIR": str(folder)},
                          capture_output=True, text=True, errors="replace")
    ended = re.search(r"Done (\d+) runs in (\d+) second", done.stderr)
    if done.returncode or not ended or int(ended[1]) < count:
        print(f"{name}: ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-5000:]}")
        return False
    edges = re.findall(r"cov: (\d+)", done.stderr)
    print(f"{name:12}{int(ended[1]):,} inputs guided, {int(ended[2]):,} s: {edges[0]} edges of the "
          f"code reached at first, {edges[-1]} at the end, from "
          f"{len(list(seeds.iterdir())):,} inputs kept")
    return True


def escaped(word: bytes) -> str:
    """As libFuzzer has it in a dictionary."""
    return "".join(f"\\x{byte:02x}" for byte in word)
