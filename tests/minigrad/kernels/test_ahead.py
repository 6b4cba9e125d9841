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
ahead.compile_ahead(modern, modern, modern, sample=True)    # in two processes, which is quicker
more = dict(norm="rms", qk_norm=True, position="rotary", activation="relu2",
            ngrams=3, ngram_dropout=0.1) if modern else {}
model = Transformer(TransformerConfig(65, 64, n_layer=1, n_head=4, n_embd=128, **more))
ids = np.arange(12 * 64).reshape(12, 64) % 65
optimizer = mg.AdamW(model.parameters())
if modern:
    optimizer = mg.Optimizers([optimizer, mg.Muon(model.blocks[0].parameters())])
mg.cross_entropy(model(ids, np.random.default_rng(0)), ids).backward()
mg.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
names = [[name for name, kernel in compiling.KERNELS.items() if kernel.versions]]
generate(model, CharTokenizer("".join(map(chr, range(48, 48 + 65)))), "0", 3)
names.append([name for name, kernel in compiling.KERNELS.items() if kernel.versions])
print(*[" ".join(found) for found in names], sep="\\n")
"""


@pytest.mark.parametrize("modern", [
    pytest.param(False, marks=pytest.mark.meanwhile("-c", STEP, "gpt2")),
    pytest.param(True, marks=pytest.mark.meanwhile("-c", STEP, "modern"))])
def test_what_is_compiled_ahead_is_what_a_step_and_then_a_sample_run(modern, ended):
    assert ended.returncode == 0, ended.stderr
    step, sample = (set(line.split()) for line in ended.stdout.splitlines())
    norms, ngrams = {"norm_heads", "norm_heads_vjp"}, {"sum_rows", "ngram_rows"}
    assert step == {*ahead.OWN, *ahead.OTHERS} | ({"muon"} | norms | ngrams if modern else set())
    assert sample - step == {*ahead.SAMPLE}


@pytest.fixture
def on_disk(monkeypatch):
    """The names of the kernels that are on disk; none is compiled, and no process is started."""
    names = {*ahead.OWN, *ahead.OTHERS, *ahead.SAMPLE, "muon", "sum_rows", "ngram_rows",
             "norm_heads", "norm_heads_vjp", "swiglu", "swiglu_vjp"}
    for name in names.copy():
        kernel = compiling.KERNELS[name]
        monkeypatch.setattr(kernel, "on_disk", lambda name=name: name in names)
        monkeypatch.setattr(kernel, "compile", lambda dtype: None)
    monkeypatch.setattr(compiling, "elsewhere", {})
    return names


def test_what_is_on_disk_is_not_compiled_by_a_second_process(monkeypatch, on_disk):
    monkeypatch.setattr(subprocess, "Popen", None)      # not to be called
    ahead.compile_ahead(True, True, True, sample=True)
    assert not compiling.elsewhere


def test_what_a_second_recipe_needs_is_announced_and_compiled(monkeypatch, on_disk, capsys):
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **settings: started.append(command))
    on_disk -= {"norm_heads", "muon", "decode", "swiglu"}
    compiling.announce("compiling")
    ahead.compile_ahead()
    assert not started and capsys.readouterr().out == ""
    ahead.compile_ahead(True, True, gated=True, sample=True)
    assert capsys.readouterr().out.startswith("compiling 4 kernels for this machine")
    assert len(started) == 1 and list(compiling.elsewhere) == ["norm_heads", "swiglu"]
    assert started[0][-1].endswith("(['norm_heads', 'swiglu'], ['decode'])")


def test_one_processor_compiles_without_a_second_process(monkeypatch, on_disk):
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(threads, "count", lambda: 1)
    on_disk.clear()
    ahead.compile_ahead(True, True, True, sample=True)
