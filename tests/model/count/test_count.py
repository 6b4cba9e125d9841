"""What is counted by formula is what the models that are built have, and what they do."""
import itertools
import math
import re
from collections import Counter

import numpy as np
import pytest

import minigrad as mg
import train
from minigrad import formulas
from model import CharTokenizer, Transformer, TransformerConfig, save_checkpoint
from model.count import __main__ as count
from model.run import make_optimizer
from model.settings import Settings
from model.config import ACTIVATIONS, NORMS, POSITIONS
from tests import plain
from tests.pairwise import pairwise

pytestmark = pytest.mark.late
GPT3 = TransformerConfig(vocab_size=50257, block_size=2048, n_layer=96, n_head=96, n_embd=12288)
SMALL = dict(vocab_size=5, n_layer=2, n_head=4, n_embd=8)
PARTS = dict(norm=NORMS, activation=ACTIVATIONS, n_inner=(None, 5), bias=(False, True),
             attention_bias=(None, False, True), mlp_bias=(None, False, True), tied=(True, False),
             n_kv_head=(None, 1))
VARIANTS = [
    *(dict(zip(("n_layer", "n_head", "n_embd", "vocab_size", "block_size", "bias"), values))
      for values in itertools.product((1, 3), (1, 4), (8, 20), (5, 11), (1, 6), (False, True))),
    *(SMALL | options for options in (
        *(dict(n_kv_head=n, bias=bias) for n in (1, 2, 4) for bias in (False, True)),
        *(dict(position=position) for position in POSITIONS),
        dict(qk_norm=True, activation="relu2", zero_init=True),
        dict(qk_norm=True, qk_gain=True, head_dim=6, n_kv_head=2, position="rotary"),
        *(dict(ngrams=n, ngram_rows=7) for n in (1, 2, 4)),
        *(dict(zip(PARTS, values)) for values in pairwise(*PARTS.values()))))]
ROWS = {"token_embedding": "token embedding", "position_embedding": "position embedding",
        "ngram_embedding": "n-gram embedding", "lm_head": "output embedding", "out": "output",
        "norm1": "norms", "norm2": "norms", "norm": "norms", "query_norm": "norms",
        "key_norm": "norms"}      # of the table, by modules


def built(model):
    """Elements of all parameters by row of the table, and of those in the first block."""
    total = Counter()
    first = Counter()
    for path, p in model.named_parameters():
        module = path.split(".")[-2]
        for sizes in (total, first) if path.startswith("blocks.0.") else (total,):
            sizes[ROWS.get(module, module)] += math.prod(p.shape)
    return total, first


def packed(sizes):
    """The counted parts with queries, keys and values as one, as they lie in the model."""
    together = Counter(qkv=sum(sizes[name] for name in ("query", "key", "value")))
    return together + Counter({name: n for name, n in sizes.items()
                               if name not in ("query", "key", "value")})


@pytest.mark.parametrize("settings", VARIANTS, ids=lambda settings: "-".join(
    str(value) for value in settings.values()))
def test_every_part_has_as_many_parameters_as_the_model_that_is_built(settings):
    config = TransformerConfig(**settings)
    model = Transformer(config)
    total, first = built(model)
    layer = count.layer_parameters(config)
    outside = count.outside_layers(config)
    assert packed(layer) == first and count.parameters(config) == total.total()
    assert Counter({name: config.n_layer * n for name, n in first.items()}) + outside == total
    queries = config.n_head * config.d_head
    assert count.cached(config) == sum(
        len(block.attention.qkv.weight.data) - queries for block in model.blocks)
    assert layer["key"] == layer["value"] == layer["query"] * config.kv_heads / config.n_head


@pytest.mark.parametrize("sizes", [
    dict(n_embd=4 * 10 ** 9), dict(ngrams=2, ngram_rows=10 ** 20), dict(vocab_size=10 ** 20)])
def test_parameters_of_what_no_array_of_numpy_can_hold_are_refused(sizes):
    with pytest.raises(ValueError, match="^no machine has the memory for n_embd .* take less"):
        count.parameters(TransformerConfig(**SMALL | sizes))


def test_a_hundred_million_layers_are_counted_without_building_them():
    one, many = (TransformerConfig(**SMALL | dict(n_layer=n)) for n in (1, 10 ** 8))
    each = count.layer_parameters(one)
    assert count.layer_parameters(many) == each
    assert count.parameters(many) - count.parameters(one) == (10 ** 8 - 1) * each.total()


def test_gpt3s_attention_has_the_published_58_billion_parameters():
    total, first = built(Transformer(GPT3, dtype=None))
    layer = count.layer_parameters(GPT3)
    table = count.parameter_table(GPT3)
    assert packed(layer) == first and total.total() == count.parameters(GPT3)
    rows = {line[:20].strip(): line.split() for line in table}
    assert rows["attention"][-4:-1] == ["6,291,456", "603,979,776", "57,982,058,496"]
    assert rows["key"][-4:-1] == ["1,572,864", "150,994,944", "14,495,514,624"]     # 12,288 x 128
    assert rows["attention"][-1] == "33.2%"                                         # about a third
    assert rows["total"][-2] == "174,591,270,912"                                   # 175 billion
    assert layer["value"] == layer["output"] == 96 * 1_572_864 == 12_288 ** 2
    assert table[-2:] == [
        "A head's value and output matrices, down to 128 channels and up again, have",
        "3,145,728 parameters; one of 12,288 x 12,288 in their place has 150,994,944."]


