"""Compute every op and kernel in processes that compile and that load, and compare all bits.

Each process computes all results on one thread and on all, in an order of its own.  The first one
uses the kernels on disk.  The others compile into empty folders: --rounds times for this processor,
once without LLVM's vectorisers, and once for each --cpu.  After each, another process loads what it
compiled.  Runs of train.py whose first half compiles are compared with runs that load all kernels.
"""
import hashlib
import itertools
import json
import random
import subprocess
import sys
import zlib
from functools import partial

import numba
import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler import compiling
from minigrad.random import draw
from model import Transformer, TransformerConfig
from model.kv_cache.decoder import Decoder
from tests.flags import count
from tests.kit import ROOT, normal
from tests.minigrad.op_examples import EXAMPLES, computed
from tests.minigrad.ragged_examples import RAGGED
from tests.reliability.runs import differences, environment_of_all_threads

FLAGS = {"rounds": (count, 1, "of compiling for this processor"),
         "cpu": (str, [], "LLVM's names of other processors whose code this one runs: haswell"),
         "only": (str, [], "ops and kernels whose names begin so, and no runs (default: all)")}
EQUAL = "all bits are equal"
# Of matrices: ragged, with whole lanes, below and above what wakes threads.
SHAPES = [(1, 1), (3, 5), (5, 16), (7, 17), (33, 31), (9, 100), (300, 65), (600, 128)]
FLOATS = np.float32, np.float64
UNVECTORISED = {"NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}
STEPS = 20
RUN = ("--n_layer 2 --n_head 2 --n_embd 64 --block_size 64 --batch_size 16 --eval_interval 10 "
       f"--eval_iters 2 --warmup_iters 5 --lr_decay_iters {STEPS}").split()


def run(options, folder):
    """Return whether all bits are equal."""
    kinds = {f"compiled, round {n}": {} for n in range(1, options.rounds + 1)}
    kinds["compiled without vectorisers"] = UNVECTORISED
    kinds |= {f"compiled for {cpu}": {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}
              for cpu in options.cpu}
    expected, wrong = results({}, options.only, 0), []
    print(f"{len(expected):,} results, each on 1 thread and on all: {compared(expected, expected)}")
    for n, (kind, settings) in enumerate(kinds.items(), 1):
        kept = settings | {"NUMBA_CACHE_DIR": str(folder / str(n))}
        for how, order in ((kind, 2 * n), (kind.replace("compiled", "loaded"), 2 * n + 1)):
            found = compared(expected, results(kept, options.only, order))
            print(f"{how}: {found}", flush=True)
            if found != EQUAL:
                wrong.append(how)
    for recipe in () if options.only else ("modern", "gpt2"):
        cold, warm = folder / f"{recipe}_cold", folder / f"{recipe}_warm"
        train(recipe, cold, {"NUMBA_CACHE_DIR": str(folder / recipe)})
        train(recipe, warm, {})
        found = differences(cold, warm)
        print(f"{recipe}, begun by a process that compiles: "
              + (f"{len(found)} differences, such as {found[0]}" if found else EQUAL), flush=True)
        wrong += found
    return not wrong and compared(expected, expected) == EQUAL


def results(settings, only, order):
    """Return the digests of each result, by name, from a process with these variables."""
    found = {}
    for line in python("-m", "tests.reliability.bits", str(order), *only, **settings).splitlines():
        name, digest = json.loads(line)
        found.setdefault(name, []).append(digest)
    return found


def print_results(order, only):
    """Print the name and the digest of each result as a line of JSON, on one thread and on all."""
    of_matrices = [beside_ops(*shape, dtype) for shape in SHAPES for dtype in FLOATS]
    named = [(name, f) for name, f in itertools.chain(*of_matrices, decoders(), every_op())
             if name.startswith(tuple(only) or "")]
    random.Random(order).shuffle(named)
    compiling.FEW = 1       # so that a few numbers are shared by threads
    most = numba.get_num_threads()
    for name, compute in named:
        for threads in {1, most}:
            numba.set_num_threads(threads)
            found = compute(np.random.default_rng(zlib.crc32(name.encode())))
            print(json.dumps([name, digest(found)]), flush=True)


def compared(expected, found):
    """Return in words which results do not all have the same digest."""
    names = [name for name in expected.keys() | found.keys()
             if len({*expected.get(name, [""]), *found.get(name, [""])}) > 1]
    if not names:
        return EQUAL
    return f"{len(names)} of {len(expected)} differ, such as {', '.join(sorted(names)[:3])}"


def train(recipe, out_dir, settings):
    """Run train.py: the first half in one process, the second half in another."""
    common = ["train.py", "--out_dir", str(out_dir)]
    python(*common, "--recipe", recipe, "--max_iters", str(STEPS // 2), *RUN, **settings)
    python(*common, "--init_from", "resume", "--max_iters", str(STEPS))


def python(*arguments, **settings):
    """Return what a process prints, with as many threads as the machine has."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                          env=environment_of_all_threads() | settings, encoding="utf-8")
    if done.returncode:
        sys.exit(f"a process ended with status {done.returncode}: {' '.join(arguments)}")
    return done.stdout


def digest(arrays):
    """Return a digest of all bits of arrays, in lists or alone."""
    if isinstance(arrays, (list, tuple)):
        return hashlib.sha256("".join(map(digest, arrays)).encode()).hexdigest()[:16]
    a = np.asarray(arrays)
    return hashlib.sha256(f"{a.dtype} {a.shape}".encode() + a.tobytes()).hexdigest()[:16]


def beside_ops(R, C, dtype):
    """Yield (name, what it computes from a generator) of what no op reaches, of a matrix."""
    def n(rng, *shape):
        return normal(*shape, seed=rng, dtype=dtype)

    def adamw(rng):
        p, g, m, v = (n(rng, R, C) for _ in range(4))
        settings = dict(lr=1e-3, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1, steps=3)
        v *= v
        formulas.adamw_of_each([(p, g, m, v, settings)])
        return p, m, v, formulas.sum_of_squares([g, p[:1]])

    def muon(rng):
        p, g, m = ([n(rng, R, C), n(rng, C, 40)] for _ in range(3))
        settings = dict(lr=0.02, momentum=0.95, weight_decay=0.5, ns_steps=5, equal_rows=True)
        formulas.muon_of_each([(*arrays, settings) for arrays in zip(p, g, m)])
        return p, m

    def drawn(rng):
        return draw(n(rng, R, C), rng.random(R), 0.8, None, 0.9)

    def ngram_rows(rng):
        return formulas.ngram_rows(rng.integers(50, size=(R, 3)), 3, 1000)
    for compute in (adamw, muon, drawn, ngram_rows):
        yield f"{compute.__name__} ({R}, {C}) {np.dtype(dtype)}", compute


def decoders():
    """Yield the logits after each of some characters, of models that are large enough for threads,
    and too small."""
    modern = dict(position="rotary", norm="rms", qk_norm=True, activation="relu2", ngrams=3)
    kinds = {"gpt2": {}, "sinusoidal": dict(position="sinusoidal"), "modern": modern}

    def decoded(n_embd, kind, dtype, rng):
        config = TransformerConfig(60, 40, n_layer=2, n_head=4, n_embd=n_embd, **kinds[kind])
        ids = rng.integers(60, size=(3, 40))
        decoder = Decoder(Transformer(config, 1, dtype), len(ids))
        return [decoder.read(ids[:, :20]),
                *(decoder.read(ids[:, t:t + 1], t) for t in range(20, 40))]
    for n_embd, kind, dtype in itertools.product((24, 192), kinds, FLOATS):
        yield (f"decode {kind}, {n_embd} channels, {np.dtype(dtype)}",
               partial(decoded, n_embd, kind, dtype))


def every_op():
    """Yield the value and the gradients of every op, at the inputs of the tests of kernels."""
    for number, example in enumerate(EXAMPLES + RAGGED):
        for dtype in FLOATS:
            yield (f"{example.id}, example {number}, {np.dtype(dtype)}",
                   lambda _, of=(*example.values, dtype, np.array): computed(*of))


if __name__ == "__main__":
    print_results(int(sys.argv[1]), sys.argv[2:])
