"""Products whose operands lie in memory in other ways."""
import numpy as np
import pytest

from minigrad import formulas
from minigrad.kernels import matmul
from minigrad.kernels.compiler.tiles import SIZES
from tests.kit import both_types, compiled_only, normal

SHAPES = [(128, 400, 128), (127, 385, 300), (301, 800, 130), (97, 33, 2), (131, 1, 131)]


def in_columns(x):
    """The same numbers, where each column is dense."""
    return np.asfortranarray(x)


def in_part_of_columns(x):
    """The same numbers, where each column is a part of a longer one."""
    longer = np.zeros((len(x) + 100, x.shape[1]), x.dtype, order="F")
    part = longer[50:50 + len(x)]
    part[...] = x
    return part


def in_columns_from_last_to_first(x):
    """The same numbers, where each column is dense, and the last one comes first in memory."""
    return np.asfortranarray(x[:, ::-1])[:, ::-1]


@compiled_only       # NumPy's own library does not promise it
@both_types
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_product_has_the_same_bits_however_its_operands_lie_in_memory(
        shape, threads, dtype, monkeypatch):
    M, K, P = shape
    monkeypatch.setattr(matmul, "threads_for", lambda steps, parts: threads)
    a = normal(M, K, dtype=dtype)
    b = normal(K, P, seed=1, dtype=dtype)
    expected = formulas.matmul(a, b)
    for lies in (in_columns, in_part_of_columns, in_columns_from_last_to_first):
        assert np.array_equal(lies(a), a)
        assert np.array_equal(formulas.matmul(lies(a), b), expected)
        assert np.array_equal(formulas.matmul(lies(a), lies(b)), expected)


@compiled_only
@both_types
@pytest.mark.parametrize("M, K, P", [(130, 70, 65), (130, 0, 65), (130, 70, 0)])
def test_two_products_in_one_kernel_have_the_bits_of_each_where_the_second_is_of_the_first(
        M, K, P, dtype, monkeypatch):
    a = normal(M, K, dtype=dtype)
    b = normal(K, P, seed=1, dtype=dtype)
    other = normal(P, 90, seed=2, dtype=dtype)
    expected = matmul.product(matmul.product(a, b), other)
    for threads in (1, 2, 7):
        monkeypatch.setattr(matmul, "threads_for", lambda steps, parts: threads)
        first = matmul.prepare(a, b)
        second = matmul.prepare(first.value, other)
        matmul.compute(first, second)
        assert np.array_equal(second.value, expected)


@compiled_only
@both_types
@pytest.mark.parametrize("shape", [(383, 383, 383), (65, 768, 129), (1200, 30, 67), (11, 30, 1100)],
                         ids=str)
def test_a_product_has_the_same_bits_however_many_threads_divide_it(shape, dtype, monkeypatch):
    M, K, P = shape
    a = normal(M, K, dtype=dtype)
    b = normal(K, P, seed=1, dtype=dtype)
    bias = normal(P, seed=2, dtype=dtype)
    expected = formulas.matmul(a, b) + bias
    for threads in (1, 2, 3, 7):
        monkeypatch.setattr(matmul, "threads_for", lambda steps, parts: threads)
        for x in (a, in_columns(a)):
            assert np.array_equal(matmul.product(x, b, bias), expected)


@compiled_only
@both_types
def test_a_stack_of_products_has_the_bits_of_each_by_itself(dtype, monkeypatch):
    a = normal(3, 200, 40, dtype=dtype)
    b = normal(3, 40, 70, seed=1, dtype=dtype)
    expected = np.stack([formulas.matmul(x, y) for x, y in zip(a, b)])
    for threads in (1, 2, 7):
        monkeypatch.setattr(matmul, "threads_for", lambda steps, parts: threads)
        assert np.array_equal(formulas.matmul(a, b), expected)


@pytest.fixture
def in_python(monkeypatch):
    """Functions that only kernels call, such that Python can call them."""
    for name in ("shares", "packs_rows", "ceil_div"):
        function = getattr(matmul, name)
        monkeypatch.setattr(matmul, name, getattr(function, "py_func", function))


@pytest.mark.parametrize("tall, wide, threads, expected", [
    (128, 2, 2, (2, 1)),        # many rows
    (2, 12, 2, (1, 2)),         # many columns
    (11, 2, 2, (1, 2)),         # rows that two threads cannot halve, columns that they can
    (64, 4, 4, (2, 2)),         # both: each then packs half of A and half of B
    (1, 2, 8, (1, 2)),          # hardly any work
    (5, 5, 1, (1, 1))])
def test_shares_give_the_thread_with_most_to_do_least(in_python, tall, wide, threads, expected):
    NR = 16 * matmul.MR
    assert matmul.shares(tall, wide, NR, threads, packs=True) == expected


def test_packs_rows_copies_far_columns_for_many_panels_or_if_they_are_very_far(in_python):
    def packs(rows, depth, panels):
        return matmul.packs_rows(np.empty((depth, rows), np.float32).T, panels)
    assert not packs(rows=64, depth=256, panels=9)      # near
    assert packs(rows=128, depth=384, panels=3)
    assert not packs(rows=128, depth=384, panels=2)
    assert packs(rows=512, depth=384, panels=2)
    assert not matmul.packs_rows(np.empty((512, 384), np.float32), 9)      # dense rows


@pytest.mark.parametrize("MR", sorted({size.MR for size in SIZES.values()}))
@pytest.mark.parametrize("rows", [1, 5, 6, 12, 23])
def test_pack_rows_reads_no_number_beyond_an_array(monkeypatch, MR, rows):
    depth = 2 * matmul.COLUMNS
    copied = 1 << (MR - 1).bit_length()
    memory = normal(depth * rows)
    a = memory.reshape(depth, rows).T
    reads = []

    def copy_tile_columns(source, source_at, column, target, target_at):
        for k in range(matmul.COLUMNS):
            first = source_at + k * column
            reads.append(first + copied)
            at = target_at + k * MR
            target[at:at + copied] = memory[first:first + copied]

    monkeypatch.setattr(matmul, "MR", MR)
    monkeypatch.setattr(matmul, "COPIED", copied)
    monkeypatch.setattr(matmul, "copy_tile_columns", copy_tile_columns)
    for name in ("panel_size", "ceil_div", "pack_rows"):
        function = getattr(matmul, name)
        monkeypatch.setattr(matmul, name, getattr(function, "py_func", function))
    size = matmul.panel_size(depth)
    panels = -(-rows // MR)
    packed = np.full(panels * size, np.nan)
    matmul.pack_rows(a, rows, packed, depth)
    for i in range(rows):
        panel, row = divmod(i, MR)
        kept = packed[panel * size + row:][:depth * MR:MR]
        assert np.array_equal(kept, a[i])
    assert max(reads, default=0) <= memory.size
    assert bool(reads) == (rows >= copied)
