"""What is counted by formula is what the models that are built have, and what they do."""
import itertools
import math
import re

import numpy as np
import pytest

import minigrad as mg
import train
from minigrad import Tensor
from minigrad.core import watch_ops
from model import CharTokenizer, Transformer, TransformerConfig, save_checkpoint
from model.count import __main__ as count
from model.run import optimizer_of
from model.settings import Settings
from model.transformer import ACTIVATIONS, NORMS, POSITIONS
from tests.benchmarks.sizes import SIZES, VOCABULARY, step_flops
from tests.pairwise import pairwise

GPT3 = TransformerConfig(vocab_size=50257, block_size=2048, n_layer=96, n_head=96, n_embd=12288)
VARIANTS = [dict(zip(("n_layer", "n_head", "n_embd", "vocab_size", "block_size", "bias"), values))
            for values in itertools.product((1, 3), (1, 4), (8, 20), (5, 11), (1, 6),
                                            (False, True))]
VARIANTS += [dict(vocab_size=5, n_layer=2, n_head=4, n_embd=8, n_kv_head=n, bias=bias)
             for n in (1, 2, 4) for bias in (False, True)]
VARIANTS += [dict(vocab_size=5, n_layer=2, n_head=4, n_embd=8, position=position)
             for position in POSITIONS]
VARIANTS += [dict(vocab_size=5, n_layer=2, n_head=4, n_embd=8, bias=bias, norm=norm)
             for bias in (False, True) for norm in NORMS]
VARIANTS += [dict(vocab_size=5, n_head=4, n_embd=8, qk_norm=True, activation="relu2",
                  zero_init=True)]
VARIANTS += [dict(vocab_size=5, n_head=4, n_embd=8, ngrams=n, ngram_rows=7) for n in (1, 2, 4)]
PARTS = dict(norm=NORMS, activation=ACTIVATIONS, n_inner=(None, 5), bias=(False, True),
             attention_bias=(None, False, True), mlp_bias=(None, False, True), tied=(True, False),
             n_kv_head=(None, 1))
VARIANTS += [dict(vocab_size=5, n_head=4, n_embd=8) | dict(zip(PARTS, values))
             for values in pairwise(*PARTS.values())]


@pytest.fixture
def weightless(monkeypatch):
    """Let models be built whose weights have their shapes and no memory."""
    def normal(rng, shape, std, dtype):
        return Tensor(np.broadcast_to(np.float32(0), shape), requires_grad=True)
    monkeypatch.setattr("model.layers.normal", normal)


def part_of(path):
    """The row of the table to which a parameter belongs."""
    name = path.rpartition(".")[0].split(".")[-1]
    return {"token_embedding": "token embedding", "position_embedding": "position embedding",
            "ngram_embedding": "n-gram embedding", "lm_head": "output embedding", "out": "output",
            "norm1": "norms", "norm2": "norms", "norm": "norms"}.get(name, name)


def built(model):
    """Elements of all parameters by part, and of those in the first block."""
    total, first = {}, {}
    for path, p in model.named_parameters():
        for sizes in (total, first) if path.startswith("blocks.0.") else (total,):
            sizes[part_of(path)] = sizes.get(part_of(path), 0) + p.size
    return total, first


def packed(sizes):
    """The counted parts with queries, keys and values as one, as they lie in the model."""
    together = sum(sizes[name] for name in ("query", "key", "value"))
    return {"qkv": together} | {name: n for name, n in sizes.items()
                                if n and name not in ("query", "key", "value")}


def check(config):
    total, first = built(Transformer(config))
    layer, outside = count.of_a_layer(config), count.outside_layers(config)
    assert packed(layer) == first
    counted = {name: config.n_layer * n for name, n in packed(layer).items()}
    for name, n in outside.items():
        counted[name] = counted.get(name, 0) + n
    assert {name: n for name, n in counted.items() if n} == total
    assert count.parameters(config) == sum(total.values())
    layers = Transformer(config).layers(np.zeros(1, int))
    assert count.cached(config) == sum(qkv.shape[-1] - config.n_embd for qkv, _ in layers)
    assert layer["key"] == layer["value"]
    assert layer["key"] * config.n_head == layer["query"] * config.kv_heads


@pytest.mark.parametrize("settings", VARIANTS, ids=lambda settings: "-".join(
    str(value) for value in settings.values()))
def test_every_part_has_as_many_parameters_as_the_model_that_is_built(settings):
    check(TransformerConfig(**settings))


def test_gpt3s_attention_has_the_published_58_billion_parameters(weightless):
    model = Transformer(GPT3)
    memory = sum(p.size * p.data.itemsize for p in model.parameters() if p.data.strides[-1])
    assert memory < 2**24                                   # the norms; the rest takes none
    total, first = built(model)
    assert packed(count.of_a_layer(GPT3)) == first
    assert sum(total.values()) == count.parameters(GPT3)
    rows = {line[:20].strip(): line.split() for line in count.parameter_table(GPT3)}
    assert rows["attention"][-4:-1] == ["6,291,456", "603,979,776", "57,982,058,496"]
    assert rows["key"][-4:-1] == ["1,572,864", "150,994,944", "14,495,514,624"]     # 12,288 x 128
    assert rows["attention"][-1] == "33.2%"                                         # about a third
    assert rows["total"][-2] == "174,591,270,912"                                   # 175 billion


