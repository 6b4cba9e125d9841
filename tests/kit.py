"""What test files share: arrays, tensors, models; files; runs of Python and train.py; refusals."""
import contextlib
import csv
import dataclasses
import hashlib
import io
import os
import pathlib
import subprocess
import sys
import threading
import tracemalloc

import numba
import numpy as np
import pytest

import data
import minigrad as mg
import train
from data import files
from minigrad.packed import BLOCKS, NUMBERS, hold, unpacked
from model import MultiHeadAttention, Transformer, TransformerConfig
from model.convert.model_file import FormatError, Stored
from model.options import flag
from model.processes import Ranks
from model.run import Run, make_optimizer
from model.settings import Settings

ROOT = pathlib.Path(__file__).parents[1]
TINY = ("--recipe gpt2 --n_layer 1 --n_head 2 --n_embd 16 --block_size 16 --batch_size 4 "
        "--eval_interval 10 --eval_iters 3 --warmup_iters 5 --learning_rate 1e-2").split()
compiled_only = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="Numba is told not to compile")
both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


# Arrays and tensors

def normal(*shape, seed=0, dtype=np.float64):
    """Standard normal numbers of this shape; the seed may be a generator."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def leaf(values, dtype=None):
    """A copy of the values as a Tensor that requires a gradient."""
    return mg.Tensor(np.array(values, dtype), requires_grad=True)


def bag(ids, table):
    """Sums of rows of a table, whose gradient is kept by rows."""
    return mg.embedding_bag(np.array(ids), table)


def by_name(recorder):
    """The places of a recorder that have a name, by name."""
    return {place.name: place for place in recorder.places() if place.name}


def scales(block):
    """The names of the floats in a block."""
    return {"d", "m", "half", "upper"} & {*block.names}


def blocks(kind, P, count, seed=0):
    """Random blocks (P, count) of packed numbers of any size."""
    block = BLOCKS[kind]
    a = np.frombuffer(np.random.default_rng(seed).bytes(P * count * block.itemsize), block).copy()
    for name in scales(block):
        bits, exponent = a[name].view("<u2"), 0x7F80 if name == "upper" else 0x7C00
        a[name] = (bits ^ (bits & exponent == exponent) * 0x4000).astype("<u2").view(a[name].dtype)
    return a.reshape(P, count)


def packed_copy(model, kinds, seed=0):
    """Pack random numbers into the matrices of a model, by turns in blocks of these kinds where
    they fit; return a model of their float32 numbers."""
    floats = Transformer(model.config, dtype=None)
    pairs = zip(model.parameters(), floats.parameters())
    for n, (p, other) in enumerate(pairs):
        kind, array = kinds[n % len(kinds)], p.data
        if p.ndim == 2 and p.shape[1] % NUMBERS[kind] == 0:
            array = blocks(kind, p.shape[0], p.shape[1] // NUMBERS[kind], seed + n)
            for name in scales(array.dtype):
                numbers = 0.02 * normal(*array[name].shape, seed=seed + n, dtype=np.float32)
                array[name] = numbers.view("<u4") >> 16 if name == "upper" else numbers
        hold(p, array)
        hold(other, unpacked(array))
    return floats


MEASURING = threading.Lock()        # held while memory is measured


@contextlib.contextmanager
def memory():
    """Measure what the body allocates: at its end, a list has the most bytes at once.  All threads
    of Python are measured; the one that starts processes beside the tests waits."""
    most = []
    with MEASURING:
        tracemalloc.start()
        try:
            yield most
            most.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()


# Models

@dataclasses.dataclass(frozen=True)
class WiderConfig(TransformerConfig):
    """Has an option more, which no other program and no kernel knows."""
    window: int = flag(0, "keys that a query sees")


# The largest value of a field of a random configuration; 5 if it is not here.
SMALL = {"vocab_size": 40, "block_size": 12, "n_layer": 2, "n_head": 4, "n_embd": 24, "ngrams": 4,
         "ngram_rows": 50, "n_inner": 9, "n_kv_head": 4}


def random_config(rng):
    """A random configuration that is valid; what has a fraction keeps its default."""
    def drawn(field):
        if field.metadata["choices"]:
            return str(rng.choice(field.metadata["choices"]))
        if field.type is bool:
            return bool(rng.integers(2))
        if field.type is int and (field.default is not None or rng.random() < 0.5):
            return int(rng.integers(1, SMALL.get(field.name, 5) + 1))
        return field.default
    while True:
        with contextlib.suppress(ValueError):
            return TransformerConfig(**{field.name: drawn(field)
                                        for field in dataclasses.fields(TransformerConfig)})


def same(state, other):
    """Whether two mappings have the same names, in their order, and arrays of the same bits."""
    return list(state) == list(other) and all(
        a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(state.values(),
                                                                          other.values()))


def model_of(config, weights, dtype=np.float32):
    """A Transformer with these weights, a mapping from names to arrays."""
    model = Transformer(config, dtype=dtype)
    model.load_state_dict(dict(weights))
    return model


class LeakyAttention(MultiHeadAttention):
    """It sees later positions, too."""

    def __call__(self, x, rng=None):
        return self.out(mg.self_attention(self.project(x), self.heads, self.kv_heads))


def opinionated(config, factor, seed=0, dtype=np.float32):
    """A Transformer of matrices that are so many times as large, so that its predictions differ."""
    model = Transformer(config, seed, dtype)
    for p in model.parameters():
        p.data *= factor if p.ndim > 1 else 1
    return model


def forward_backward(model, batches, rng):
    """The mean loss of batches (ids, targets); their gradients are left in the parameters."""
    losses = [mg.cross_entropy(model(x, rng=rng), y) / len(batches) for x, y in batches]
    for loss in losses:
        loss.backward()
    return sum(loss.item() for loss in losses)


def take_step(model, optimizer, batch, grad_clip, rates, ahead=0.0):
    """Train on a batch with a rate for each group of the optimiser; return the loss."""
    loss = model.loss(*batch, ahead=ahead)
    loss.backward()
    mg.clip_grad_norm_(model.parameters(), grad_clip)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


# Files

def at_home(monkeypatch, folder):
    """Have "~" mean this folder."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(folder))


