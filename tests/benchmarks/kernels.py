"""Each kernel beside PyTorch's op, and products beside NumPy's, at the shapes of the models.

Kernels are called through public ops, except for products, so that what is timed is what a model
waits for.  All run in one process, where minigrad has the C library keep freed memory; PyTorch's
ops profit from that too.
"""
import importlib
import math
from dataclasses import replace
from functools import partial

import numpy as np

import minigrad as mg
from minigrad import formulas
from model import Transformer
from tests.benchmarks.remote import has_pytorch
from tests.benchmarks.sizes import VOCABULARY
from tests.benchmarks.steps import config_of
from tests.benchmarks.timing import Timed, dropped_turns, plan, take_turns, timed

TURNS = 5, 20       # rounds, calls of a turn
PATIENCE = 0.3      # seconds of a turn
DROPPED = 0.2
OPTIMIZER = dict(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
NGRAM_ROWS = 32768  # of the modern recipe
NAMES = ("minigrad", "NumPy", "PyTorch")


def measure_kernels(size, options, report):
    """Measure the products, then all other kernels."""
    torch = importlib.import_module("torch") if has_pytorch() else None
    measure(f"Products of a step, {size.name}: medians in GFLOP/s", "{:,.1f}",
            products(size, torch), options, report)
    measure(f"Other kernels, {size.name}: medians in milliseconds", "{:,.3f}",
            ops(size, torch), options, report)


def measure(title, form, lines, options, report):
    """Show a row for each line (name, GFLOP or nan, contestants), and the geometric means of the
    speed-ups."""
    rounds, repeats = plan(options, *TURNS)
    rows, taken, raw = [], [], []
    try:
        for name, gflop, contestants in lines:
            for t in contestants:
                t.repeats, t.patience = repeats, PATIENCE
            take_turns(contestants, rounds, name, only_quiet=True)
            medians = dict.fromkeys(NAMES, math.nan) | {t.name: t.median for t in contestants}
            seconds = np.array([*medians.values()])
            speed = 1e3 * seconds if math.isnan(gflop) else gflop / seconds
            rows.append([name, *speed.tolist(), *(seconds[1:] / seconds[0]).tolist()])
            taken += contestants
            raw += [replace(t, name=f"{name}, {t.name}") for t in contestants]
    finally:
        notes = [dropped_turns(taken, rounds * len(rows))]
        if rows:
            means = np.exp(np.log([row[4:] for row in rows]).mean(axis=0)).tolist()
            rows.append(["geometric mean", *3 * [math.nan], *means])
        report.table(title, {"": "{}", **dict.fromkeys(NAMES, form), "over NumPy": "{:.2f} x",
                             "over PyTorch": "{:.2f} x"}, rows, notes, raw)


def products(size, torch):
    """Yield each product with a weight W (P, K) in a step: forward, to the input, to the weight."""
    N, C = size.batch * size.block, size.channels
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


def cases(size, torch):
    """Yield each op of the model except products: name, arrays that require a gradient, the op, and
    PyTorch's, which needs PyTorch when it is called."""
    B, T, C, H = size.batch, size.block, size.channels, size.heads
    N, V, p = B * T, VOCABULARY, size.dropout
    F = torch and torch.nn.functional
    rng = np.random.default_rng(0)
    normal = partial(rng.standard_normal, dtype=np.float32)
    ids, bags = rng.integers(V, size=N), rng.integers(NGRAM_ROWS, size=(N, 4))
    q, k, v = normal((B, T, 3, H, C // H)).transpose(2, 0, 3, 1, 4)     # as one product makes them
    yield ("embedding", [normal((V, C))], partial(mg.embedding, ids),
           lambda table: F.embedding(torch.from_numpy(ids), table))
    yield ("embedding bag", [normal((NGRAM_ROWS, C))], partial(mg.embedding_bag, bags),
           lambda table: F.embedding_bag(torch.from_numpy(bags), table, mode="sum"))
    yield ("layer norm", [normal((N, C)), np.ones(C, np.float32)], mg.layer_norm,
           lambda x, gain: F.layer_norm(x, (C,), gain))
    yield ("attention", [q, k, v],
           partial(mg.scaled_dot_product_attention, is_causal=True, dropout_p=p, rng=rng),
           lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True, dropout_p=p))
    yield "gelu", [normal((N, 4 * C))], mg.gelu, lambda x: F.gelu(x)
    yield ("dropout", [normal((N, C))], partial(mg.dropout, p=DROPPED, rng=rng),
           lambda x: F.dropout(x, DROPPED))
    yield ("cross entropy", [normal((N, V))], lambda logits: mg.cross_entropy(logits, ids),
           lambda logits: F.cross_entropy(logits, torch.from_numpy(ids)))
    yield "softmax", [normal((B * H * T, T))], mg.softmax, lambda x: F.softmax(x, dim=-1)


def ops(size, torch):
    """Yield the value of each case and its gradients, each by itself; then the optimiser."""
    for name, inputs, op, theirs in cases(size, torch):
        def leaves():       # new ones for each call, so that gradients do not add up
            return [mg.Tensor(x, requires_grad=True) for x in inputs]

        def their_leaves():
            return [torch.from_numpy(x).requires_grad_() for x in inputs]
        g = np.random.default_rng(1).standard_normal(op(*leaves()).shape, np.float32)
        g = np.asarray(g)           # of a scalar too
        forward = {"minigrad": lambda: partial(op, *leaves()),
                   "PyTorch": lambda: partial(theirs, *their_leaves())}
        backward = {"minigrad": lambda: partial(op(*leaves()).backward, g),
                    "PyTorch": lambda: partial(theirs(*their_leaves()).backward,
                                               torch.from_numpy(g))}
        for what, calls in ((name, forward), (f"{name}, backward", backward)):
            yield what, math.nan, [Timed(by, calls[by]) for by in calls if torch or by != "PyTorch"]
    parameters = Transformer(config_of(size)).parameters()
    for p in parameters:
        p.grad = 1e-3 * p.data
    steps = {"minigrad": mg.AdamW(parameters, **OPTIMIZER).step}
    if torch:
        theirs = [torch.from_numpy(p.data.copy()).requires_grad_() for p in parameters]
        for p, ours in zip(theirs, parameters):
            p.grad = torch.from_numpy(ours.grad)
        steps["PyTorch"] = torch.optim.AdamW(theirs, **OPTIMIZER, fused=True).step
    yield "AdamW, all parameters", math.nan, timed(steps)
