"""Compute every kernel and op in processes that compile and that load, and compare all bits.

Each process computes all results on one thread and on all, in an order of its own.  The first one
uses the kernels on disk.  The others compile into empty folders: --rounds times for this processor,
once without LLVM's vectorisers, and once for each --cpu.  After each, another process loads what it
compiled.  Runs of train.py whose first half compiles are compared with runs that load all kernels.
"""
import argparse
import hashlib
import json
import pathlib
import random
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator

import numba
import numpy as np

from minigrad import formulas
from minigrad.formulas import GELU_TANH, RELU2
from minigrad.random import draw
from model import Transformer, TransformerConfig
from model.kv_cache.decoder import Decoder
from tests.flags import count
from tests.kit import ROOT, normal
from tests.minigrad import test_ops
from tests.reliability.runs import differences, environment_of_all_threads

FLAGS = {"rounds": (count, 1, "of compiling for this processor"),
         "cpu": (str, [], "LLVM's names of other processors whose code this one runs: haswell"),
         "only": (str, [], "kernels and ops whose names begin so, and no runs (default: all)")}
EQUAL = "all bits are equal"
# Rows and columns: ragged, with whole lanes, below and above what wakes threads.
SHAPES = [(1, 1), (3, 5), (5, 16), (7, 17), (33, 31), (9, 100), (300, 65), (600, 128), (1100, 63)]
# Of attention: (sequences, heads, groups, queries, keys, width of keys, width of values).
HEADS = [(1, 1, 1, 1, 1, 1, 1), (2, 2, 1, 5, 7, 3, 4), (2, 4, 4, 33, 33, 16, 16),
         (2, 4, 2, 70, 70, 32, 32), (1, 2, 2, 300, 300, 20, 20)]
