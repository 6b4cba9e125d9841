"""The whole model: its gradient, its shapes, where randomness comes from, and that it learns."""
import dataclasses
import itertools
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.random import RowsFrom, generator
from model import Transformer, TransformerConfig
from model.layers import sinusoids
from model.config import NORMS, POSITIONS
from model.transformer import SINUSOID_SIZE
from tests.checking import Counting, frozen, put
from tests.kit import both_types, memory, refusal
from tests.model.forms import IDS, OPTIONS, PARTS, SMALL, TARGETS, changed, enlarged

pytestmark = pytest.mark.late


def training_loss(model, rng=None):
    return mg.cross_entropy(model(IDS, rng), TARGETS)


@pytest.mark.parametrize("factor, dropout, options", [
    (1, False, {}),
    (1, True, dict(bias=True)),
    (20, False, dict(bias=True)),
    (20, True, {}),
    *((8, True, dict(n_embd=12, n_head=3, bias=True) | options)
      for options in OPTIONS + PARTS)], ids=str)
def test_training_loss_has_gradients_that_agree_with_central_differences(factor, dropout, options):
    model = Transformer(changed(**options), seed=1, dtype=np.float64)
    if factor > 1:
        enlarged(model, factor)
    state = model.state_dict()

    def f(*tensors):
        for path, tensor in zip(state, tensors):
            put(model, path, tensor)
        return training_loss(model, np.random.default_rng(1) if dropout else None)
    assert mg.gradcheck(f, *state.values(), rtol=1e-6, atol=1e-6, directions=1)


def test_loss_looks_ahead_with_its_gradient_alone():
    model = Transformer(changed(), seed=1, dtype=np.float64)
    model.look_ahead(3, seed=2)
    enlarged(model)
    usual = model.loss(IDS, TARGETS)
    loss = model.loss(IDS, TARGETS, None, 0.4)
    assert loss.item() == usual.item() == training_loss(model).item()
    loss.backward()

    def lowered():
        x = model.norm(model.states(IDS)).data
        total = training_loss(model).item()
        for k, weight in ((1, 0.4), (2, 0.2), (3, 0.1)):
            logits = x @ model.ahead[k - 1].weight.data.T                       # (B, T, V)
            p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
            told = [-math.log(p[b, t, TARGETS[b, t + k]]) for b in range(3) for t in range(6 - k)]
            total += weight * np.mean(told)
        return total
    rng = np.random.default_rng(3)
    for path, p in model.named_parameters():
        along = rng.standard_normal(p.shape)
        data = p.data.copy()
        p.data = data + 1e-5 * along
        above = lowered()
        p.data = data - 1e-5 * along
        slope = (above - lowered()) / 2e-5
        p.data = data
        assert slope == pytest.approx((p.grad * along).sum(), rel=1e-6, abs=1e-8), path


@pytest.mark.parametrize("ahead", [0, 2])
def test_look_ahead_adds_a_layer_for_each_id_and_changes_no_logits(ahead):
    model = Transformer(SMALL)
    usual = model(IDS).data
    before = sizes()
    model.look_ahead(ahead, seed=2)
    assert np.array_equal(model(IDS).data, usual)
    new = {f"ahead.{k}.weight": (7, 8) for k in range(ahead)}
    assert {path: p.shape for path, p in model.named_parameters()} == before | new
    assert all(layer.weight.data.std() > 0.01 for layer in model.ahead)


@both_types
def test_sinusoids_are_added_to_the_embedding_in_its_type(dtype):
    model = Transformer(changed(position="sinusoidal"), dtype=dtype)
    positions = (SINUSOID_SIZE * sinusoids(6, 8)).astype(dtype)
    found = model.embed(IDS)
    assert found.dtype == dtype
    assert np.array_equal(found.data, model.token_embedding.weight.data[IDS] + positions)


@pytest.mark.parametrize("kind", NORMS)
def test_norm_eps_reaches_every_norm(kind):
    model = Transformer(changed(norm=kind, norm_eps=0.1))
    norms = [model.norm] + [norm for block in model.blocks for norm in (block.norm1, block.norm2)]
    assert [norm.eps for norm in norms] == [0.1] * (1 + 2 * len(model.blocks))


def sizes(**options):
    return {path: p.shape for path, p in Transformer(changed(**options)).named_parameters()}


@pytest.mark.parametrize("options, expected", [
    (dict(bias=True), (2, 32, True, True)),
    (dict(bias=False, mlp_bias=True), (2, 32, False, True)),
    (dict(n_kv_head=1, n_inner=5, bias=True, attention_bias=False), (1, 5, False, True))], ids=str)
def test_resolved_sets_what_is_unset_by_other_options(options, expected):
    config = changed(**options)
    c = config.resolved()
    assert (c.n_kv_head, c.n_inner, c.attention_bias, c.mlp_bias) == expected
    assert config.kv_heads == c.n_kv_head
    assert sizes(**options) == sizes(**dataclasses.asdict(c))


