"""Each kernel beside its formula in plain NumPy and PyTorch's op, at the shapes of the models.

Kernels are called through public ops, except for products, so that what is timed is what a model
waits for.  All run in one process, where minigrad has the C library keep freed memory; PyTorch's
ops profit from that too.  Calls follow each other at once, or after a gap in which threads may fall
asleep, as in a step.
"""
import argparse
import importlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import NamedTuple

import numpy as np

import minigrad as mg
from minigrad import formulas
from model import Transformer
from tests import plain
from tests.benchmarks.remote import has_pytorch
from tests.benchmarks.report import Report
from tests.benchmarks.sizes import OPTIMIZER, VOCABULARY, Size
from tests.benchmarks.steps import config_of
from tests.benchmarks.timing import Timed, dropped_turns, plan, take_turns, timed

TURNS = 5, 20       # rounds, calls of a turn
PATIENCE = 0.3      # seconds of a turn
DROPPED = 0.2
NGRAM_ROWS = 32768  # of the modern recipe
NAMES = ("minigrad", "NumPy", "PyTorch")

Line = tuple[str, float, list[Timed]]       # name, GFLOP or nan, contestants


def measure_kernels(size: Size, options: argparse.Namespace, report: Report) -> None:
    """Measure the products, then all other kernels."""
    torch = importlib.import_module("torch") if has_pytorch() else None
    measure(f"Products of a step, {size.name}: medians in GFLOP/s", "{:,.1f}",
            products(size, torch), options, report)
    measure(f"Other kernels, {size.name}: medians in milliseconds", "{:,.3f}",
            ops(size, torch), options, report)


def measure(title: str, form: str, lines: Iterator[Line], options: argparse.Namespace,
            report: Report) -> None:
    """Show a row for each line, and the geometric means of the speed-ups."""
    rounds, repeats = plan(options, *TURNS)
    rows, raw = [], []
    try:
        for name, gflop, contestants in lines:
            for t in contestants:
                t.repeats, t.patience, t.gap = repeats, PATIENCE, options.gap * 1e-6
            take_turns(contestants, rounds, name, only_quiet=True)
            seconds = [*(t.median for t in contestants), math.nan][:3]
            rows.append([name, *(1e3 * t if math.isnan(gflop) else gflop / t for t in seconds),
                         *(t / seconds[0] for t in seconds[1:])])
            raw += contestants
    finally:
        notes = [dropped_turns(raw, rounds * len(rows))] if rows else []
        if rows:
            means = np.exp(np.log([row[4:] for row in rows]).mean(axis=0)).tolist()
            rows.append(["geometric mean", math.nan, math.nan, math.nan, *means])
        for i, t in enumerate(raw):
            t.name = f"{rows[i // len(contestants)][0]}, {t.name}"
        report.table(f"{title}, {options.gap:g} us after the call before",
                     {"": "{}", **dict.fromkeys(NAMES, form), "over NumPy": "{:.2f} x",
                      "over PyTorch": "{:.2f} x"}, rows, notes, raw)


def products(size: Size, torch: ModuleType | None) -> Iterator[Line]:
    """Yield each product with a weight W (P, K) in a step: forward, to the input, to the weight."""
    N, C = size.tokens, size.channels
    rng = np.random.default_rng(0)
    for name, K, P in (("qkv", C, 3 * C), ("out", C, C), ("up", C, 4 * C), ("down", 4 * C, C),
                       ("head", C, VOCABULARY)):
        x, W, g = (rng.standard_normal(shape, np.float32) for shape in ((N, K), (P, K), (N, P)))
        for form, a, b in (("x W'", x, W.T), ("g W", g, W), ("g' x", g.T, x)):
            calls = [partial(formulas.matmul, a, b), partial(np.matmul, a, b)]
            if torch:
                calls.append(partial(torch.matmul, *map(torch.from_numpy, (a, b))))
            yield (f"{name + ',':5} {form:4} {len(a):6,} x {len(b):6,} x {b.shape[1]:5,}",
                   2e-9 * N * K * P, timed(dict(zip(NAMES, calls))))


class Case(NamedTuple):
    """An op in three forms; the plain one is two functions, forward and backward.

    Parameters
    ----------
    inputs : the arrays that require a gradient.
    """
    name: str
    inputs: list[np.ndarray]
    ours: Callable[..., mg.Tensor]
    theirs: Callable
    forward: Callable[[], object]
    backward: Callable[[np.ndarray], object]


