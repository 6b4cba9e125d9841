"""The KV cache and its kernel give what the model gives, whatever is read or drawn at once."""
import functools
import operator

import numba
import numpy as np
import pytest

from minigrad import random
from minigrad.kernels.compiler.compiling import KERNELS, CannotCompile
from minigrad.packed import BLOCKS, NUMBERS, PackedTensor, below, hold, unpacked
from model import Transformer, TransformerConfig
from model.cache import Drawing, KVCache
from model.kv_cache.decoder import Decoder, _compiles
from model.generation import Reader, window_start
from model.config import ACTIVATIONS, FILES, KERNEL, NORMS, PAGE, POSITIONS
from tests import kit, plain
from tests.kit import WiderConfig, blocks, packed_copy, refusal, scales
from tests.pairwise import pairwise

pytestmark = [
    pytest.mark.late,
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="Numba is told not to compile"),
]

USUAL = dict(vocab_size=65, block_size=16, n_layer=2, n_head=4, n_embd=32)
MODERN = dict(vocab_size=11, block_size=8, n_layer=2, n_head=3, n_embd=42, position="rotary",
              norm="rms", qk_norm=True, activation="relu2", zero_init=True, ngrams=4,
              ngram_rows=300)
LLAMA = dict(vocab_size=130, block_size=20, n_layer=2, n_head=4, n_embd=72, n_kv_head=2,
             position="rotary", norm="rms_gain", norm_eps=1e-3, activation="swiglu", n_inner=33,
             tied=False)
NARROW = dict(vocab_size=5, block_size=3, n_layer=1, n_head=1, n_embd=1, bias=True)
PACKED = [dict(vocab_size=130, block_size=21, n_layer=2, n_head=4, n_embd=64, n_kv_head=2,
               position="rotary", norm="rms_gain", activation="swiglu", n_inner=512, tied=False,
               head_dim=32, qk_norm=True, qk_gain=True),
          dict(vocab_size=67, block_size=21, n_layer=2, n_head=3, n_embd=96, n_inner=256,
               bias=True),
          dict(vocab_size=9, block_size=21, n_layer=1, n_head=2, n_embd=512, ngrams=3,
               ngram_rows=7, activation="relu2")]
ODD = dict(vocab_size=9, block_size=6, n_layer=1, n_head=3, n_embd=15)
PARTS = pairwise(
    [dict(vocab_size=V, block_size=T, n_layer=L)
     for V, T, L in ((65, 35, 3), (11, 9, 1), (200, 18, 2))],
    [dict(n_embd=C, n_head=H, n_kv_head=G)
     for C, H, G in ((4, 1, None), (36, 6, 1), (40, 5, None), (72, 4, 2), (48, 6, 3),
                     (136, 2, None))],
    [dict(position=position) for position in POSITIONS if KERNEL in POSITIONS[position]],
    [dict(norm="layer"), dict(bias=True, norm_eps=0.1), dict(norm="rms"), dict(norm="rms_gain")],
    [dict(activation=activation) for activation in ACTIVATIONS
     if KERNEL in ACTIVATIONS[activation]],
    [dict(qk_norm=True), dict(qk_norm=True, qk_gain=True, head_dim=14, norm_eps=0.2),
     dict(attention_bias=True, rotary_base=100.0),
     dict(mlp_bias=True, tied=False),
     dict(attention_bias=True, attention_out_bias=False, rotary_factor=4.0, rotary_length=9)],
    [dict(zero_init=True), dict(ngrams=6, ngram_rows=7), dict(n_inner=1), dict(n_inner=800)])
SHAPES = [USUAL, MODERN, LLAMA, NARROW, ODD, USUAL | dict(vocab_size=2, block_size=1),
          *(functools.reduce(operator.or_, parts) for parts in PARTS)]


def opinionated(config, dtype=np.float32, seed=0):
    """A model of large weights, none of them zero."""
    model = kit.opinionated(TransformerConfig(**config), 8, seed, dtype)
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data += 0.1 * rng.standard_normal(p.shape).astype(dtype)
    return model


