"""The KV cache and its kernel give what the model gives, whatever is read or drawn at once."""
import dataclasses

import numba
import numpy as np
import pytest

from minigrad import random
from minigrad.kernels.compiler.compiling import CannotCompile
from model import Transformer, TransformerConfig
from model.command import flag
from model.kv_cache.decoder import OPTIONS, Decoder, _compiles
from model.generation import Reader
from tests import plain
from tests.model.sampling.test_decoding import SHAPES, assert_equal, opinionated

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="Numba is told not to compile")


@pytest.mark.parametrize("shape", [SHAPES[11], SHAPES[25], SHAPES[-1]], ids=str)
def test_a_long_window_is_read_in_parts_into_room_that_grows_and_the_logits_are_the_same(
        shape, monkeypatch):
    monkeypatch.setattr("model.kv_cache.decoder.AT_ONCE", 3)
    monkeypatch.setattr("model.kv_cache.decoder.ROOM", 2)
    model = opinionated(shape)
    V, block = model.config.vocab_size, model.config.block_size
    ids, u = np.random.default_rng(1).integers(V, size=(2, block)), np.full((2, 1), 0.5)
    for T in (1, 3, 4, block):
        decoder = Decoder(model, 2)
        for n in (T, *range(T + 1, block + 1)):
            computed = model(ids[:, :n]).data[:, -1]
            assert_equal(decoder.read(ids[:, decoder.length:n], decoder.length), computed)
        drawn = decoder.draw(ids[:, :T], 0, u, 1.0, None, None)
        assert np.array_equal(drawn, random.draw(model(ids[:, :T]).data[:, -1], u[:, 0].copy(),
                                                 1.0, None, None)[0][:, None])


@pytest.mark.skipif(numba.get_num_threads() == 1, reason="there is but one thread")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_logits_do_not_depend_on_the_threads_by_a_single_bit(shape, monkeypatch):
    from minigrad.kernels import decoding
    model = opinionated(shape)
    ids = np.random.default_rng(4).integers(model.config.vocab_size, size=(5, 2))
    by_threads = []
    monkeypatch.setattr(decoding, "FEW", 1)
    for threads in (1, numba.get_num_threads()):
        monkeypatch.setattr(decoding, "threads_for", lambda steps, threads=threads: threads)
        decoder = Decoder(model, 5)
        by_threads.append([decoder.read(ids[:, :1])] + (
            [decoder.read(ids[:, 1:], after=1)] if model.config.block_size > 1 else []))
    for one, many in zip(*by_threads):
        assert np.array_equal(one, many)


@pytest.mark.parametrize("dtype, apart", [(np.float32, 2e-5), (np.float64, 1e-13)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reading_and_stepping_give_the_logits_of_the_model_in_plain_numpy(shape, dtype, apart,
                                                                          monkeypatch):
    model = opinionated(shape, dtype)
    block = model.config.block_size
    ids = np.random.default_rng(5).integers(model.config.vocab_size, size=(4, block))
    decoder = Decoder(model, 4)
    for t in range(block // 2, block):
        logits = decoder.read(ids[:, decoder.length:t + 1], decoder.length)
        with monkeypatch.context() as patched:
            plain.use(patched)
            expected = model(ids[:, :t + 1]).data[:, -1]
        assert logits.dtype == expected.dtype == dtype
        assert np.abs(logits - expected).max() <= apart * max(1, np.abs(expected).max())


@pytest.mark.parametrize("settings", [(1.0, None, None), (0, None, None), (0.7, 4, None),
                                      (1.5, None, 0.8), (2.0, 3, 0.9)])
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[1], SHAPES[12], *SHAPES[25:29]], ids=str)
def test_characters_drawn_at_once_are_those_drawn_one_by_one(shape, settings, monkeypatch):
    model, rng = opinionated(shape), np.random.default_rng(8)
    block, T = model.config.block_size, max(1, model.config.block_size // 3)
    ids, u = rng.integers(model.config.vocab_size, size=(3, T)), rng.random((3, block - T + 1))
    drawn = Decoder(model, 3).draw(ids, 0, u, *settings)
    assert drawn.shape == u.shape and (settings[0] == 0 or len(np.unique(drawn)) > 1)
    decoder = Decoder(model, 3)
    logits = decoder.read(ids)
    for n in range(u.shape[1]):
        assert np.array_equal(random.draw(logits, u[:, n].copy(), *settings)[0], drawn[:, n])
        if decoder.length < block:
            logits = decoder.read(drawn[:, n:n + 1], decoder.length)
    plain.use(monkeypatch)
    reader = Reader(model, ids, cache=False)
    for n in range(u.shape[1]):
        assert np.array_equal(reader.draw(u[:, n:n + 1], *settings), drawn[:, n:n + 1])


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[25]], ids=str)
def test_a_decoder_keeps_the_weights_that_it_was_made_with(shape):
    model = opinionated(shape)
    decoder, ids = Decoder(model), np.arange(8).reshape(1, 8)
    decoder.read(ids[:, :4])
    before = model(ids[:, :5]).data[:, -1]
    for p in model.parameters():
        p.data *= 2
    assert_equal(decoder.read(ids[:, 4:5], after=4), before)


