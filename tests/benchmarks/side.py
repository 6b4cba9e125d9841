"""One of two checkouts that are compared: what it measures, printed as JSON.

`tests.benchmarks.against` runs this file by its path, in the folder of a checkout, whose packages
it imports.  So it uses only what every checkout has: public names, and the commands of users.
"""
import cProfile
import csv
import json
import pathlib
import pstats
import subprocess
import sys
import tempfile
import time

import numpy as np

ROUNDS = 7              # of the calls of a row, whose medians count
ROUND = 0.05            # seconds of a round
CALLS = 300             # of a small op in a round
STEPS = 30              # of a recipe, after
WARM = 10               # others
CHARACTERS = 2048       # to sample
TEXT = 200_000          # characters to train on
SIZES = dict(vocab_size=65, block_size=64, n_layer=4, n_head=4, n_embd=128)     # of the models
BATCH = 12
NGRAM_ROWS = 32768
OPTIMIZER = dict(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)


def per_call(prepare, calls=None):
    """Return the median seconds of a call over rounds.  `prepare` makes the call, untimed; a number
    of calls are timed together, if they are too short to be timed alone."""
    prepare()()
    medians = []
    for _ in range(ROUNDS):
        times = []
        until = time.perf_counter() + ROUND
        while not times or time.perf_counter() < until:
            call = prepare()
            started = time.perf_counter()
            for _ in range(calls or 1):
                call()
            times.append((time.perf_counter() - started) / (calls or 1))
        medians.append(float(np.median(times)))
    return float(np.median(medians))