@pytest.mark.parametrize("settings", VARIANTS[::5], ids=str)
def test_operations_are_those_that_run_and_three_times_as_many_to_train(settings, monkeypatch):
    """Counted from the products that run forward and backward in plain NumPy."""
    plain.use(monkeypatch)
    config = TransformerConfig(**settings)
    done = Counter()
    for name, flops in (("matmul", lambda a, b, *_: 2 * a.size * b.shape[1]),
                        ("attention", lambda q, *_: 2 * q.size * (q.shape[-2] + 1)),
                        ("attention_vjp", lambda g, *_: 4 * g.size * (g.shape[-2] + 1))):
        def counting(*args, f=getattr(formulas, name), flops=flops, kind=name[:6], **settings):
            done[kind] += flops(*args)
            return f(*args, **settings)
        monkeypatch.setattr(formulas, name, counting)
    ids = np.zeros((2, config.block_size), int)
    logits = Transformer(config)(ids)
    weights, attention = count.forward_flops(config)
    forward = {"matmul": ids.size * weights, "attent": ids.size * attention}
    assert done == forward
    mg.cross_entropy(logits, ids).backward()
    assert done == {kind: 3 * n for kind, n in forward.items()}


@pytest.mark.parametrize("optimizer, tied, parts", [
    ("adamw", True, {}), ("muon", True, {}),
    ("muon", True, dict(attention_bias=True, mlp_bias=True)),
    ("muon", False, dict(activation="swiglu", n_inner=33, attention_bias=False))])
def test_bytes_are_those_of_the_arrays(optimizer, tied, parts):
    config = TransformerConfig(vocab_size=50, block_size=500, n_layer=3, n_head=4, n_embd=40,
                               bias=True, tied=tied, **parts)
    model = Transformer(config)
    state = make_optimizer(model, Settings(optimizer=optimizer)).state()
    rows = {line[:45].strip(): re.split("  +", line[45:].strip())
            for line in count.bytes_table(config, optimizer)}
    weights = sum(p.data.nbytes for p in model.parameters())
    by = {"adamw": "AdamW", "muon": "Muon and AdamW"}[optimizer]
    of_a_token = 3 * 2 * 40 * 4
    unread = 499 + (0 if tied else 49)      # all but one of the positions, and of such tokens
    for name, n in {"weights": weights, "to train: gradients": weights,
                    f"to train: the state of {by}": sum(array.nbytes for _, _, array in state),
                    "keys and values of a token": of_a_token,
                    "keys and values of a full block": 500 * of_a_token,
                    "read to write a token, the cache full":
                        weights - unread * 40 * 4 + 500 * of_a_token}.items():
        assert rows[name][0] == count.scaled(n, "B"), name
    assert rows["weights"][1] == count.scaled(weights / 2, "B")


def run(capsys, *flags):
    count.main(list(flags))
    return capsys.readouterr().out


def test_the_command_prints_three_tables_of_at_most_80_columns(capsys):
    said = run(capsys, "--recipe", "gpt2", "--n_layer", "96", "--n_head", "96", "--n_embd",
               "12288", "--vocab-size", "50257", "--block_size", "2048")
    assert said == count.report(GPT3, "adamw") + "\n"
    assert all(len(line) <= 80 and line == line.rstrip() for line in said.splitlines())
    llama = run(capsys, "--no-tied", "--activation", "swiglu", "--n_inner", "9")
    for row, tied in (("\n  gate  ", 0), ("\noutput embedding ", 0),
                      ("The token embedding is the output's weights as well.", 1)):
        assert (row in said) == tied != (row in llama)
    smallest = run(capsys, "--recipe=gpt2", "--n_layer=1", "--n_head=1", "--n_embd=1",
                   "--block_size=1")
    assert smallest.startswith("1 layer, 1 head of 1; 1 channel, vocabulary 62, block 1\n")
    assert "\nattention to 1 key, the mean of a block  " in smallest


@pytest.mark.parametrize("flags", [
    (), ("--recipe", "gpt2"), ("--n_layer", "1", "--no-qk_norm", "--position", "learned",
                               "--ngram_dropout", "0.1")], ids=" ".join)
def test_by_the_same_flags_it_counts_what_train_py_says_it_trains(capsys, flags):
    train.main(["--explain", *flags])       # which goes no further than a step, and saves nothing
    trains = re.search(r"^model +([\d,]+) parameters", capsys.readouterr().out, re.M)[1]
    assert re.search(r"^total .* ([\d,]+) +100\.0%$", run(capsys, *flags), re.M)[1] == trains


def test_a_trained_model_is_counted_by_its_folder(capsys, tmp_path):
    config = TransformerConfig(vocab_size=3, block_size=5, n_layer=2, n_head=2, n_embd=6, bias=True)
    for record, optimizer in (({}, "adamw"), ({"settings": {"optimizer": "muon"}}, "muon")):
        save_checkpoint(tmp_path / "ckpt.npz", Transformer(config), CharTokenizer("abc"), record)
        assert run(capsys, "--out_dir", str(tmp_path)) == count.report(config, optimizer) + "\n"
