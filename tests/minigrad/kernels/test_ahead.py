"""Compiling ahead: what it compiles is what a training step and a sample run."""
import subprocess

import numba
import pytest

from minigrad.kernels.compiler import ahead, compiling, threads

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT or threads.count() == 1,
                                reason="nothing is compiled ahead on one processor")

STEP = """
import sys
import numpy as np
import minigrad as mg
from minigrad.kernels.compiler import ahead, compiling
from model import CharTokenizer, Transformer, TransformerConfig, generate
modern = sys.argv[1] == "modern"
asked = []
compile = compiling.Kernel.compile
compiling.Kernel.compile = lambda kernel, dtype: asked.append(kernel.name)
ahead.compile_ahead(modern, modern, modern)
compiling.Kernel.compile = compile
print(*asked)
more = dict(norm="rms", qk_norm=True, position="rotary", activation="relu2",
            ngrams=3, ngram_dropout=0.1) if modern else {}
model = Transformer(TransformerConfig(65, 64, n_layer=1, n_head=4, n_embd=128, **more))
ids = np.arange(12 * 64).reshape(12, 64) % 65
matrices = model.blocks[0].parameters() if modern else []
others = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
optimizer = mg.AdamW(others)
if modern:
    optimizer = mg.Optimizers([optimizer, mg.Muon(matrices)])
mg.cross_entropy(model(ids, np.random.default_rng(0)), ids).backward()
mg.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
print(*[name for name, kernel in compiling.KERNELS.items() if kernel.versions])
generate(model, CharTokenizer("".join(map(chr, range(48, 48 + 65)))), "0", 3)
print(*[name for name, kernel in compiling.KERNELS.items() if kernel.versions])
"""


@pytest.mark.parametrize("modern", [
    pytest.param(False, marks=pytest.mark.meanwhile("-c", STEP, "gpt2")),
    pytest.param(True, marks=pytest.mark.meanwhile("-c", STEP, "modern"))])
def test_what_is_compiled_ahead_is_what_a_step_and_then_a_sample_run(modern, ended):
    assert ended.returncode == 0, ended.stderr
    asked, step, sample = (set(line.split()) for line in ended.stdout.splitlines())
    assert asked == step and {"muon", "sum_rows", "norm_heads"} <= step or not modern
    assert asked == step == {*ahead.STEP} or modern
    assert sample - step == {*ahead.SAMPLE}


@pytest.fixture
def on_disk(monkeypatch):
    """The names of the kernels that are on disk; none is compiled."""
    names = set(compiling.KERNELS)
    monkeypatch.setattr(compiling.Kernel, "on_disk", lambda kernel: kernel.name in names)
    monkeypatch.setattr(compiling.Kernel, "compile", lambda kernel, dtype: None)
    return names


@pytest.fixture
def started(monkeypatch):
    """The commands of the processes that are started; none is."""
    commands = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **settings: commands.append(command))
    return commands


def test_what_is_missing_is_announced_and_compiled_by_a_second_process(on_disk, started, capsys):
    rare = ["norm_heads_vjp", "norm_heads", "swiglu_vjp", "swiglu", "muon"]
    on_disk.difference_update(rare, ["decode"])
    compiling.announce("compiling")
    ahead.compile_ahead()
    assert not started and capsys.readouterr().out == ""        # all of it is on disk
    ahead.compile_ahead(True, True, gated=True, sample=True)
    assert capsys.readouterr().out == "compiling 6 kernels for this machine\n"
    assert len(started) == 1
    assert started[0][-1].endswith(f"({rare}, ['decode'])")


def test_compile_ahead_starts_a_process_that_ends_with_this_one(on_disk, monkeypatch):
    """Its standard input is a pipe, which the system closes however this one ends."""
    real = subprocess.Popen
    started = []

    def popen(command, **settings):
        endless = "import time; ahead._compile = lambda names: time.sleep(600); ahead.compile_in"
        code = command[-1].replace("ahead.compile_in", endless)
        started.append(real([*command[:-1], code], **settings))
        return started[0]
    monkeypatch.setattr(subprocess, "Popen", popen)
    on_disk.clear()
    ahead.compile_ahead()
    process, = started
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(timeout=100) == 1


def test_one_processor_compiles_without_a_second_process(monkeypatch, on_disk, started):
    monkeypatch.setattr(threads, "count", lambda: 1)
    on_disk.clear()
    ahead.compile_ahead(True, True, True, sample=True)
    assert not started