@pytest.mark.parametrize("options, without, new", [
    *[(options, "?", {}) for options in (
        dict(n_kv_head=2),
        dict(ngrams=1, ngram_rows=9),
        dict(qk_norm=True),
        dict(zero_init=True),
        dict(activation="relu2"), dict(activation="gelu_tanh"), dict(n_inner=32),
        dict(rotary_base=3.0), dict(norm_eps=0.1), dict(norm="rms_gain"),
        dict(attention_bias=False, mlp_bias=False))],
    *[(dict(position=position), "position", {}) for position in POSITIONS if position != "learned"],
    (dict(norm="rms"), "norm", {}),
    (dict(ngrams=4, ngram_rows=9), "?", {"ngram_embedding.weight": (9, 8)}),
    (dict(tied=False), "?", {"lm_head.weight": (7, 8)}),
    (dict(n_kv_head=1), "?", {f"blocks.{i}.attention.qkv.weight": (16, 8) for i in range(2)}),
    (dict(activation="swiglu", n_inner=5), "?", {
        f"blocks.{i}.mlp.{name}.weight": (8, 5) if name == "down" else (5, 8)
        for i in range(2) for name in ("gate", "up", "down")})], ids=str)
def test_TransformerConfig_changes_the_parameters_as_its_options_say(options, without, new):
    usual = {path: shape for path, shape in sizes().items() if without not in path}
    assert sizes(**options) == usual | new


def test_Block_with_zero_init_begins_by_passing_on_what_it_reads_and_learns():
    options = dict(n_embd=32, dropout=0.0)
    model = Transformer(changed(zero_init=True, **options))
    usual = Transformer(changed(**options))
    x = model.embed(IDS)
    assert all(np.array_equal(block(x).data, x.data) for block in model.blocks)
    assert not np.array_equal(usual.blocks[0](x).data, x.data)
    for path, p in model.named_parameters():        # and all else begins as it does otherwise
        assert p.data.any() != path.endswith(("out.weight", "down.weight")), path
        assert not p.data.any() or np.array_equal(p.data, usual.state_dict()[path]), path
    optimizer = mg.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    assert training_loss(model).item() > 1.5
    for _ in range(40):
        optimizer.zero_grad()
        loss = training_loss(model)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    assert np.array_equal(model(IDS).data.argmax(axis=-1), TARGETS)


def test_Dropout_falls_on_embeddings_and_in_each_block_on_attention_and_branches():
    model = Transformer(changed(n_layer=3))
    rng = Counting(np.random.PCG64(1))
    model(IDS, rng)
    assert rng.drawn == 1 + 3 * 3
    shares = [p for block in model.blocks for p in (block.attention.dropout, block.dropout.p)]
    assert [model.dropout.p, *shares] == [0.3] * 7
    block = model.blocks[1]
    x = model.embed(IDS)
    drawn = np.random.default_rng(2)
    change = block.attention(block.norm1(x), drawn)
    attended = x + mg.dropout(change, 0.3, drawn)
    change = block.mlp(block.norm2(attended))
    expected = attended + mg.dropout(change, 0.3, drawn)
    assert np.array_equal(block(x, np.random.default_rng(2)).data, expected.data)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_Transformer_gives_a_row_or_a_beginning_the_logits_of_the_whole(dtype, tolerance):
    model = enlarged(Transformer(SMALL, dtype=dtype))
    whole = model(IDS).data
    largest = np.abs(whole).max()
    for rows, T in itertools.product((0, 1, 2, slice(1), slice(3)), range(1, 7)):
        logits = model(IDS[rows, :T])
        assert logits.shape == (*IDS[rows, :T].shape, 7)
        distance = np.abs(logits.data - whole[rows, :T])
        assert distance.max() <= tolerance * largest
    assert np.array_equal(model(IDS.tolist()).data, whole)
    for dtype in (np.uint8, np.int32, np.uint64):
        assert np.array_equal(model(IDS.astype(dtype)).data, whole)


of_dropping = pytest.mark.parametrize("config", [
    SMALL,
    changed(dropout=0.0, ngrams=3, ngram_rows=11, ngram_dropout=0.4)], ids=["dropout", "n-grams"])


@of_dropping
def test_Transformer_begins_with_weights_that_the_seed_decides(config):
    one, again, zero = (Transformer(config, seed).state_dict() for seed in (1, 1, 0))
    for name, a in one.items():
        assert np.array_equal(again[name], a)
        assert np.ptp(a) == 0 or not np.allclose(zero[name], a)


@of_dropping
def test_Transformer_draws_its_dropout_from_the_generator_alone(config):
    model = enlarged(Transformer(config))
    rng = frozen(4)
    first = model(IDS, rng).data
    assert np.array_equal(model(IDS, frozen(4)).data, first)
    for other in (model(IDS), model(IDS, frozen(5)), model(IDS, rng)):      # rng went on
        assert not np.array_equal(other.data, first)