FLOATS = np.float32, np.float64
UNVECTORISED = {"NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}
STEPS = 20
RUN = ["--n_layer", "2", "--n_head", "2", "--n_embd", "64", "--block_size", "64", "--batch_size",
       "16", "--eval_interval", "10", "--eval_iters", "2", "--warmup_iters", "5",
       "--lr_decay_iters", str(STEPS)]


def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
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
            wrong += [how] * (found != EQUAL)
    for recipe in () if options.only else ("modern", "gpt2"):
        cold, warm = folder / f"{recipe}_cold", folder / f"{recipe}_warm"
        train(recipe, cold, {"NUMBA_CACHE_DIR": str(folder / recipe)})
        train(recipe, warm, {})
        found = differences(cold, warm)
        print(f"{recipe}, begun by a process that compiles: "
              + (f"{len(found)} differences, such as {found[0]}" if found else EQUAL), flush=True)
        wrong += found
    return not wrong and compared(expected, expected) == EQUAL


def results(settings: dict[str, str], only: list[str], order: int) -> dict[str, list[str]]:
    """Return the digests of each result, by name, from a process with these variables."""
    found = {}
    for line in python("-m", "tests.reliability.bits", str(order), *only, **settings).splitlines():
        name, digest = json.loads(line)
        found.setdefault(name, []).append(digest)
    return found


def print_results(order: int, only: list[str]) -> None:
    """Print the name and the digest of each result as a line of JSON, on one thread and on all."""
    named = [(name, f) for name, f in (*kernels_on_many_shapes(), *decoders(), *every_op())
             if name.startswith(tuple(only) or "")]
    random.Random(order).shuffle(named)
    most = numba.get_num_threads()
    for name, compute in named:
        for threads in {1, most}:
            numba.set_num_threads(threads)
            found = compute(np.random.default_rng(zlib.crc32(name.encode())))
            print(json.dumps([name, digest(found)]), flush=True)


def compared(expected: dict[str, list[str]], found: dict[str, list[str]]) -> str:
    """Return in words which results do not all have the same digest."""
    names = [name for name in expected.keys() | found.keys()
             if len({*expected.get(name, [""]), *found.get(name, [""])}) > 1]
    if not names:
        return EQUAL
    return f"{len(names)} of {len(expected)} differ, such as {', '.join(sorted(names)[:3])}"


def train(recipe: str, out_dir: pathlib.Path, settings: dict[str, str]) -> None:
    """Run train.py: the first half in one process, the second half in another."""
    common = ["train.py", "--out_dir", str(out_dir)]
    python(*common, "--recipe", recipe, "--max_iters", str(STEPS // 2), *RUN, **settings)
    python(*common, "--init_from", "resume", "--max_iters", str(STEPS))


def python(*arguments: str, **settings: str) -> str:
    """Return what a process prints, with as many threads as the machine has."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                          env=environment_of_all_threads() | settings, encoding="utf-8")
    if done.returncode:
        sys.exit(f"a process ended with status {done.returncode}: {' '.join(arguments)}")
    return done.stdout


def digest(arrays: object) -> str:
    """Return a digest of all bits of arrays, in lists or alone."""
    if isinstance(arrays, (list, tuple)):
        return hashlib.sha256("".join(map(digest, arrays)).encode()).hexdigest()[:16]
    a = np.asarray(arrays)
    return hashlib.sha256(f"{a.dtype} {a.shape}".encode() + a.tobytes()).hexdigest()[:16]


def kernels_on_many_shapes() -> Iterator[tuple[str, Callable]]:
    """Yield (name, what it computes from a generator) of every kernel, float type and shape."""
    for dtype in FLOATS:
        for R, C in SHAPES:
            for name, compute in on_rows(R, C, dtype):
                yield f"{name} ({R}, {C}) {np.dtype(dtype)}", compute
        for shape in HEADS:
            for name, compute in on_heads(*shape, dtype):
                yield f"{name} {shape} {np.dtype(dtype)}", compute


def on_rows(R: int, C: int, dtype: type) -> Iterator[tuple[str, Callable]]:
    """Yield the kernels that take rows of channels."""
    def n(rng, *shape):
        return normal(*shape, seed=rng, dtype=dtype)

    for name, arguments, settings in (
            ("softmax", 1, {}), ("softmax_vjp", 2, {}), ("gelu", 1, {"by_tanh": False}),
            ("gelu", 1, {"by_tanh": True}), ("gelu_vjp", 2, {"by_tanh": False}),
            ("gelu_vjp", 2, {"by_tanh": True}), ("swiglu", 2, {}), ("swiglu_vjp", 3, {}),
            ("dropout", 1, {"p": 0.3, "seed": 5})):
        f = getattr(formulas, name)
        yield f"{name} {settings}", lambda rng, f=f, arguments=arguments, settings=settings: f(
            *(n(rng, R, C) for _ in range(arguments)), **settings)
    for centred in (False, True):
        def norm(rng, centred=centred):
            x, g, weight, bias = (n(rng, *s) for s in ((R, C), (R, C), (C,), (C,)))
            y, moments = formulas.norm(x, weight, bias, 1e-5, centred)
            return y, moments, formulas.norm_vjp(g, x, weight, moments, centred)
        yield f"norm and norm_vjp, {centred=}", norm
    yield "cross_entropy", lambda rng: formulas.cross_entropy(
        n(rng, R, C), np.where(rng.random(R) < 0.1, -1, rng.integers(C, size=R)), -1)
    yield "dropout, residual", lambda rng: formulas.dropout(n(rng, R, C), 0.3, 5,
                                                            n(rng, R, C))
    P = 40

    def matmul(rng):
        a, b, bias, residual, h = (n(rng, *s) for s in ((R, C), (C, P), (P,), (R, P), (R, P)))
        found = [formulas.matmul(a, b), formulas.matmul(b.T, a.T),
                 formulas.matmul(a, b, bias=bias, residual=residual),
                 formulas.matmul(a, b, activation=RELU2),
                 formulas.matmul(a, b, slope_at=h * h, activation=RELU2)]
        for settings in ({}, {"slope_at": h}, {"activation": GELU_TANH},
                         {"slope_at": h, "activation": GELU_TANH}):
            activated = np.empty_like(h)
            found += [formulas.matmul(a, b, activated=activated, **settings), activated]
        return found
    yield "matmul", matmul

    def rotated(rng):
        D, heads = 2 * C, 3
        x, g, cos, sin = (n(rng, *s) for s in (
            (2, R, (heads + 1) * D), (2, R, (heads + 1) * D), (R, heads * C), (R, heads * C)))
        y, rstd = formulas.norm_heads(x, cos, sin, heads, D, 1e-6)
        return (formulas.rotate(x, cos, sin), y, rstd,
                formulas.norm_heads_vjp(g, y, rstd, cos, sin, D))
    yield "rotate, norm_heads and norm_heads_vjp", rotated

    def rows_of_a_table(rng):
        table, g, ids = n(rng, 50, C), n(rng, R, C), rng.integers(50, size=(R, 3))
        total = np.zeros_like(table)
        formulas.add_rows(total, ids, g, 0.3, 7)
        return formulas.sum_rows(table, ids, 0.3, 7), total, formulas.ngram_rows(ids, 3, 1000)
    yield "sum_rows, add_rows and ngram_rows", rows_of_a_table

    def stepped(rng):
        p, g, m, v = (n(rng, R, C) for _ in range(4))
        formulas.adamw([p], [g], [m], [v * v], np.array([[1e-3, 0.9, 0.99, 1e-8, 0.1, 0.1, 0.1]]))
        return p, m, v, formulas.sum_of_squares([g, p[:1]])
    yield "adamw and sum_of_squares", stepped
    if R <= 600:
        def orthogonalised(rng):
            p, g, m = ([n(rng, R, C), n(rng, C, 40)] for _ in range(3))
            formulas.muon(p, g, m, np.array([[0.95, 0.99, 0.02]] * 2), 5)
            return p, m
        yield "muon", orthogonalised
    yield "draw", lambda rng: draw(n(rng, R, C), rng.random(R), 0.8, None, 0.9)


def on_heads(B: int, H: int, groups: int, T: int, S: int, D: int, E: int, dtype: type
             ) -> Iterator[tuple[str, Callable]]:
    """Yield attention and its gradient, of every kind."""
    for kind, (masked, biased, causal, p) in dict(
            plain=(False, False, False, 0.0), causal=(False, False, True, 0.0),
            masked=(True, False, False, 0.0), biased=(False, True, True, 0.3)).items():
        def attended(rng, masked=masked, biased=biased, causal=causal, p=p):
            q, k, v, g = (rng.standard_normal(s).astype(dtype) for s in (
                (B, H, T, D), (B, groups, S, D), (B, groups, S, E), (B, H, T, E)))
            mask = np.where(rng.random((B, H, T, S)) < 0.3, -np.inf, 0).astype(dtype)
            slopes = rng.random(H).astype(dtype) if biased else None
            settings = mask if masked else None, slopes
            out, log_sum = formulas.attention(q, k, v, *settings, causal, D ** -0.5, p, 5)
            return out, log_sum, formulas.attention_vjp(g, q, k, v, *settings, out, log_sum, causal,
                                                        D ** -0.5, p, 5)
        yield f"attention and attention_vjp, {kind}", attended


def decoders() -> Iterator[tuple[str, Callable]]:
    """Yield the logits after each of some characters, of models that are large enough for threads,
    and too small."""
    modern = dict(position="rotary", norm="rms", qk_norm=True, activation="relu2", ngrams=3)
    for n_embd in (24, 192):
        for kind, config in dict(gpt2={}, alibi=dict(position="alibi"), modern=modern).items():
            for dtype in FLOATS:
                def decoded(rng, n_embd=n_embd, config=config, dtype=dtype):
                    model = Transformer(TransformerConfig(60, 40, n_layer=2, n_head=4,
                                                          n_embd=n_embd, **config), 1, dtype)
                    ids = rng.integers(60, size=(3, 40))
                    decoder = Decoder(model, len(ids))
                    return [decoder.read(ids[:, :20]),
                            *(decoder.read(ids[:, t:t + 1], t) for t in range(20, 40))]
                yield f"decode {kind}, {n_embd} channels, {np.dtype(dtype)}", decoded


def every_op() -> Iterator[tuple[str, Callable]]:
    """Yield the value and the gradients of every op, at the inputs of its own tests."""
    for number, example in enumerate(test_ops.EXAMPLES):
        name, args, settings = example.values
        for dtype in FLOATS:
            def computed(rng, name=name, args=args, settings=settings, dtype=dtype):
                leaves = test_ops.tensors_of(name, args, lambda a: a.astype(dtype))
                out = test_ops.applied(name, test_ops.flattened(args)[1](leaves), settings)
                out.backward(np.cos(np.arange(out.size)).reshape(out.shape))
                return [out.data] + [x.grad for x in leaves if x.grad is not None]
            yield f"{example.id}, example {number}, {np.dtype(dtype)}", computed


if __name__ == "__main__":
    print_results(int(sys.argv[1]), sys.argv[2:])