def test_the_decoder_knows_each_option_of_the_transformer_and_each_choice():
    for field in dataclasses.fields(TransformerConfig):
        assert field.name in OPTIONS
        assert set(OPTIONS[field.name] or ()) == set(field.metadata["choices"]), field.name


@dataclasses.dataclass(frozen=True)
class WiderConfig(TransformerConfig):
    """Has an option more."""
    window: int = flag(0, "keys that a query sees")


@pytest.mark.parametrize("config, says", [
    (WiderConfig(5), "the cache of sampling does not know the option window; sample with cache=F"),
    (TransformerConfig(5, activation="relu2"), "does not know activation relu2; sample"),
    (TransformerConfig(5, norm="rms"), "does not know norm rms; sample")])
def test_a_model_with_what_the_decoder_does_not_know_is_not_drawn_from(config, says, monkeypatch):
    monkeypatch.setitem(OPTIONS, "activation", ("gelu",))
    monkeypatch.setitem(OPTIONS, "norm", ("layer",))
    model, ids = Transformer(config), np.zeros((1, 2), int)
    with pytest.raises(ValueError, match=says):
        Reader(model, ids)
    assert np.array_equal(Reader(model, ids, cache=False).logits(), model(ids).data[:, -1])


def test_reading_anew_forgets_what_was_read():
    model = opinionated(SHAPES[0])
    ids = np.random.default_rng(6).integers(65, size=(2, 16))
    decoder = Decoder(model, 2)
    decoder.read(ids)
    decoder.read(ids[:, 5:8])
    assert_equal(decoder.read(ids[:, 8:9], after=3), model(ids[:, 5:9]).data[:, -1])


@pytest.mark.parametrize("T, after", [(0, 0), (9, 0), (5, 4), (1, 5), (1, -1)])
def test_characters_after_what_was_not_read_or_beyond_the_block_are_refused(T, after):
    decoder = Decoder(opinionated(SHAPES[1]))
    decoder.read(np.ones((1, 4), int))
    with pytest.raises(ValueError, match=rf"after {after} of 4 characters that were read, {T} more "
                                         "are no window of at most 8"):
        decoder.read(np.ones((1, T), int), after)
    with pytest.raises(ValueError, match="9 more are no window"):
        decoder.draw(np.ones((1, 4), int), 0, np.zeros((1, 6)), 1.0, None, None)


@pytest.mark.parametrize("wrong", [-1, 11, 10**12])
def test_an_id_outside_the_vocabulary_is_refused(wrong):
    decoder = Decoder(opinionated(SHAPES[1]), 2)
    with pytest.raises(IndexError):
        decoder.read(np.array([[0], [wrong]]))
    decoder.read(np.array([[0], [1]]))
    with pytest.raises(IndexError, match=rf"ids lie from 0 to 10, and these are \[0, {wrong}\]"):
        decoder.read(np.array([[0], [wrong]]), after=1)


def test_where_the_kernel_cannot_be_compiled_the_window_is_read_anew_and_that_is_said(monkeypatch):
    class Broken:
        def compile(self, dtype):
            raise CannotCompile("decode_kernel: no such instruction")
    monkeypatch.setattr("model.kv_cache.decoder.decode_kernel", Broken())
    monkeypatch.setattr("model.kv_cache.decoder._compiles", _compiles.__wrapped__)
    model = opinionated(SHAPES[0])
    ids = np.random.default_rng(7).integers(65, size=(2, 9))
    with pytest.warns(RuntimeWarning, match="window is read anew.*no such instruction"):
        reader = Reader(model, ids)
    assert np.array_equal(reader.logits(), model(ids).data[:, -1])