def assert_equal(cached, computed):
    """To the last bit."""
    assert cached.dtype == computed.dtype and np.array_equal(cached, computed)


@pytest.mark.parametrize("slide, dtype", [(False, np.float32), (True, np.float32),
                                          (False, np.float64)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cached_logits_are_those_of_the_window_at_every_length(shape, slide, dtype):
    """Of sequences that are read alone, with two others from some length on, and with all."""
    model = opinionated(shape, dtype)
    rng = np.random.default_rng(1)
    block = model.config.block_size
    lengths = block + 3 if slide or dtype == np.float64 else 2 * block + 3
    ids = rng.integers(model.config.vocab_size, size=(8, lengths + 1))
    begun = {1: 1, 3: rng.integers(1, lengths), 8: 1}
    readers = {B: Reader(model, ids[:B, :T], slide=slide) for B, T in begun.items()}

    @functools.cache
    def computed_from(start):
        return model(ids[:, start:min(start + block, lengths)]).data
    for n in range(1, lengths + 1):
        start = window_start(n, block, slide)
        computed = computed_from(start)[:, n - 1 - start]
        assert computed.dtype == dtype
        for B, reader in readers.items():
            if n >= begun[B]:
                assert_equal(reader.logits(), computed[:B])
                reader.append(ids[:B, n:n + 1])


@pytest.mark.parametrize("kinds", [*([kind] for kind in BLOCKS), [*BLOCKS]], ids=str)
@pytest.mark.parametrize("shape", PACKED, ids=str)
def test_logits_of_packed_weights_have_the_bits_of_the_float32_weights(shape, kinds):
    """Of one id, of a prompt of each length, and of several sequences; by another decoder, too."""
    model = Transformer(TransformerConfig(**shape))
    floats = packed_copy(model, kinds)
    assert PackedTensor in map(type, model.parameters())
    ids = np.random.default_rng(1).integers(shape["vocab_size"], size=(3, shape["block_size"]))
    for B, lengths in ((1, (1, 2, 7, 8)), (3, (5, 6, 7)), (1, (20, 21))):
        decoder = Decoder(model, B)
        for T in lengths:
            logits = decoder.read(ids[:B, decoder.length:T], decoder.length)
            assert_equal(logits, floats(ids[:B, :T]).data[:, -1])
    assert PackedTensor in map(type, model.parameters())
    assert_equal(model(ids).data, floats(ids).data)
    assert PackedTensor not in map(type, model.parameters())


def test_logits_have_the_bits_of_float32_where_rows_of_a_matrix_are_of_several_kinds():
    model = Transformer(TransformerConfig(130, 21, 2, 4, 256, n_kv_head=2, position="rotary"))
    floats = packed_copy(model, ["Q4_1"])
    for kinds, block, other in zip((["Q5_0", "Q8_0"], ["Q4_K", "Q6_K"]), model.blocks,
                                   floats.blocks):
        parts = [blocks(kind, rows, 256 // NUMBERS[kind])
                 for kind, rows in zip(kinds, (384, 128))]
        for part in parts:
            for name in scales(part.dtype):
                part[name] = 0.01
        both = below(parts)
        hold(block.attention.qkv.weight, both)
        hold(other.attention.qkv.weight, unpacked(both))
    ids = np.random.default_rng(1).integers(130, size=(2, 21))
    decoder = Decoder(model, 2)
    for T in (1, 9, 10, 21):
        logits = decoder.read(ids[:, decoder.length:T], decoder.length)
        assert_equal(logits, floats(ids[:, :T]).data[:, -1])
    assert all(len(block.attention.qkv.weight.packed.parts) == 2 for block in model.blocks)


@pytest.mark.parametrize("shape", [USUAL, MODERN, LLAMA], ids=str)
def test_a_window_read_in_parts_into_room_that_grows_has_the_same_logits(shape, monkeypatch):
    monkeypatch.setattr("model.kv_cache.decoder.AT_ONCE", 3)
    monkeypatch.setattr("model.kv_cache.decoder.ROOM", 2)
    model = opinionated(shape)
    block = model.config.block_size
    ids = np.random.default_rng(1).integers(model.config.vocab_size, size=(2, block))
    u = np.full((2, 1), 0.5)
    computed = [model(ids[:, :n + 1]).data[:, -1] for n in range(block)]
    for T in (1, 3, 4, block):
        decoder = Decoder(model, 2)
        for n in range(T, block + 1):
            assert_equal(decoder.read(ids[:, decoder.length:n], decoder.length), computed[n - 1])
        drawn = decoder.draw(ids[:, :T], 0, u, AS_IT_IS)
        expected, _ = random.draw(computed[T - 1], u[:, 0].copy(), 1.0, None, None)
        assert np.array_equal(drawn[:, 0], expected)


@pytest.mark.skipif(numba.get_num_threads() == 1, reason="there is but one thread")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_logits_do_not_depend_on_the_threads_by_a_single_bit(shape, monkeypatch):
    from minigrad.kernels import decoding
    model = opinionated(shape)
    block = model.config.block_size
    ids = np.random.default_rng(4).integers(model.config.vocab_size, size=(5, 2))
    monkeypatch.setattr(decoding, "FEW", 1)

    def logits(threads):
        monkeypatch.setattr(decoding, "threads_for", lambda *steps: threads)
        decoder = Decoder(model, 5)
        first = decoder.read(ids[:, :1])
        return first, decoder.read(ids[:, 1:], after=1) if block > 1 else first
    assert all(map(np.array_equal, logits(1), logits(numba.get_num_threads())))


@pytest.mark.parametrize("settings", [(1.0, None, None), (0, None, None), (0.7, 4, None),
                                      (1.5, None, 0.8), (2.0, 3, 0.9)])
@pytest.mark.parametrize("shape", [USUAL, MODERN, LLAMA, ODD], ids=str)
def test_characters_drawn_at_once_are_those_drawn_one_by_one(shape, settings, monkeypatch):
    model = opinionated(shape)
    rng = np.random.default_rng(8)
    block = model.config.block_size
    T = max(1, block // 3)
    ids = rng.integers(model.config.vocab_size, size=(3, T))
    u = rng.random((3, block - T + 1))
    drawn = Decoder(model, 3).draw(ids, 0, u, Drawing(*settings))
    assert drawn.shape == u.shape and (settings[0] == 0 or len(np.unique(drawn)) > 1)
    decoder = Decoder(model, 3)
    logits = decoder.read(ids)
    for n, of_each in enumerate(u.T):
        one, _ = random.draw(logits, of_each, *settings)
        assert np.array_equal(one, drawn[:, n])
        if decoder.length < block:
            logits = decoder.read(drawn[:, n:n + 1], decoder.length)
    plain.use(monkeypatch)
    reader = Reader(model, ids, cache=False)
    for n in range(u.shape[1]):
        assert np.array_equal(reader.draw(u[:, n:n + 1], Drawing(*settings)),
                              drawn[:, n:n + 1])


@pytest.mark.parametrize("shape", [USUAL, MODERN], ids=str)
def test_a_decoder_that_reads_anew_forgets_what_it_read_and_keeps_its_first_weights(shape):
    model = opinionated(shape)
    decoder = Decoder(model, 2)
    ids = np.arange(16).reshape(2, 8) % 11
    decoder.read(ids)
    decoder.read(ids[:, 2:6])
    before = model(ids[:, 2:7]).data[:, -1]
    for p in model.parameters():
        p.data *= 2
    assert_equal(decoder.read(ids[:, 6:7], after=4), before)


@pytest.mark.parametrize("config, says", [
    (WiderConfig(5), "the KV cache does not know the option window; sample with cache=False"),
    (TransformerConfig(5, activation="relu2"), "does not know activation relu2; sample"),
    (TransformerConfig(5, norm="rms"), "does not know norm rms; sample")])
def test_a_model_with_an_option_that_the_kernel_does_not_know_is_not_drawn_from(config, says,
                                                                                monkeypatch):
    monkeypatch.setitem(ACTIVATIONS, "relu2", (PAGE, FILES))
    monkeypatch.setitem(NORMS, "rms", (PAGE, FILES))
    model = Transformer(config)
    ids = np.zeros((1, 2), int)
    assert says in refusal(ValueError, Reader, model, ids)
    assert np.array_equal(Reader(model, ids, cache=False).logits(), model(ids).data[:, -1])


AS_IT_IS = Drawing(1.0)


@pytest.mark.parametrize("T, after", [(0, 0), (9, 0), (5, 4), (1, 5), (1, -1)])
def test_characters_after_what_was_not_read_or_beyond_the_block_are_refused(T, after):
    decoder = Decoder(opinionated(MODERN))
    four = np.ones((1, 4), int)
    decoder.read(four)
    assert (f"after {after} of 4 characters that were read, {T} more are no window of at most 8"
            in refusal(ValueError, decoder.read, np.ones((1, T), int), after))
    assert "9 more are no window" in refusal(
        ValueError, decoder.draw, four, 0, np.zeros((1, 6)), AS_IT_IS)


@pytest.mark.parametrize("rows, columns", [(3, 3), (1, 1), (2, 1), (2, 3)])
def test_Decoder_refuses_another_count_of_sequences_than_it_was_made_for(rows, columns):
    assert f"this cache is of 2 sequences; there are {rows} rows of ids, and {columns}" in refusal(
        ValueError, Decoder(opinionated(MODERN), 2).draw, np.ones((rows, 2), int), 0,
        np.zeros((columns, 2)), AS_IT_IS)


def test_draw_takes_numbers_in_any_layout():
    decoder = Decoder(opinionated(MODERN), 2)
    ids = np.ones((2, 2), int)
    whole, *others = [decoder.draw(ids, 0, u, AS_IT_IS) for u in (
        np.full((2, 3), 0.5), np.full((3, 2), 0.5).T, np.full((4, 6), 0.5)[::2, ::2])]
    assert all(np.array_equal(whole, other) for other in others) and whole.shape == (2, 3)


@pytest.mark.parametrize("change", [lambda x: x[:-1], lambda x: x.astype(np.float64)])
def test_Decoder_refuses_weights_of_another_shape_or_type_than_they_were_made_with(change):
    model = opinionated(MODERN)
    weight = model.ngram_embedding.weight
    weight._data = change(weight.data)      # as no setter allows
    assert "ngram_embedding.weight was made as float32[300, 42], and its data is" in refusal(
        ValueError, Decoder, model)


@pytest.mark.parametrize("wrong", [-1, 11, 10**12])
def test_an_id_outside_the_vocabulary_is_refused(wrong):
    decoder = Decoder(opinionated(MODERN), 2)
    for right, after in ((0, 0), (1, 1)):
        assert f"ids lie from 0 to 10, and these are [0, {wrong}]" in refusal(
            IndexError, decoder.read, np.array([[0], [wrong]]), after)
        decoder.read(np.array([[0], [right]]))


def test_where_the_kernel_cannot_be_compiled_numpy_draws_and_that_is_said(monkeypatch):
    class Broken:
        def compile(self, dtype):
            raise CannotCompile("decode_kernel: no such instruction")
    monkeypatch.setitem(KERNELS, "decode", Broken())
    monkeypatch.setattr("model.kv_cache.decoder._compiles", _compiles.__wrapped__)
    model = opinionated(USUAL)
    ids = np.random.default_rng(7).integers(65, size=(2, 9))
    with pytest.warns(RuntimeWarning, match="drawn in plain NumPy.*no such instruction"):
        reader = Reader(model, ids)
    assert type(reader.cache) is KVCache
    assert np.allclose(reader.logits(), model(ids).data[:, -1], rtol=0, atol=1e-5)
