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
