"""A model with an adapter: what it computes, what it trains, and what it refuses."""
import dataclasses

import numpy as np
import pytest

import minigrad as mg
from minigrad.packed import BLOCKS, NUMBERS, PackedTensor
from minigrad.random import RowsFrom
from model import Transformer
from model.cache import KVCache
from model.generation import Reader, generate
from tests.kit import model_of, refusal
from tests.model.lora.adapters import LLAMA, OURS, adapted, packed_base, trained_a_little

pytestmark = pytest.mark.late

IDS = np.random.default_rng(0).integers(20, size=(2, 8))
TARGETS = np.roll(IDS, -1)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu2", "swiglu"])
def test_a_new_adapter_has_the_bits_of_its_base(activation):
    for config in (LLAMA, OURS):
        config = dataclasses.replace(config, activation=activation)
        base = Transformer(config, 1)
        expected = base(IDS).data
        np.testing.assert_array_equal(adapted(config, base)(IDS).data, expected)


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_new_adapter_of_a_packed_base_has_the_bits_of_its_numbers(kind):
    for config in (LLAMA, OURS):
        config = dataclasses.replace(config, n_inner=256)      # a block of the kinds K
        base, floats = packed_base(config, [kind])
        model = adapted(config, base)
        np.testing.assert_array_equal(model(IDS).data, floats(IDS).data)
        assert isinstance(model.blocks[1].mlp.down.weight, PackedTensor)


@pytest.mark.parametrize("config", [LLAMA, OURS], ids=["llama", "ours"])
def test_an_adapter_computes_what_a_model_of_the_merged_weights_computes(config):
    base = Transformer(config, 1, np.float64)
    merged = base.state_dict()
    model = trained_a_little(adapted(config, base, np.float64))
    pairs = dict(model.named_parameters())
    for name in list(pairs):
        if name.endswith("lora_a"):
            path = name.removesuffix("lora_a")
            merged[f"{path}weight"] += 6 / 4 * pairs[f"{path}lora_b"].data @ pairs[name].data
    np.testing.assert_allclose(model(IDS).data, model_of(config, merged, np.float64)(IDS).data,
                               rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [*BLOCKS, None])
def test_the_gradients_of_an_adapter_are_those_of_finite_differences(kind):
    inner = max(64, NUMBERS.get(kind, 0))       # a block at least
    config = dataclasses.replace(LLAMA, n_layer=1, n_inner=inner)
    base = packed_base(config, [kind])[0] if kind else Transformer(config, 1, np.float64)
    model = trained_a_little(adapted(config, base, np.float64, lora=1))
    before = {name: p.data.copy() for name, p in Transformer.named_parameters(model)}
    model.loss(IDS, TARGETS).backward()
    assert {name for name, p in model.named_parameters() if p.grad is None} == set()
    for name, p in model.named_parameters():
        for i in ((0, 0), (-1, -1)):
            there = p.data[i]
            losses = []
            for moved in (there + 1e-4, there - 1e-4):
                p.data[i] = moved
                losses.append(model.loss(IDS, TARGETS).item())
            p.data[i] = there
            np.testing.assert_allclose(p.grad[i], (losses[0] - losses[1]) / 2e-4, rtol=1e-5,
                                       atol=1e-9, err_msg=name)
    for name, p in Transformer.named_parameters(model):
        np.testing.assert_array_equal(p.data, before[name])


def test_only_the_pairs_are_parameters_and_get_gradients():
    base = Transformer(OURS, 1)
    model = adapted(OURS, base)
    model.loss(IDS, TARGETS).backward()
    names = [name for name, _ in model.named_parameters()]
    assert len(names) == 2 * 4 * 2 and all(name.endswith(("lora_a", "lora_b")) for name in names)
    trained = {id(p) for p in model.parameters()}
    assert all(p.requires_grad == (id(p) in trained)
               for _, p in Transformer.named_parameters(model))
    assert "rank 4" in repr(model)


def test_the_seed_draws_the_first_matrices_and_leaves_the_second_at_zero():
    base = Transformer(LLAMA, 1)
    one, same, other = (dict(adapted(LLAMA, base, seed=seed).named_parameters())
                        for seed in (1, 1, 2))
    for name, p in one.items():
        assert (p.data == same[name].data).all()
        assert (p.data != other[name].data).any() == name.endswith("lora_a")
        assert p.data.any() == name.endswith("lora_a")