@of_dropping
def test_Transformer_without_a_generator_is_a_pure_function_without_dropout(config):
    model = enlarged(Transformer(config))
    ids = IDS.copy()
    state = model.state_dict()
    plain = model(IDS).data
    model(IDS, frozen(4))
    with mg.no_grad():
        assert np.array_equal(model(IDS).data, plain)
    never = enlarged(Transformer(changed(config, dropout=0.0, ngram_dropout=0.0)))
    assert np.array_equal(never(IDS).data, plain)
    assert np.array_equal(IDS, ids)
    for path, p in model.named_parameters():
        assert np.array_equal(p.data, state[path]), path


def test_Transformer_drops_rows_of_a_batch_alone_as_in_the_whole():
    model = enlarged(Transformer(changed(ngrams=3, ngram_rows=50, ngram_dropout=0.3), 1,
                                 np.float64))
    whole = model(IDS, generator(5, "dropout")).data
    for rows in (slice(0, 1), slice(1, 3), slice(2, 3)):
        part = model(IDS[rows], RowsFrom(generator(5, "dropout"), rows.start)).data
        assert np.allclose(part, whole[rows], rtol=1e-12)
    assert not np.allclose(model(IDS[1:], generator(5, "dropout")).data, whole[1:])


def test_embed_refuses_ids_that_the_model_cannot_take():
    model = Transformer(SMALL)
    for ids in (np.zeros((2, 7), int), np.array(3), np.zeros((2, 0), int)):
        assert refusal(ValueError, model, ids) == (
            "ids have the shape (B, T) or (T,) with T from 1 to block_size=6; these have "
            f"{list(ids.shape)}")
    assert "id 7 at (1, 2) is not one of the 7 from 0 to 6" in refusal(
        IndexError, model, [[0, 1, 2], [3, 4, 7]])


@pytest.mark.parametrize("settings, says", [
    *(({name: value}, f"{name} {says}")
      for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "n_kv_head",
                   "n_inner", "ngram_rows")
      for value, says in (
          (0, "is at least 1, not 0"), (-4, "is at least 1, not -4"),
          (2.0, "takes a whole number, not 2.0"), (True, "takes a whole number, not True"),
          ("4", "takes a whole number, not '4'"), (None, "takes a whole number, not None"))
      if value is not None or name not in ("n_kv_head", "n_inner")),    # n_head, or 4 n_embd
    (dict(n_embd=10, n_head=4), "n_embd 10 does not split into n_head 4 heads; take n_embd 8 or "
                                "12"),
    (dict(n_head=4, n_kv_head=3), "n_head 4 heads cannot share n_kv_head 3 evenly; take n_kv_head "
                                  "1, 2 or 4"),
    (dict(n_embd=6, position="rotary"),
     "n_embd 6 does not split into n_head 2 heads of an even number of channels, which position "
     "rotary needs; take n_embd 4 or 8"),
    (dict(position="alibi"), "position is learned, sinusoidal or rotary, not alibi"),
    (dict(norm="swish"), "norm is layer, rms or rms_gain, not swish"),
    (dict(activation="swish"), "activation is gelu, relu2, gelu_tanh or swiglu, not swish"),
    *(({name: 1}, f"{name} takes True or False, not 1")
      for name in ("bias", "qk_norm", "zero_init", "attention_bias", "mlp_bias", "tied")),
    *(({name: value}, f"{name} is {says}, not {value}")
      for name in ("norm_eps", "rotary_base")
      for value, says in ((0.0, "above 0"), (math.nan, "above 0"), (math.inf, "a finite number"))),
    *(({name: p}, f"{name} is at least 0 and below 1, not {p}")
      for name in ("dropout", "ngram_dropout") for p in (-0.1, 1.0, 1, math.nan, math.inf))],
    ids=str)
def test_TransformerConfig_refuses_settings_without_a_meaning_by_name(settings, says):
    assert refusal(ValueError, changed, **settings) == says


@pytest.mark.parametrize("options", OPTIONS + PARTS, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_model_without_memory_has_the_shapes_of_one_that_can_be_trained(options, bias):
    config = changed(bias=bias, n_layer=3, **options)
    shapes, trained = ([(name, p.shape) for name, p in model.named_parameters()]
                       for model in (Transformer(config, dtype=None), Transformer(config)))
    assert shapes == trained


@pytest.mark.parametrize("position", POSITIONS)
def test_model_that_no_machine_could_hold_has_shapes(position):
    vast = TransformerConfig(10 ** 9, 10 ** 9, 9, 10 ** 4, 10 ** 8, position=position)
    with memory() as taken:
        vast.check_claim(9)
        model = Transformer(vast, dtype=None)
    assert taken[0] < 1_000_000
    assert model.token_embedding.weight.shape == (10 ** 9, 10 ** 8)
    assert model.blocks[8].mlp.up.weight.shape == (4 * 10 ** 8, 10 ** 8)
    assert refusal(ValueError, vast.check_claim, 8) == "it claims 9 layers, and holds 8 weights"
