"""Give the program random input, and mutate what reaches new code.

The guidance is by atheris, an extra:  pip install -e ".[fuzz]".  With --plain, the same seeds are
changed at random, as in the test suite.
"""
import collections
import importlib.util
import os
import random
import re
import subprocess
import sys
import time

from tests.flags import whole
from tests.kit import ROOT
from tests.reliability.damage import mutated
from tests.reliability.targets import TARGETS

MEMORY = 4000       # MB: more is a fault.  A million inputs take some 500
SECONDS = 10        # of one input: more is a fault
SEED = 1            # of the inputs
GUIDED = """
import sys, atheris
with atheris.instrument_imports(include=["data", "model", "train"]):
    from tests.reliability.targets import TARGETS
atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]].check)
atheris.Fuzz()
"""
FLAGS = {"target": (tuple(TARGETS), list(TARGETS), "what is fuzzed"),
         "count": (whole, 1_000_000, "inputs for each"),
         "plain": (bool, False, "changes at random, without guidance")}


def run(options, folder):
    """Return whether every input of every target had a plain answer."""
    if not options.plain and not importlib.util.find_spec("atheris"):
        sys.exit('tests.reliability: atheris is not there; python -m pip install -e ".[fuzz]", or '
                 "give --plain")
    fuzz = plain if options.plain else guided
    return all([fuzz(name, options.count, folder) for name in options.target])


def plain(name, count, folder):
    """Return whether inputs that are changed at random have plain answers; print their kinds."""
    target, draw, started = TARGETS[name], random.Random(SEED), time.monotonic()
    seeds, answers = target.seeds(), collections.Counter()
    for number in range(count):
        content = seeds[number] if number < len(seeds) else mutated(draw.choice(seeds), draw)
        try:
            answers[target.check(content)] += 1
        except Exception as error:
            print(f"{name}: {error!r}\n    at {content!r}")
            return False
    print(f"{name:12}{count:,} inputs at random, {time.monotonic() - started:,.0f} s: "
          + ", ".join(f"{n:,} {answer}" for answer, n in sorted(answers.items())))
    return True


def guided(name, count, folder):
    """Return the same for inputs that grow out of those that reached new code."""
    seeds, words = folder / name, folder / f"{name}.words"
    seeds.mkdir()
    for i, content in enumerate(TARGETS[name].seeds()):
        (seeds / str(i)).write_bytes(content)
    words.write_text("# escaped\n" + "".join(  # as libFuzzer has words in a dictionary
        '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in TARGETS[name].words()))
    command = [sys.executable, "-c", GUIDED, name, f"-runs={count}", f"-seed={SEED}",
               f"-dict={words}", f"-max_len={TARGETS[name].most}", f"-rss_limit_mb={MEMORY}",
               f"-timeout={SECONDS}", f"-artifact_prefix={folder}/", seeds]
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