@pytest.mark.parametrize("kind", ["Q4_1", None])
def test_the_kv_cache_of_an_adapter_reads_as_its_model(kind):
    base = packed_base(LLAMA, [kind])[0] if kind else Transformer(LLAMA, 1)
    model = trained_a_little(adapted(LLAMA, base))
    cache = KVCache(model, 2)
    cache.read(IDS[:, :3])
    np.testing.assert_allclose(cache.read(IDS[:, 3:], 3), model(IDS).data[:, -1], rtol=1e-4,
                               atol=1e-6)


def test_text_drawn_with_an_adapter_is_the_same_with_and_without_the_cache():
    from model import CharTokenizer
    tokenizer = CharTokenizer.of("abcdefghijklmnopqrst")
    model = trained_a_little(adapted(LLAMA, Transformer(LLAMA, 1)))
    assert isinstance(Reader(model, IDS).cache, KVCache)
    texts = {generate(model, tokenizer, "ab", 30, seed=1, cache=cache) for cache in (True, False)}
    assert len(texts) == 1


def test_a_base_of_more_learned_positions_gives_the_first_ones():
    config = dataclasses.replace(OURS, block_size=12)
    base = Transformer(config, 1)
    expected = base(IDS).data
    np.testing.assert_array_equal(adapted(OURS, base)(IDS).data, expected)


def test_take_base_refuses_a_base_of_other_shapes_or_names():
    wide = Transformer(dataclasses.replace(LLAMA, n_inner=96), 1)
    assert ("mlp.gate.weight has the shape [96, 32] there, and [64, 32] here"
            in refusal(ValueError, adapted, LLAMA, wide))
    assert "only one of them has" in refusal(ValueError, adapted, LLAMA, Transformer(OURS, 1))


@pytest.mark.parametrize("changed, says", [
    (dict(lora_layers="qkv,neck"), "lora_layers neck is no layer of this model, whose blocks have "
                                   "qkv, out, up, down; give some of these"),
    (dict(lora_layers="gate"), "lora_layers gate is no layer"),
    (dict(lora_layers="qkv,"), "lora_layers '' is no layer"),
    (dict(lora_layers="qkv,qkv"), "lora_layers has qkv twice; give each layer once"),
    (dict(lora=33), "lora 33 is above 32, the smaller side of the matrix qkv; take a rank of at "
                    "most 32"),
    (dict(lora=0), "lora is at least 1, not 0"),
    (dict(lora_alpha=-1.0), "lora_alpha is above 0")])
def test_an_adapter_refuses_layers_ranks_and_alphas_that_cannot_be(changed, says):
    assert says in refusal(ValueError, adapted, OURS, Transformer(OURS, 1), **changed)


@pytest.mark.parametrize("kind", ["Q8_0", None])
def test_the_loss_and_its_gradient_are_those_of_all_logits_at_once(kind, monkeypatch):
    """Row by row, and in three pieces of which the last is shorter."""
    for at_once in (1, 6, 128):
        monkeypatch.setattr("model.lora.loss.AT_ONCE", at_once)
        base = packed_base(LLAMA, [kind])[0] if kind else Transformer(LLAMA, 1)
        model = trained_a_little(adapted(LLAMA, base))
        losses = []
        gradients = []
        for loss in (model.loss(IDS, TARGETS), mg.cross_entropy(model(IDS), TARGETS)):
            (3 * loss).backward()
            losses.append(loss.item())
            gradients.append([p.grad for p in model.parameters()])
            for p in model.parameters():
                p.grad = None
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)
        for mine, other in zip(*gradients):
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("layers", ["qkv,out,gate,up,down", "down"])
def test_the_gradients_are_the_same_without_computing_a_block_again(layers, monkeypatch):
    config = dataclasses.replace(LLAMA, dropout=0.3)
    model = trained_a_little(adapted(config, Transformer(config, 1), lora_layers=layers))
    gradients = []
    for _ in range(2):
        model.loss(IDS, TARGETS, RowsFrom(np.random.default_rng(4), 3)).backward()
        gradients.append([p.grad for p in model.parameters()])
        for p in model.parameters():
            p.grad = None
        monkeypatch.setattr("model.lora.adapted.computed_again",
                            lambda x, compute, rng: compute(x, rng))
    for mine, other in zip(*gradients):
        np.testing.assert_array_equal(mine, other)
    model.loss(IDS, TARGETS, np.random.default_rng(5)).backward()
    assert any((p.grad != g).any() for p, g in zip(model.parameters(), gradients[0]))
