"""Kernels against their formulas, where no op shows it; and what is true of kernels alone.

What ops show is in test_formulas.py.
"""
import itertools
import math
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from minigrad import compiled, formulas, random
from minigrad.formulas import GELU, GELU_TANH, RELU2, Drop, How
from minigrad.kernels import matmul
from minigrad.kernels.compiler.tiles import SIZES
from minigrad.kernels.embedding import rows_at
from tests import plain
from tests.benchmarks.tiles import PROCESSORS
from tests.kit import attention_gradients, compiled_only, normal, refusal
from tests.minigrad.test_formulas import assert_close


@compiled_only       # NumPy's own library does not promise it
def test_a_row_of_a_matmul_does_not_depend_on_where_it_lies():
    rng = np.random.default_rng(1)
    for K in (100, 500, 900):
        a, b = normal(1, K, seed=rng, dtype=np.float32), normal(K, 70, seed=rng, dtype=np.float32)
        product = formulas.matmul(np.repeat(a, 1001, axis=0), b)
        assert (product == product[0]).all()


def test_linear_adds_a_bias_once_to_a_product_that_is_packed_in_several_rounds():
    x, weight = np.zeros((2, 1200), np.float32), np.zeros((600, 1200), np.float32)
    assert (formulas.linear(x, weight, np.ones(600, np.float32)) == 1).all()


class Counting(np.ndarray):
    """An array that counts the elements that are written one by one."""
    written = 0

    def __setitem__(self, at, value):
        self.written += 1
        super().__setitem__(at, value)


def along(x, at, count):
    """`count` numbers of memory, from place `at` of an array on."""
    return np.lib.stride_tricks.as_strided(x, (at + count,), (x.itemsize,))[at:].view(np.ndarray)


