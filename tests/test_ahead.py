"""Compiling ahead: what it compiles is what a training step runs."""
import subprocess
import sys

import numba
import pytest

from minigrad.kernels import ahead
from minigrad.kernels.build import compiling, threads

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT or threads.count() == 1,
                                reason="nothing is compiled ahead without threads")

STEP = """
import sys
import numpy as np
import minigrad as mg
from minigrad.kernels.ahead import compile_ahead
from model import Transformer, TransformerConfig
modern = sys.argv[1] == "modern"
compile_ahead(12 * 64 * 128, modern, modern, modern)    # in two processes, which is quicker
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
for name, module in list(sys.modules.items()):
    if name.startswith("minigrad.kernels."):
        for f in vars(module).values():
            print(f.__name__ if getattr(f, "versions", ()) else "")
"""


@pytest.mark.parametrize("modern", [False, True])
def test_what_is_compiled_ahead_is_what_a_step_runs_on_threads(modern):
    said = subprocess.run([sys.executable, "-c", STEP, "modern" if modern else "gpt2"],
                          capture_output=True, text=True, check=True)
    assert set(said.stdout.split()) == ({kernel.__name__ for kernel in ahead.others(modern, modern)}
                                        | {"matmul_kernel", "attention_kernel"}
                                        | ({"muon_kernel"} if modern else set()))


def test_a_model_too_small_for_threads_starts_no_second_process(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)      # not to be called
    ahead.compile_ahead(compiling.FEW - 1)
    assert not compiling.elsewhere


def test_what_is_on_disk_is_not_compiled_by_a_second_process(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    compiled = []
    for kernel in ahead.own(True) + ahead.others(True, True):
        monkeypatch.setattr(kernel, "on_disk", lambda: True)
        monkeypatch.setattr(kernel, "compile", lambda *kind: compiled.append(kind))
    ahead.compile_ahead(12 * 64 * 128, muon=True, qk_norm=True, ngrams=True)
    assert len(compiled) == 3


def test_what_a_second_recipe_needs_is_announced_and_compiled(monkeypatch):
    started, said = [], []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **settings: started.append(command))
    monkeypatch.setattr(compiling, "elsewhere", {})
    monkeypatch.setattr(compiling, "_say", said.append)
    for kernel in ahead.own(True) + ahead.others(True, True):
        new = kernel.__name__ == "norm_heads_kernel"
        monkeypatch.setattr(kernel, "on_disk", lambda new=new: not new)
        monkeypatch.setattr(kernel, "compile", lambda *kind: None)
    ahead.compile_ahead(12 * 64 * 128)
    assert not started and not said
    ahead.compile_ahead(12 * 64 * 128, muon=True, qk_norm=True, ngrams=True)
    assert len(started) == len(said) == 1 and list(compiling.elsewhere) == ["norm_heads_kernel"]
