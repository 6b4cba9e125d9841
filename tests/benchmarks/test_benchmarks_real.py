"""The model of a folder beside the library transformers.  No test times anything."""
import argparse
import importlib.util

import numpy as np
import pytest

import data
from model import CharTokenizer, Transformer, TransformerConfig, save_checkpoint
from tests.benchmarks import real
from tests.benchmarks.report import Report
from tests.benchmarks.timing import Seconds

OPTIONS = argparse.Namespace(quick=True, rounds=1, steps=3, threads=2)
LLAMA = dict(block_size=24, n_layer=1, n_head=2, n_embd=8, position="rotary", norm="rms_gain",
             activation="swiglu")


@pytest.fixture
def path(tmp_path):
    tokenizer = CharTokenizer(data.read_text(real.TEXT))
    save_checkpoint(tmp_path / "ckpt.npz",
                    Transformer(TransformerConfig(tokenizer.vocab_size, **LLAMA)), tokenizer)
    return tmp_path / "ckpt.npz"


class Transformers:
    """A side that draws in half a second, and whose logits are `apart` from the right ones."""
    apart = 0.0

    def __init__(self, path):
        self.model = real.load_checkpoint(path).model

    def logits(self, ids):
        return real.Decoder(self.model).read(ids) * (1 + self.apart)

    def generate(self, ids, count):
        return Seconds(0.5)

    def read(self, ids):
        return Seconds(0.25)

    def close(self):
        pass


def measured(path, monkeypatch, there=True):
    monkeypatch.setattr(real, "Transformers", Transformers)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: there or None)
    report = Report(None)
    real.measure_tokens(OPTIONS, report, path)
    return [table["rows"] for table in report.content["tables"]]


def test_tokens_and_a_prompt_are_measured_beside_transformers(path, monkeypatch, capsys):
    (ours, theirs), (reading, other) = measured(path, monkeypatch)
    assert [row[0] for row in (ours, theirs, reading, other)] == ["minigrad", "transformers"] * 2
    assert theirs[4] == pytest.approx(6) and theirs[5] == pytest.approx(6)      # a second
    assert other[-2] == pytest.approx(23 / 0.25) and ours[-1] == reading[-1] == 1
    assert "agree with those of transformers to 0e+00" in capsys.readouterr().out


def test_where_transformers_is_absent_the_tables_say_so(path, monkeypatch, capsys):
    assert [len(rows) for rows in measured(path, monkeypatch, there=False)] == [1, 1]
    assert real.ABSENT in capsys.readouterr().out


def test_sides_that_do_not_compute_the_same_are_not_compared(path, monkeypatch):
    monkeypatch.setattr(Transformers, "apart", 2e-3)
    with pytest.raises(SystemExit, match="do not compute the same: logits are 2e-03"):
        measured(path, monkeypatch)


@pytest.mark.parametrize("options, apart", [(LLAMA, []), (LLAMA | {"tied": False}, ["token"]),
                                            (dict(block_size=24, n_layer=1, n_head=2, n_embd=8),
                                             ["position"])])
def test_a_token_needs_all_weights_but_those_it_looks_up(options, apart):
    model = Transformer(TransformerConfig(5, **options))
    assert real.bytes_of_a_step(model) == sum(
        p.data.nbytes for name, p in model.named_parameters()
        if name not in [f"{part}_embedding.weight" for part in apart])


def test_the_memory_is_read_to_its_last_number():
    a = np.arange(1001, dtype=np.float32)
    assert real.summed(a) == a.sum()
