"""How much memory a process may use: what each limit says, and the least of them; and how much a
step of training takes."""
import dataclasses
import math
import os

import numba
import numpy as np
import pytest

import minigrad as mg
from model import Transformer, TransformerConfig
from model.count import memory, sizes
from model.count.memory import check_memory, memory_limit, training_bytes
from model.run import decayed_and_other, optimizer_of
from model.settings import Settings
from tests import kit


@pytest.fixture
def nowhere(tmp_path):
    """Where no control group is."""
    return tmp_path / "groups", tmp_path


def test_it_is_what_the_machine_has_where_nothing_less_is_allowed(nowhere):
    assert 1e8 < memory_limit() <= memory_limit(*nowhere) < 1e14
    if os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo") as file:
            assert memory_limit(*nowhere) == 1024 * int(file.readline().split()[1])


@pytest.mark.parametrize("says, limit", [("1048576\n", 2.0 ** 20), ("max\n", math.inf),
                                         ("9223372036854771712\n", math.inf), (None, math.inf)])
@pytest.mark.parametrize("groups, file", [
    ("0::/\n", "memory.max"), ("0::/a/b\n", "a/b/memory.max"), ("0::/a/b\n", "a/memory.max"),
    ("4:memory:/a\n0::/\n", "memory/a/memory.limit_in_bytes")])
def test_a_control_group_is_believed(nowhere, tmp_path, groups, file, says, limit):
    whole = memory_limit(*nowhere)
    (tmp_path / "groups").write_text(groups)
    if says is not None:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(says)
    assert memory_limit(*nowhere) == min(limit, whole)


@pytest.mark.skipif(os.name == "nt", reason="there are no limits of a process")
@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_of_the_process_is_believed(nowhere, monkeypatch, name):
    import resource
    usual = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda asked: (
        (100 << 20, resource.RLIM_INFINITY) if asked == getattr(resource, name) else usual(asked)))
    assert memory_limit(*nowhere) == 100 << 20


@pytest.mark.skipif(os.name == "nt", reason="it has another way")
def test_a_system_that_does_not_say_what_it_has_limits_nothing(nowhere, monkeypatch):
    def sysconf(name):
        raise ValueError("unrecognized configuration name")
    monkeypatch.setattr(os, "sysconf", sysconf)
    assert memory_limit(*nowhere) == math.inf


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="plain NumPy keeps the (T, T) of attention")
@pytest.mark.parametrize("batch_size, config", [
    (12, TransformerConfig(65, 64, 4, 4, 128)), (2, TransformerConfig(65, 256, 2, 4, 128)),
    (4, TransformerConfig(1000, 64, 2, 2, 64, dropout=0.2)),
    (8, TransformerConfig(30, 32, 6, 2, 32, bias=True)),
    (16, TransformerConfig(65, 64, 4, 4, 64, n_kv_head=1, norm="rms_gain", activation="swiglu",
                           n_inner=512, tied=False)),
    (4, TransformerConfig(65, 64, 4, 4, 64, activation="gelu_tanh", n_inner=64))])
def test_the_bytes_of_a_step_are_those_that_are_allocated_to_a_quarter(batch_size, config):
    rng = np.random.default_rng(0)

    def train():
        model = Transformer(config)
        optimizer = mg.AdamW(decayed_and_other(model))
        for _ in range(2):
            ids = rng.integers(config.vocab_size, size=(batch_size, config.block_size))
            logits = model(ids, rng=rng)
            mg.cross_entropy(logits, ids).backward()
            optimizer.step()
            optimizer.zero_grad()
    train()             # so that what is compiled is not counted
    with kit.memory() as allocated:
        train()
    assert 0.8 < training_bytes(config, "adamw", batch_size) / allocated[0] < 1.25


@pytest.fixture
def limited(monkeypatch):
    """Have so much memory."""
    return lambda limit: monkeypatch.setattr(memory, "memory_limit", lambda: float(limit))


def test_check_fits_compares_with_what_the_machine_has(limited):
    limited(1e9)
    memory.check_fits(1e9, "these")
    assert kit.refusal(ValueError, memory.check_fits, 2e9, "these", "do that") == (
        "these need 2.000 GB of memory, and this machine has 1.000 GB; do that")


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_that_needs_more_memory_than_there_is_is_refused(limited, optimizer):
    s = Settings(batch_size=64, optimizer=optimizer)
    usual = s.model_config(65)

    def refused(limit, inner=None, **changes):
        limited(limit)
        changed = dataclasses.replace(s, **changes)
        config = dataclasses.replace(changed.model_config(65), n_inner=inner)
        return kit.refusal(ValueError, check_memory, changed, config)
    needed, model = (training_bytes(usual, optimizer, size) for size in (64, 0))
    limited(needed)
    check_memory(s, usual)
    assert refused(needed, batch_size=65).startswith("--batch_size 65, --block_size 64, ")
    assert "--gradient_accumulation_steps 2 need" in refused(needed, gradient_accumulation_steps=2)
    assert "--n_layer 4, --n_embd 128 need" in refused(model - 1)
    assert "--n_embd 128, --ngram_rows 8192 need" in refused(model, ngrams=2)
    assert "TB of memory" in refused(1e9, inner=10 ** 9)
    for config in (usual, TransformerConfig(30, 32, 6, 2, 32, bias=True, ngrams=3)):
        of_state = (a for *_, a in optimizer_of(Transformer(config), s).state())
        numbers = 2 * sizes.parameters(config) + sum(a.size for a in of_state)
        assert training_bytes(config, optimizer, 0) == 4 * numbers
