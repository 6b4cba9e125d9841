"""What a run needs, and what it prints."""
import dataclasses
import re
import tracemalloc

import numba
import numpy as np
import pytest

import data
import minigrad as mg
from model import Transformer, TransformerConfig, report
from model.count import memory, sizes
from model.count.memory import check_memory, training_bytes
from model.report import standing
from model.run import State, Step, decayed_and_other, optimizer_of
from model.settings import Settings
from tests.kit import refusal


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
    tracemalloc.start()
    train()
    allocated = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.8 < training_bytes(config, "adamw", batch_size) / allocated < 1.25


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_that_needs_more_memory_than_there_is_is_refused(monkeypatch, optimizer):
    s = Settings(batch_size=64, optimizer=optimizer)

    def refused(limit, **changes):
        monkeypatch.setattr(memory, "memory_limit", lambda: float(limit))
        return refusal(ValueError, check_memory, dataclasses.replace(s, **changes), 65)
    needed, model = (training_bytes(s.model_config(65), optimizer, size) for size in (64, 0))
    monkeypatch.setattr(memory, "memory_limit", lambda: float(needed))
    check_memory(s, 65)
    assert refused(needed, batch_size=65).startswith("--batch_size 65, --block_size 64, ")
    assert "--gradient_accumulation_steps 2 need" in refused(needed, gradient_accumulation_steps=2)
    assert "--n_layer 4, --n_embd 128 need" in refused(model - 1)
    assert "--n_inner 1000000000 need" in refused(1e9, n_inner=10 ** 9)
    for config in (s.model_config(65), TransformerConfig(30, 32, 6, 2, 32, bias=True, ngrams=3)):
        of_state = (a for *_, a in optimizer_of(Transformer(config), s).state())
        numbers = 2 * sizes.parameters(config) + sum(a.size for a in of_state)
        assert training_bytes(config, optimizer, 0) == 4 * numbers


@pytest.mark.parametrize("loss, says", [
    (3.6, "above every counted n-gram"), (3.4, "below the counted 4-gram"),
    (3.3, "below the counted unigram"), (3.2, "below the counted bigram")])
def test_an_evaluation_is_compared_with_the_best_n_gram_even_if_longer_ones_are_worse(loss, says):
    counted = {"unigram": 3.31, "bigram": 3.25, "trigram": 3.51, "4-gram": 3.5}     # a short text
    assert standing(State(0), None, loss, counted).endswith(f"   {says}")


def spikes(losses, run):
    """The steps of which a spike is reported, and the usual losses."""
    progress, said, run.state.recent = report.Progress(run, {}), [], []
    progress.bar.write = lambda line, *_: said.append(line)
    for number, loss in enumerate(losses, 1):
        run.state.note_step(loss, 0.1)
        progress.show(Step(number, {}, loss=loss, norm=1.0, taken=True))
    progress.bar.close()
    return [(int(number), float(usual)) for number, usual in re.findall(
        r"step +(\d+)   a spike: the training loss is \d+\.\d{3}, where (\S+) is usual; gradient "
        r"norm 1 before clipping", "\n".join(said))]


def test_a_spike_is_a_loss_far_above_the_usual_ones_and_is_reported_once():
    text, s = data.Text("to be or not to be\n" * 20), Settings(n_embd=8, n_layer=1, max_iters=1000)
    model = Transformer(s.model_config(text.tokenizer.vocab_size))
    of = report.Run(s, text, model, mg.AdamW(model.parameters()))
    usual = [1.9, 2.0, 2.1] * 40                    # a deviation of 0.15
    assert spikes([4.0, *usual], of) == [] and spikes(usual[:49] + [9.0], of) == []
    assert spikes(usual[:50] + [9.0], of) == [(51, 2.0)]
    assert spikes([*usual, 3.1], of) == [] and spikes([*usual, 3.3], of) == [(121, 2.0)]
    calm = [2.0] * 120
    assert spikes([*calm, 2.59], of) == [] and spikes([*calm, 2.61], of) == [(121, 2.0)]
    assert spikes([*usual, 5.0, 2.0, 5.0, *usual[:18], 5.0, 5.0], of) == [(121, 2.0)]
    assert spikes([*usual, 5.0, *usual[:20], 5.0], of) == [(121, 2.0), (142, 2.0)]
    assert len(spikes(calm + [4.0] * 300, of)) == 1     # what stays is the new usual