def written(path, content):
    """Write bytes, or text as UTF-8; returns the path."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@contextlib.contextmanager
def open_elsewhere(monkeypatch, names, attempts, winerror=5):
    """Refuse so many attempts to rename a file to each of these names, as Windows does while
    another program has it open; a list gets those that are refused.  No attempt waits."""
    rename = os.replace
    refused = []

    def replace(path, target):
        name = pathlib.Path(target).name
        if name in names and refused.count(name) < attempts:
            refused.append(name)
            error = PermissionError(13, "Access is denied", str(path))
            error.winerror = winerror
            raise error
        rename(path, target)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        patch.setattr(files, "PAUSES", (0,) * len(files.PAUSES))
        yield refused


def sealed(content):
    """The bytes with the digest at the end by which a checkpoint proves that it is whole."""
    return content + hashlib.sha256(content).hexdigest().encode()


def arrays(path):
    """Every array of an .npz file, by name."""
    with files.Arrays(open(path, "rb")) as file:
        return dict(file)


# Runs of train.py and of Python, and refusals

def split(words):
    """Words of a command line; in `words`, a flag may stand together with its values."""
    return [part for word in map(str, words)
            for part in (word.split() if word.startswith("--") else [word])]


def run(text, out_dir, *flags):
    """Train a tiny model on the text of this path."""
    train.main(split(["--data", text, "--out_dir", out_dir, *TINY, *flags]))


def run_of(s, text, ranks=Ranks(), dtype=np.float32, **how):
    """The run that train.py makes of these settings."""
    model = Transformer(s.model_config(text.tokenizer.vocab_size), s.seed, dtype)
    model.look_ahead(s.ahead, s.seed)
    return Run(s, text, model, make_optimizer(model, s, ranks), ranks=ranks, **how)


def small_run(text="to be or not\n" * 20, folder=None, **settings):
    """The run of a small model on these characters."""
    s = Settings(**dict(n_embd=8, n_layer=1) | settings)
    return run_of(s, data.Text(text), folder=folder)


def python(*words, cwd=ROOT, preexec_fn=None, **environment):
    """The end of Python with these words, and what it has printed, in UTF-8."""
    return subprocess.run([sys.executable, *words], cwd=cwd,
                          env=os.environ | {"PYTHONUTF8": "1"} | environment,
                          capture_output=True, text=True, encoding="utf-8", preexec_fn=preexec_fn)


@contextlib.contextmanager
def in_a_terminal(*words, **environment):
    """Python with these words in a terminal of its own; the process, and what types and reads."""
    import fcntl
    import pty
    import termios
    ours, its = pty.openpty()
    with subprocess.Popen([sys.executable, *words], cwd=ROOT, env=os.environ | environment,
                          stdin=its, stdout=its, stderr=its, start_new_session=True,
                          preexec_fn=lambda: fcntl.ioctl(its, termios.TIOCSCTTY, 0)) as process:
        os.close(its)
        try:
            yield process, ours
        finally:
            process.kill()


def rows(out_dir):
    """The lines of a run's log.csv, split."""
    with open(out_dir / "log.csv", newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def losses(out_dir):
    """iter, train_loss, val_loss and lr of each line: all that does not depend on the clock."""
    return [row[:4] for row in rows(out_dir)]


def stored(tensors):
    """Arrays as the tensors of a file."""
    return {name: Stored(a.shape, lambda a=a: a) for name, a in tensors.items()}


def same_arrays(a, b):
    """Whether two checkpoints hold the same arrays; their records of the run may differ."""
    a, b = ({**arrays(path), "training": None} for path in (a, b))
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


class Terminal(io.StringIO):
    """What a terminal is told."""

    def isatty(self):
        return True


def refused(capsys, *words, main=train.main):
    """The line with which a command refuses these words; its usage may stand before it."""
    with pytest.raises(SystemExit) as caught:
        main(split(words))
    code = caught.value.code
    said = code if isinstance(code, str) else capsys.readouterr().err
    line = said.strip().splitlines()[-1]
    assert code not in (0, None) and "Traceback" not in said
    assert main is not train.main or line.startswith("train.py: ")
    return line


def refusal(error, f, *args, **settings):
    """The message, of one line, of the error that a call raises; a FormatError says what to do."""
    with pytest.raises(error) as caught:
        f(*args, **settings)
    said = str(caught.value)
    assert "\n" not in said and (error is not FormatError or "; " in said)
    return said


@contextlib.contextmanager
def nobody_reads(monkeypatch):
    """Standard output goes into a pipe whose other end is closed, as after `| head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as out, monkeypatch.context() as changed:
        changed.setattr(sys, "stdout", out)
        yield
        out.flush()         # as Python does at its end