def test_a_square_value_matrix_would_have_a_hundred_times_gpt3s_value_down():
    down, up = (count.of_a_layer(GPT3)[part] // 96 for part in ("value", "output"))
    assert down == up == 1_572_864 and 12_288 ** 2 == 150_994_944 == 96 * down
    assert count.parameter_table(GPT3)[-2:] == [
        "A head's value and output matrices, down to 128 channels and up again, have",
        "3,145,728 parameters; one of 12,288 x 12,288 in their place has 150,994,944."]


@pytest.mark.parametrize("name, expected", [("small", 804_096), ("baby", 10_745_088)])
def test_the_two_usual_models_have_their_known_sizes(name, expected):
    assert count.parameters(usual(SIZES[name])) == expected


def usual(size):
    return TransformerConfig(VOCABULARY, size.block, size.layers, size.heads, size.channels)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_operations_are_those_of_a_training_step_that_the_benchmarks_divide_by(size):
    products, attention = count.forward_flops(usual(size))
    T = size.block
    assert np.tri(T).sum() / T == (T + 1) / 2               # keys of a query, on the mean
    # The benchmarks take T / 2.
    assert 3 * (products + attention * T / (T + 1)) == step_flops(size) / size.tokens


@pytest.mark.parametrize("settings", VARIANTS[::5], ids=str)
def test_operations_are_those_of_the_products_that_run(settings):
    """Counted from the shapes of what went into each op."""
    config = TransformerConfig(**settings)
    T, done = config.block_size, {"weights": 0, "attention": 0}

    def note(event):
        shapes = [np.shape(x.data if isinstance(x, Tensor) else x) for x in event.inputs]
        if event.op in ("linear", "mlp"):
            # of an MLP up and down, and at the end the gate and its bias, if there are any
            matrices = shapes[1:2] if event.op == "linear" else shapes[1:3] + shapes[7:8]
            done["weights"] += 2 * T * sum(map(math.prod, matrices))
        elif event.op == "self_attention":      # each of C channels with each key that is seen
            done["attention"] += 4 * config.n_embd * sum(range(1, T + 1))
    with mg.no_grad(), watch_ops(note):
        Transformer(config)(np.zeros(T, int))
    weights, attention = count.forward_flops(config)
    assert weights * T == done["weights"] and attention * T == done["attention"]


@pytest.mark.parametrize("optimizer, tied, parts", [
    ("adamw", True, {}), ("muon", True, {}),
    ("muon", False, dict(activation="swiglu", n_inner=33, attention_bias=False))])
def test_bytes_are_those_of_the_arrays(optimizer, tied, parts):
    config = TransformerConfig(vocab_size=50, block_size=500, n_layer=3, n_head=4, n_embd=40,
                               bias=True, tied=tied, **parts)
    model = Transformer(config)
    state = optimizer_of(model, Settings(optimizer=optimizer)).state()
    rows = {line[:45].strip(): line[45:].split("  ")
            for line in count.bytes_table(config, optimizer)}

    def said(name):
        return [cell.strip() for cell in rows[name] if cell.strip()]
    weights = sum(p.data.nbytes for p in model.parameters())
    assert said("weights") == [count.scaled(weights, "B"), count.scaled(weights / 2, "B")]
    assert said("to train: gradients") == [count.scaled(weights, "B")]
    by = {"adamw": "AdamW", "muon": "Muon and AdamW"}[optimizer]
    assert said(f"to train: the state of {by}") == [
        count.scaled(sum(array.nbytes for _, _, array in state), "B")]
    of_a_token = 3 * 2 * 40 * 4
    assert said("keys and values of a token")[0] == count.scaled(of_a_token, "B") == "960.0 B"
    assert said("keys and values of a full block")[0] == count.scaled(500 * of_a_token, "B")
    unread = 499 + (0 if tied else 49)      # all but one of the positions, and of such tokens
    read = weights - unread * 40 * 4 + 500 * of_a_token
    assert said("read to write a token, the cache full")[0] == count.scaled(read, "B")


def test_the_table_has_a_row_for_a_gate_and_for_an_output_that_is_not_tied(capsys):
    usual, llama = run(capsys), run(capsys, "--no-tied", "--activation", "swiglu", "--n_inner", "9")
    for row, is_usual in (("  gate  ", False), ("\noutput embedding ", False),
                          ("The token embedding is the output's weights as well.", True)):
        assert (row in usual, row in llama) == (is_usual, not is_usual), row


def run(capsys, *flags):
    count.main(list(flags))
    return capsys.readouterr().out


def test_the_command_prints_three_tables_of_at_most_80_columns(capsys):
    said = run(capsys, "--recipe", "gpt2", "--n_layer", "96", "--n_head", "96", "--n_embd",
               "12288", "--vocab-size", "50257", "--block_size", "2048")
    assert said == count.report(GPT3, "adamw") + "\n"
    assert all(len(line) <= 80 and line == line.rstrip() for line in said.splitlines())
    assert re.search(r"\ntotal +1,811,963,904 +174,591,270,912 +100.0%\n", said)
    biased = run(capsys, "--bias")
    assert biased != run(capsys) and "one layer" in biased
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


def test_columns_stay_apart_whatever_the_size():
    config = TransformerConfig(62, n_layer=100, n_head=10, n_embd=10 ** 9)
    row, = [line.split() for line in count.parameter_table(config) if line.startswith("  query")]
    assert row == ["query", f"{10 ** 17:,}", f"{10 ** 18:,}", f"{10 ** 20:,}", "8.3%"]


def test_a_trained_model_is_counted_by_its_folder(capsys, tmp_path):
    config = TransformerConfig(vocab_size=3, block_size=5, n_layer=2, n_head=2, n_embd=6, bias=True)
    for record, optimizer in (({}, "adamw"), ({"settings": {"optimizer": "muon"}}, "muon")):
        save_checkpoint(tmp_path / "ckpt.npz", Transformer(config), CharTokenizer("abc"), record)
        assert run(capsys, "--out_dir", str(tmp_path)) == count.report(config, optimizer) + "\n"
