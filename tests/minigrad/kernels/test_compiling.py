"""How kernels are compiled: with which words, that Ctrl-C ends it, and what happens if it fails."""
import ctypes
import sys
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from minigrad import plug
from minigrad.kernels.compiler import compiling
from model import CharTokenizer, Transformer, generate
from model.kv_cache import decoder
from model.processes import Ranks
from model.run import make_optimizer
from model.settings import RECIPES, Settings
from tests.kit import compiled_only
from tests.minigrad.kernels.newly import doubled

pytestmark = compiled_only
FLAGS = {"reassoc", "contract", "fast", "arcp", "afn", "nnan", "ninf", "nsz"}


def test_compiling_is_announced_once_and_only_where_a_kernel_is_not_on_disk(folder, capsys):
    double, known = doubled()
    assert not known.on_disk(np.float64)
    double(np.ones(3), 1)
    compiling.say_compiling("another")
    assert capsys.readouterr().out == (
        "compiling double, and other kernels as they are needed, for this machine\n")
    assert known.on_disk(np.float64) and not known.on_disk(np.float32)
    compiling.announce("compiling")
    doubled()[0](np.ones(3), 1)
    assert capsys.readouterr().out == ""
    doubled()[0](np.ones(3, np.float32), 1)
    assert capsys.readouterr().out.startswith("compiling double, ")


def test_seconds_are_counted_once_where_two_threads_compile_at_once(folder, monkeypatch):
    lock = compiling._compiling
    waits = threading.Event()
    now = [0]
    other = threading.Thread(target=lambda: known.compile(np.float32))

    class Lock:
        def __enter__(self):
            if threading.current_thread() is other:
                waits.set()
            lock.acquire()

        def __exit__(self, *_):
            lock.release()

    def slow(dtype):
        if dtype == np.float64:
            other.start()
            assert waits.wait(10)
            now[0] += 1000
    monkeypatch.setattr(compiling, "seconds", 0)
    monkeypatch.setattr(compiling, "_compiling", Lock())
    monkeypatch.setattr(compiling, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    _, known = doubled()
    monkeypatch.setattr(known, "_compiled", slow)
    known.compile(np.float64)
    other.join(10)
    assert compiling.seconds == 1000 and len(known.versions) == 2


def test_ctrl_c_in_a_callback_of_the_compiler_ends_it(monkeypatch, capsys):
    @ctypes.CFUNCTYPE(None)
    def callback():
        raise KeyboardInterrupt

    class Interrupted:
        def __init__(self, *arguments):
            pass

        def compile(self, signature):
            callback()
    monkeypatch.setattr(compiling, "_njit", Interrupted)
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        doubled()[0](np.ones(3), 1)
    assert sys.unraisablehook is hook and capsys.readouterr().err == ""


NEWLY_COMPILED = """
import os, sys
os.environ["NUMBA_CACHE_DIR"] = sys.executable      # no folder
import minigrad
from minigrad.kernels.compiler.compiling import KERNELS
from tests.minigrad.kernels.newly import code_of
for name in ("norm_vjp", "softmax"):
    print(code_of(KERNELS[name]))
"""


@pytest.mark.meanwhile("-c", NEWLY_COMPILED)
def test_the_compiler_is_given_no_leave_to_change_bits(ended):
    assert ended.returncode == 0, ended.stderr
    operations = [line.split() for line in ended.stdout.splitlines()
                  if any(f" {name} " in line for name in ("fadd", "fsub", "fmul", "fdiv", "fcmp"))]
    assert len(operations) > 50
    assert not [words for words in operations if FLAGS & set(words)]


SMALL = dict(n_layer=1, n_head=2, n_embd=16, block_size=16, ngram_rows=32)
OTHER_FORMS = dict(dropout=0.1, activation="swiglu")        # which take the kernels left


def step_and_sample(settings):
    """The weights of a model after a step, and what it then writes."""
    s = Settings(**settings | SMALL)
    model = Transformer(s.model_config(20), seed=0)
    optimizer = make_optimizer(model, s, Ranks())
    ids = np.arange(34).reshape(2, 17) % 20
    logits = model(ids[:, :-1], rng=np.random.default_rng(0))
    (mg.cross_entropy(logits, ids[:, 1:]) + mg.softmax(logits).max()).backward()
    mg.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    text = generate(model, CharTokenizer("abcdefghijklmnopqrst"), "a", 3, temperature=0)
    return np.concatenate([p.data.ravel() for p in model.parameters()]), text


@pytest.mark.parametrize("settings", [*RECIPES.values(), RECIPES["gpt2"] | OTHER_FORMS],
                         ids=[*RECIPES, "others"])
def test_a_step_and_a_sample_need_no_kernel_that_cannot_be_compiled(monkeypatch, settings):
    def broken(dtype):
        raise OSError("no such instruction")
    expected, text = step_and_sample(settings)
    used = [name for name, known in compiling.KERNELS.items() if np.dtype("f") in known.versions]
    for name in used:
        known = compiling.KERNELS[name]
        decoder._compiles.cache_clear()
        with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for formula in plug.FORMULAS:               # to be plugged in again
                patch.setattr(formula, "kernel", formula.kernel)
            patch.setattr(known, "_compiled", broken)
            patch.delitem(known.versions, np.dtype("f"))
            found, written = step_and_sample(settings)
        assert np.allclose(found, expected, atol=1e-4) and len(written) == len(text), name
        assert all("Numba could not compile" in str(warning.message) for warning in said)
    decoder._compiles.cache_clear()