@pytest.mark.parametrize("D", [8, 16, 24, 32, 48, 64, 80, 128])
@pytest.mark.parametrize("name", PROCESSORS)
def test_packing_heads_copies_at_most_a_vector_at_each_edge_one_by_one(monkeypatch, name, D):
    size = SIZES[PROCESSORS[name][1]]
    lanes, NR = size.vector_bytes // 4, size.vector_bytes // 4 * size.NV

    def copy_row(source, target):
        target[:source.size] = source

    def transpose_square(source, source_at, source_row, target, target_at, target_row):
        for i in range(lanes):
            along(target, target_at + i * target_row, lanes)[:] = [
                along(source, source_at + j * source_row + i, 1)[0] for j in range(lanes)]

    monkeypatch.setattr(matmul, "NV", size.NV)
    monkeypatch.setattr(matmul, "TILE_BYTES", size.vector_bytes * size.NV)
    monkeypatch.setattr(matmul, "part", along)
    monkeypatch.setattr(matmul, "copy_row", copy_row)
    monkeypatch.setattr(matmul, "transpose_square", transpose_square)
    pack_columns = getattr(matmul.pack_columns, "py_func", matmul.pack_columns)
    heads = normal(40, 3, D, dtype=np.float32)
    for queries in (40, 32, 5):
        head = heads[:queries, 1]
        for b, edges in ((head, [(D, queries)]),
                         (head.T, [(queries, D), (D, queries)])):
            depth, P = b.shape
            packed = np.zeros((math.ceil(P / NR), depth, NR), np.float32).view(Counting)
            pack_columns(b, packed)
            whole = packed.view(np.ndarray).swapaxes(0, 1).reshape(depth, -1)
            assert np.array_equal(whole[:, :P], b)
            assert packed.written <= sum(lanes * long for wide, long in edges if wide % lanes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_in_a_query_reaches_no_other_query(dtype):
    """Also where the last block has fewer queries, and vectors hold what others left there."""
    rng = np.random.default_rng(0)
    q, k, v, g = normal(4, 1, 2, 69, 24, seed=rng, dtype=dtype)
    how = How(causal=True, scale=0.2)
    broken = q.copy()
    broken[0, 0, 10:50] = np.nan
    (out, moments), (found, of_found) = (formulas.attention(x, k, v, how)
                                         for x in (q, broken))
    dq, dk, dv = attention_gradients(g, q, k, v, out, moments, how)
    dq_, dk_, dv_ = attention_gradients(g, broken, k, v, found, of_found, how)
    for whole, with_nan in ((out, found), (dq, dq_)):
        assert np.isnan(with_nan[0, 0, 10:50]).all()
        with_nan[0, 0, 10:50] = whole[0, 0, 10:50]
        assert np.array_equal(with_nan, whole)
    assert np.array_equal((dk[0, 1], dv[0, 1]), (dk_[0, 1], dv_[0, 1]))


@pytest.mark.parametrize("on", [formulas, plain])
def test_attention_also_returns_the_maximum_and_1_by_the_sum_of_each_softmax(on):
    q, k, v = normal(3, 1, 2, 5, 4)
    mask = np.zeros((1, 2, 5, 5))
    mask[:, :, 2] = -np.inf             # which may attend to no key
    _, moments = on.attention(q, k, v, How(mask, scale=0.5))
    scores = 0.5 * q @ k.swapaxes(-1, -2)
    top = scores.max(axis=-1)
    inverse = 1 / np.exp(scores - top[..., None]).sum(axis=-1)
    assert moments.shape == (1, 2, 5, 2) and (moments[:, :, 2, 1] == 0).all()
    for t in (0, 1, 3, 4):
        assert np.allclose(moments[:, :, t, 0], top[:, :, t], rtol=1e-12)
        assert np.allclose(moments[:, :, t, 1], inverse[:, :, t], rtol=1e-12)


@compiled_only
def test_vector_functions_are_right_to_the_last_digits_of_float32():
    from minigrad.kernels.compiler.vector_math import exp, log, normal_cdf

    @numba.njit(error_model="numpy")
    def all_three(x, density, out):
        for i in range(x.size):
            out[0, i] = exp(x[i])
            out[1, i] = normal_cdf(x[i], density[i])
            out[2, i] = log(exp(abs(x[i])))

    def computed(x):
        out = np.empty((3, x.size), np.float32)
        all_three(x, np.exp(-np.square(x.astype(np.float64)) / 2).astype(np.float32), out)
        return out

    x = np.concatenate([np.linspace(-87, 88.3, 200_001), np.linspace(-13, 13, 200_001)])
    x = x.astype(np.float32)
    exact = x.astype(np.float64)
    Phi = np.array([math.erfc(-v * math.sqrt(0.5)) / 2 for v in exact])
    out = computed(x)
    assert np.abs(out[0] / np.exp(exact) - 1).max() < 2e-7
    assert np.abs(out[1] - Phi).max() < 3e-7
    near = abs(exact) < 12                          # farther out the density has few digits
    assert np.abs(out[1, near] / Phi[near] - 1).max() < 7e-7
    far = abs(exact) > 0.1                          # nearer, exp rounds more of x away
    assert np.abs(out[2, far] / abs(exact[far]) - 1).max() < 2e-6

    out = computed(np.array([np.nan, np.inf, -np.inf, 89, -104, 0], np.float32))
    assert np.array_equal(out[0], np.float32([np.nan, np.inf, 0, np.inf, 0, 1]), equal_nan=True)
    assert np.isnan(out[1:, 0]).all()
    assert list(out[1, 1:3]) == [1, 0] and out[2, 1] == np.inf


@compiled_only
def test_the_normal_distributions_polynomial_is_the_fitted_one():
    from minigrad.kernels.compiler import vector_math
    from tests.reference.fit_normal_tail import fit
    coefficients, error = fit()
    assert error < 1.5e-7
    assert np.allclose(vector_math.TAIL, coefficients, rtol=1e-4)


@pytest.mark.parametrize("on", [formulas, plain])
def test_a_part_of_a_batch_drops_what_the_whole_drops_there(on):
    B, H, T, D, n, start = 5, 2, 9, 4, 3, 2
    rng, p, seed = np.random.default_rng(6), 0.4, 2**40 + 7
    q, k, v, g = rng.standard_normal((4, B, H, T, D))
    ids, table = rng.integers(20, size=(B, n)), rng.standard_normal((20, D))

    def computed(from_row):
        rows = slice(from_row, None)
        heads = [x[rows] for x in (q, k, v)]
        how = How(None, True, 0.5, Drop(p, seed, from_row * H * T * T))
        out, moments = on.attention(*heads, how)
        gradients = attention_gradients(g[rows], *heads, out, moments, how, on=on)
        totals = [np.zeros((20, D)) for _ in ids[rows]]
        for r, total in enumerate(totals, start=from_row):
            on.add_rows(total, ids[r:r + 1], g[r:r + 1, 0, 0], Drop(p, seed, r * n))
        return [on.dropout(q[rows], Drop(p, seed, from_row * H * T * D)), out, *gradients,
                on.sum_rows(table, ids[rows], Drop(p, seed, from_row * n)), np.array(totals)]
    for whole, part in zip(computed(0), computed(start), strict=True):
        assert np.allclose(whole[start:], part, rtol=1e-12, atol=1e-14)
    together = np.zeros((20, D))
    on.add_rows(together, ids, g[:, 0, 0], Drop(p, seed))
    assert np.allclose(together, computed(0)[-1].sum(axis=0), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dropout_keeps_an_element_if_and_only_if_its_32_bits_reach_p(dtype):
    """The bits again, in Python's whole numbers, which never overflow."""
    def bits(i, seed):
        for half in (seed % 2**32, seed // 2**32):
            i ^= half
            i = (i ^ i >> 16) * 0x7FEB352D % 2**32
            i = (i ^ i >> 15) * 0x846CA68B % 2**32
            i ^= i >> 16
        return i
    ones = np.ones(40_000, dtype)           # enough for several threads
    for i, seed in ((0, 3), (1, 2**32), (777, 2**63 - 1), (39_999, 1234567890123456789)):
        least = bits(i, seed)
        for dropout in (formulas.dropout, plain.dropout):
            assert dropout(ones, Drop(least / 2**32, seed))[i] > 0
            assert dropout(ones, Drop((least + 1) / 2**32, seed))[i] == 0


def test_dropout_masks_look_random():
    n, p = 1_000_000, 0.3
    masks = np.stack([formulas.dropout(np.ones(n, np.float32), Drop(p, seed)) > 0
                      for seed in (1, 2, 2**32 + 1)])
    error = 4 / np.sqrt(n)          # four standard errors of a correlation
    assert np.abs(masks.mean(axis=1) - (1 - p)).max() < error * np.sqrt(p * (1 - p))
    unit = (masks - (1 - p)) / np.sqrt(p * (1 - p))
    for lag in (1, 2, 64, 256, 65536):
        assert np.abs((unit[:, lag:] * unit[:, :-lag]).mean(axis=1)).max() < error, lag
    assert np.abs(np.corrcoef(masks)[np.triu_indices(3, 1)]).max() < error


@compiled_only
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_heads_that_share_keys_add_up_like_one_head_of_all_their_queries(dtype):
    """Bit for bit: no sum depends on how queries are cut into blocks."""
    rng = np.random.default_rng(7)
    q, g = normal(2, 3, 70, 8, seed=rng, dtype=dtype), normal(2, 3, 70, 8, seed=rng, dtype=dtype)
    k, v = normal(2, 1, 40, 8, seed=rng, dtype=dtype), normal(2, 1, 40, 8, seed=rng, dtype=dtype)
    how = How(scale=0.3)

    def gradients(q, g):
        out, moments = formulas.attention(q, k, v, how)
        return attention_gradients(g, q, k, v, out, moments, how)[1:]
    one_head = [x.reshape(2, 1, 210, 8) for x in (q, g)]
    for dx, expected in zip(gradients(q, g), gradients(*one_head)):
        assert np.array_equal(dx, expected)


@compiled_only
def test_nan_passes_through_the_activations():
    nan, one = np.full((1, 1), np.nan, np.float32), np.ones((1, 1), np.float32)
    for activation in (GELU, RELU2, GELU_TANH):
        y, kept = formulas.mlp(nan, one, None, one, None, activation)
        assert np.isnan(y).all() and np.isnan(kept).all()
        dx, dup, _, ddown, _ = formulas.mlp_vjp(one, one, one, None, one, None, nan, activation)
        assert np.isnan(dx).all() and np.isnan(dup).all() and np.isnan(ddown).all()


@numba.njit
def rows_by_place(ids, count, found):
    for t in range(ids.size):
        rows_at(ids, t, count, found[t])


@compiled_only
@pytest.mark.parametrize("n", range(2, 9))
def test_the_rows_of_ngrams_are_those_of_decoding_exactly(n):
    def decoded(ids, n, count):
        found = np.empty((*ids.shape, n - 1), np.int64)
        for at in np.ndindex(ids.shape[:-1]):
            rows_by_place(ids[at].astype(np.int64), count, found[at])
        return found
    rng = np.random.default_rng(n)
    for shape in ((1,), (9,), (4, 1), (3, 20), (2, 3, 7), (0, 5), (2, 0)):
        for dtype in (np.int64, np.int32, np.uint8, np.uint64):
            limits = np.iinfo(dtype)
            for low, high in ((0, 64), (limits.max - 2, limits.max), (limits.min, limits.max)):
                ids = rng.integers(low, high, shape, dtype, endpoint=True)
                for count in (1, 7, 32768, 2**62 + 1):
                    found, expected = (f(ids, n, count) for f in (formulas.ngram_rows, decoded))
                    assert found.dtype == expected.dtype == np.int64
                    assert found.shape == expected.shape == (*shape, n - 1)
                    assert np.array_equal(found, expected)
                turned = formulas.ngram_rows(ids.T, n, 7)        # which lies in memory another way
                assert np.array_equal(turned, decoded(ids.T, n, 7))


MATRICES = [(1, 1), (50, 50), (96, 40), (40, 96), (60, 50), (7, 300), (60, 800), (800, 60), (0, 4),
            (4, 0), (128, 128), (90, 300), (150, 150)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name, shapes, state, of_each, more", [
    ("adamw", [(), (0,), (3, 5), (300, 200), (1,)], 4, 7, ()),
    *[("muon", MATRICES, 3, 3, (steps,)) for steps in (5, 3, 1)]])
def test_a_step_of_many_parameters_is_the_plain_one_on_any_threads(name, shapes, state, of_each,
                                                                   more, dtype):
    rng = np.random.default_rng(8)
    first = [[np.array(normal(*shape, seed=rng, dtype=dtype)) for shape in shapes]
             for _ in range(state)]
    first[-1] = [np.square(x, out=x) for x in first[-1]]
    for arrays in first[1:]:
        arrays[0][...] = 0                                      # no direction, and no step
    settings = rng.uniform(0.01, 0.9, (len(shapes), of_each))

    def stepped(on, threads):
        numba.set_num_threads(threads)
        arrays = [[x.copy() for x in xs] for xs in first]
        getattr(on, name)(*arrays, settings, *more)
        return [x for xs in arrays for x in xs]
    one, every, expected = (stepped(*of) for of in (
        (formulas, 1), (formulas, numba.config.NUMBA_NUM_THREADS), (plain, 1)))
    assert all(map(np.array_equal, one, every))
    for x, y in zip(one, expected, strict=True):
        assert_close(x, y, dtype)


SIX, FOUR = np.ones((2, 3), np.float32), np.ones(4, np.float32)


@compiled_only
@pytest.mark.parametrize("f, arguments, says", [
    *[("adamw", [*[[SIX, FOUR]] * at, [SIX, bad], *[[SIX, FOUR]] * (3 - at), np.ones((2, 7))],
       "takes 4 numbers of float32 from an array that has ")
      for at in (1, 2, 3) for bad in (FOUR[:3], SIX, FOUR.astype(np.float64))],
    ("adamw", [[SIX, FOUR.astype(np.float64)]] * 4 + [np.ones((2, 7))], "has 4 of float64"),
    ("muon", [[SIX], [SIX[:1]], [SIX], np.ones((1, 3)), 5], "takes 6 numbers of float32"),
    ("muon", [[SIX], [SIX], [SIX.astype(np.float64)], np.ones((1, 3)), 5], "has 6 of float64"),
    ("sum_of_squares", [[SIX, FOUR.astype(np.float64)]], "has 4 of float64"),
    *[("add_rows", [SIX.copy(), np.zeros((5, 2), int), np.ones(shape, np.float32), Drop()],
       f"{[*shape]} cannot be added to rows of [2, 3] for ids of [5, 2]")
      for shape in ((4, 3), (5, 4))]])
def test_what_takes_addresses_or_sizes_from_one_array_refuses_others(f, arguments, says):
    assert says in refusal(ValueError, getattr(formulas, f), *arguments)


@compiled_only
@pytest.mark.parametrize("ids", [[[0, 2]], [[-1, 0]], [[2 ** 62, 0]]])
def test_sum_rows_and_add_rows_refuse_a_row_that_is_not_there(ids):
    ids, g = np.array(ids), np.ones((1, 3), np.float32)
    for f, arguments in ((formulas.sum_rows, (SIX, ids, Drop())),
                         (formulas.add_rows, (SIX, ids, g, Drop()))):
        assert "and the table has 2 rows" in refusal(IndexError, f, *arguments)


@compiled_only
def test_draw_refuses_another_count_of_random_numbers_than_of_rows():
    for n in (1, 3):
        assert "2 rows of logits need as many numbers u" in refusal(
            ValueError, random.draw, SIX, np.zeros(n), 1.0, None, None)


def test_sum_of_squares_is_the_plain_one():
    rng = np.random.default_rng(9)
    for sizes in ((0,), (1, 0, 100), (100_000, 7)):
        xs = [normal(n, seed=rng, dtype=np.float32) for n in sizes]
        assert np.isclose(formulas.sum_of_squares(xs), plain.sum_of_squares(xs), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_draws_and_their_probabilities_are_the_plain_ones(dtype):
    rng = np.random.default_rng(0)
    for n in range(300):
        B, V = rng.integers(1, 6), rng.integers(1, 80)
        logits = normal(B, V, seed=rng, dtype=dtype) * 10.0 ** rng.integers(-3, 4)
        if n % 3 == 0:
            logits = np.round(logits)                       # so that some are equal
        if n % 4 == 0:
            logits[rng.random((B, V)) < 0.5] = -np.inf
        if n % 20 == 0:
            logits[0, -1] = rng.choice([np.nan, np.inf])
        settings = (rng.choice([0, 1e-6, 0.5, 1, 1e6]), rng.choice([None, 1, 3, 1000]),
                    rng.choice([None, 1e-9, 0.5, 0.9, 1.0]))
        u = rng.choice([0, rng.random(), 1 - 2**-53], B)
        drawn, p = random.draw(logits, u, *settings)
        expected, stated = plain.draw(logits, u, *settings)
        assert drawn.dtype == np.int64 and np.array_equal(drawn, expected)
        assert np.allclose(p, stated, rtol=1e-12, atol=0)
        assert ((drawn >= 0) == (np.isfinite(logits.max(axis=1)))).all()


@compiled_only
def test_integers_and_half_floats_are_refused_by_name():
    for dtype in (np.int64, np.float16):
        says = f"softmax_kernel computes in float32 or float64, not in {np.dtype(dtype).name}"
        assert says in refusal(TypeError, formulas.softmax, np.ones((2, 2), dtype))


@compiled_only
def test_the_clock_of_a_run_stands_still_while_kernels_are_compiled(monkeypatch):
    from minigrad.kernels.compiler import compiling
    monkeypatch.setattr(compiling, "seconds", 0.0)
    clock = itertools.count(step=1000)
    monkeypatch.setattr(compiling, "time", SimpleNamespace(perf_counter=lambda: next(clock)))

    @compiling.kernel
    def waited_for(x: compiling.C1):
        x[0] = 1
    for dtype in (np.float64, np.float64, np.float32):
        waited_for(np.zeros(1, dtype))
    assert compiling.seconds == 2000        # once for each type
    assert compiled.clock.kernel is compiling.clock
    assert compiled.clock() == next(clock) - 1000 - 2000