def cases(size: Size, torch: ModuleType | None) -> Iterator[Case]:
    """Yield each op of the model except products; `theirs` needs PyTorch when it is called."""
    B, T, C, H = size.batch, size.block, size.channels, size.heads
    N, V, p = B * T, VOCABULARY, size.dropout
    F = torch and torch.nn.functional
    rng = np.random.default_rng(0)
    normal = partial(rng.standard_normal, dtype=np.float32)

    ids, table = rng.integers(V, size=N), normal((V, C))
    yield Case("embedding", [table], partial(mg.embedding, ids),
               lambda table: F.embedding(torch.from_numpy(ids), table),
               lambda: table[ids], lambda g: plain.add_rows(np.zeros_like(table), ids[:, None], g))

    bags, rows = rng.integers(NGRAM_ROWS, size=(N, 4)), normal((NGRAM_ROWS, C))
    yield Case("embedding bag", [rows], partial(mg.embedding_bag, bags),
               lambda rows: F.embedding_bag(torch.from_numpy(bags), rows, mode="sum"),
               lambda: plain.sum_rows(rows, bags),
               lambda g: plain.add_rows(np.zeros_like(rows), bags, g))

    x, gain, shift = normal((N, C)), np.ones(C, np.float32), np.zeros(C, np.float32)
    moments = plain.norm(x, gain, shift, 1e-5, True)[1]
    yield Case("layer norm", [x, gain], mg.layer_norm,
               lambda x, gain: F.layer_norm(x, (C,), gain),
               lambda: plain.norm(x, gain, shift, 1e-5, True),
               lambda g: plain.norm_vjp(g, x, gain, moments, True))

    q, k, v = normal((B, T, 3, H, C // H)).transpose(2, 0, 3, 1, 4)     # as one product makes them
    settings = True, (C // H) ** -0.5, p, 0
    out, log_sum = plain.attention(q, k, v, None, None, *settings)
    yield Case("attention", [q, k, v],
               partial(mg.scaled_dot_product_attention, is_causal=True, dropout_p=p, rng=rng),
               lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True, dropout_p=p),
               lambda: plain.attention(q, k, v, None, None, *settings),
               lambda g: plain.attention_vjp(g, q, k, v, None, None, out, log_sum, *settings))

    wide = normal((N, 4 * C))
    yield Case("gelu", [wide], mg.gelu, lambda x: F.gelu(x),
               lambda: plain.gelu(wide, False), lambda g: plain.gelu_vjp(g, wide, False))

    yield Case("dropout", [x], partial(mg.dropout, p=DROPPED, rng=rng),
               lambda x: F.dropout(x, DROPPED),
               lambda: plain.dropout(x, DROPPED, 0), lambda g: plain.dropout(g, DROPPED, 0))

    logits = normal((N, V))
    yield Case("cross entropy", [logits],
               lambda logits: mg.cross_entropy(logits, ids),
               lambda logits: F.cross_entropy(logits, torch.from_numpy(ids)),
               lambda: plain.cross_entropy(logits, ids, -100)[0].mean(),
               lambda g: plain.cross_entropy(logits, ids, -100)[1] * (g / N))

    scores = normal((B * H * T, T))
    weights = plain.softmax(scores)
    yield Case("softmax", [scores], mg.softmax,
               lambda x: F.softmax(x, dim=-1),
               lambda: plain.softmax(scores), lambda g: plain.softmax_vjp(g, weights))


def ops(size: Size, torch: ModuleType | None) -> Iterator[Line]:
    """Yield the value of each case and its gradients, each by itself; then the optimiser."""
    for case in cases(size, torch):
        def leaves():       # new ones for each call, so that gradients do not add up
            return [mg.Tensor(x, requires_grad=True) for x in case.inputs]

        def their_leaves():
            return [torch.from_numpy(x).requires_grad_() for x in case.inputs]

        shape = case.ours(*leaves()).shape
        g = np.asarray(np.random.default_rng(1).standard_normal(shape, np.float32))
        forward = [lambda: partial(case.ours, *leaves()), lambda: case.forward,
                   lambda: partial(case.theirs, *their_leaves())]
        backward = [lambda: partial(case.ours(*leaves()).backward, g),
                    lambda: partial(case.backward, g),
                    lambda: partial(case.theirs(*their_leaves()).backward, torch.from_numpy(g))]
        for name, prepared in ((case.name, forward), (f"{case.name}, backward", backward)):
            yield name, math.nan, list(map(Timed, NAMES if torch else NAMES[:2], prepared))
    yield "AdamW, all parameters", math.nan, timed(dict(zip(NAMES, optimizers(size, torch))))


def optimizers(size: Size, torch: ModuleType | None) -> list[Callable[[], object]]:
    """Return a step of AdamW on all parameters of a model, in three forms."""
    parameters = Transformer(config_of(size)).parameters()
    for p in parameters:
        p.grad = 1e-3 * p.data
    copies = zip(*[(p.data.copy(), p.grad, 0 * p.grad, 0 * p.grad) for p in parameters])
    (beta1, beta2), lr, decay = (OPTIMIZER[name] for name in ("betas", "lr", "weight_decay"))
    settings = np.array([(lr, beta1, beta2, 1e-8, decay, 1 - beta1, 1 - beta2)] * len(parameters))
    steps = [mg.AdamW(parameters, **OPTIMIZER).step, partial(plain.adamw, *copies, settings)]
    if torch:
        theirs = [torch.from_numpy(p.data.copy()).requires_grad_() for p in parameters]
        for p, ours in zip(theirs, parameters):
            p.grad = torch.from_numpy(ours.grad)
        steps.append(torch.optim.AdamW(theirs, **OPTIMIZER, fused=True).step)
    return steps