def step(recipe):
    """The seconds of a training step of a recipe, by train.py and its log."""
    import data
    text = data.read_text("lantern")[:TEXT]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "text.txt")
        path.write_text(text, encoding="utf-8")
        flags = {"recipe": recipe, "data": path, "out_dir": pathlib.Path(folder, "out"),
                 "max_iters": WARM + STEPS, "eval_interval": WARM, "eval_iters": 1}
        words = [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
        subprocess.run([sys.executable, "train.py", *words], check=True, capture_output=True)
        with open(pathlib.Path(folder, "out", "log.csv"), encoding="utf-8") as file:
            seconds = {int(row["iter"]): float(row["seconds"]) for row in csv.DictReader(file)}
    yield f"a step of --recipe {recipe}", (seconds[WARM + STEPS] - seconds[WARM]) / STEPS


def sampling():
    """The seconds of a character, of one text and of 16 at once."""
    from model import CharTokenizer, Transformer, TransformerConfig
    from model.generation import stream_many
    tokenizer = CharTokenizer.of("".join(map(chr, range(48, 48 + SIZES["vocab_size"]))))
    model = Transformer(TransformerConfig(**SIZES))
    for texts in (1, 16):
        count = CHARACTERS // texts

        def write():
            for _ in stream_many(model, tokenizer, "AB", range(texts), count):
                pass
        yield f"a character of {texts} at once", per_call(lambda: write) / count


def leaves(*shapes):
    """Return float32 tensors of random numbers that require a gradient."""
    import minigrad as mg
    rng = np.random.default_rng(0)
    return [mg.Tensor(rng.standard_normal(shape, np.float32), requires_grad=True)
            for shape in shapes]


def small_ops():
    """Small ops by name: a function without arguments that computes one."""
    import minigrad as mg
    a, b, w = leaves((4, 8), (4, 8), (8, 8))
    gain, bias = leaves((8,), (8,))
    classes = np.array([1, 2, 3, 4])
    return {"add": lambda: mg.add(a, b), "exp": lambda: mg.exp(a), "matmul": lambda: a @ w,
            "layer_norm": lambda: mg.layer_norm(a, gain, bias),
            "linear": lambda: mg.linear(a, w, bias), "softmax": lambda: mg.softmax(a),
            "cross_entropy": lambda: mg.cross_entropy(a, classes)}


def small():
    """The seconds of small ops, and of an MLP of two layers with its gradients."""
    import minigrad as mg
    for name, compute in small_ops().items():
        yield f"{name} on (4, 8)", per_call(lambda: compute, CALLS)
    x, first, first_bias, second, second_bias = leaves((4, 8), (8, 8), (8,), (8, 8), (8,))
    classes = np.array([1, 2, 3, 4])

    def forward_and_backward():
        hidden = mg.relu(mg.linear(x, first, first_bias))
        mg.cross_entropy(mg.linear(hidden, second, second_bias), classes).backward()
    yield "an MLP, forward and backward", per_call(lambda: forward_and_backward, CALLS // 10)


def calls():
    """How many functions an op calls, of Python's and of C's, forward and backward."""
    for name, compute in small_ops().items():
        g = np.ones(compute().shape, np.float32)
        compute().backward(g)           # compiles
        value = compute()
        yield f"{name}, forward", count(compute)
        yield f"{name}, backward", count(lambda: value.backward(g))


def count(call):
    profile = cProfile.Profile()
    profile.runcall(call)
    return pstats.Stats(profile).total_calls - 1        # without `call` itself


def kernels():
    """The seconds of the kernels in a step, forward and backward, and of the optimiser."""
    import minigrad as mg
    from model import Transformer, TransformerConfig
    N, C, T, H, V = BATCH * SIZES["block_size"], 128, 64, 4, 65
    rng = np.random.default_rng(0)
    ids = rng.integers(V, size=N)
    bags = rng.integers(NGRAM_ROWS, size=(N, 4))
    q, k, v = np.moveaxis(rng.standard_normal((BATCH, T, 3, H, C // H), np.float32), 2, 0)
    heads = [np.swapaxes(x, 1, 2) for x in (q, k, v)]
    normal = rng.standard_normal
    rows = {name: ([normal((N, K), np.float32), normal((P, K), np.float32)], mg.linear)
            for name, K, P in (("product qkv", C, 3 * C), ("product out", C, C),
                               ("product up", C, 4 * C), ("product down", 4 * C, C),
                               ("product head", C, V))}
    rows |= {
        "embedding": ([normal((V, C), np.float32)], lambda table: mg.embedding(ids, table)),
        "embedding bag": ([normal((NGRAM_ROWS, C), np.float32)],
                          lambda table: mg.embedding_bag(bags, table)),
        "layer norm": ([normal((N, C), np.float32), np.ones(C, np.float32)], mg.layer_norm),
        "attention": (heads, lambda *x: mg.scaled_dot_product_attention(*x, is_causal=True)),
        "gelu": ([normal((N, 4 * C), np.float32)], mg.gelu),
        "dropout": ([normal((N, C), np.float32)],
                    lambda x: mg.dropout(x, 0.2, np.random.default_rng(0))),
        "cross entropy": ([normal((N, V), np.float32)], lambda x: mg.cross_entropy(x, ids)),
        "softmax": ([normal((BATCH * H * T, T), np.float32)], mg.softmax)}
    for name, (arrays, op) in rows.items():
        def value():
            return op(*[mg.Tensor(x, requires_grad=True) for x in arrays])
        g = np.asarray(normal(value().shape, np.float32))
        yield name, per_call(lambda: value)

        def backward():
            y = value()
            return lambda: y.backward(g)
        yield f"{name}, backward", per_call(backward)
    parameters = Transformer(TransformerConfig(**SIZES)).parameters()
    for p in parameters:
        p.grad = 1e-3 * p.data
    yield "AdamW, all parameters", per_call(lambda: mg.AdamW(parameters, **OPTIMIZER).step)


MEASURES = {"modern": lambda: step("modern"), "gpt2": lambda: step("gpt2"), "sampling": sampling,
            "small": small, "kernels": kernels, "calls": calls}

if __name__ == "__main__":
    # The folder of this file would hide packages of the checkout.
    sys.path[0] = "."
    print(json.dumps(dict(MEASURES[sys.argv[1]]())))
