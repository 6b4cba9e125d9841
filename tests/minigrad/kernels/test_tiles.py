"""Tiles of a product, as LLVM compiles them for processors that are not here."""
import functools

import numpy as np
import pytest

from minigrad import formulas
from minigrad.kernels.compiler import tiles as build_tiles
from minigrad.kernels.compiler.tiles import SIZES, WIDE, Size, tiles_of
from tests.benchmarks.tiles import FLOATS, PROCESSORS, loops, tiles_here
from tests.kit import both_types, compiled_only

SMALL = Size(16, 1, 1)       # is soon compiled
ONE_OF_EACH_KIND = "haswell", "skylake-avx512", "apple-m1"
loops, tiles_here = functools.cache(loops), functools.cache(tiles_here)     # each takes a second


@pytest.mark.parametrize("name, dtype", [*((name, np.float32) for name in PROCESSORS),
                                         *((name, np.float64) for name in ONE_OF_EACH_KIND)])
def test_no_inner_loop_keeps_a_vector_on_the_stack(name, dtype):
    found = loops(name, dtype)
    whole = SIZES[PROCESSORS[name][1]]
    tiles = [x.tile for x in found]
    for by_columns in (0, 1):           # a loop of four steps, and one of the others
        assert tiles.count(f"minigrad_tile_{FLOATS[dtype]}_{whole.MR}x{whole.NV}_{by_columns}") == 2
    assert {x.tile: x.spills for x in found if x.spills} == {}


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_a_tile_with_too_many_sums_is_seen_to_spill(name):
    vector_bytes, registers = PROCESSORS[name][1]
    module = tiles_of(FLOATS[np.float32], Size(vector_bytes, registers * 3 // 8, 3))
    assert sum(len(x.spills) for x in loops(name, module=module)) > 0


@compiled_only
@pytest.mark.parametrize("by_columns", (False, True))
@both_types
@pytest.mark.parametrize("kind", SIZES)
def test_the_tiles_of_every_processor_give_the_same_bits(kind, dtype, by_columns):
    """Where this processor lacks a vector, LLVM takes several smaller ones."""
    rng, (vector_bytes, MR, NV) = np.random.default_rng(0), SIZES[kind]
    lanes = vector_bytes // np.dtype(dtype).itemsize
    M = 2 * MR + MR - 1
    K = 7
    NR = lanes * NV
    P = lanes * WIDE
    tiles = tiles_here(dtype, SIZES[kind])
    a = rng.standard_normal((M, K)).astype(dtype)
    b = rng.standard_normal((K, P)).astype(dtype)
    panels = b.reshape(K, -1, NR).swapaxes(0, 1).copy()
    columns = a.T.copy()
    places = (columns.ctypes.data, 1, M, MR) if by_columns else (a.ctypes.data, K, 1, MR * K)
    for rows, vectors in [*((M, v) for v in range(1, NV + 1)),
                          *((1, v) for v in range(2 * NV, WIDE + 1, NV) if not by_columns)]:
        for add in (False, True):
            c = rng.standard_normal((rows, P)).astype(dtype)
            width = vectors * lanes
            expected = c.copy()
            # With 1 and c for a first step, the sums begin with c.
            first, second = ((np.eye(rows, dtype=dtype), c[:, :width]) if add else
                             (a[:rows, :0], b[:0, :width]))
            expected[:, :width] = formulas.matmul(np.hstack([first, a[:rows]]),
                                                  np.vstack([second, b[:, :width]]))
            tiles(*places, panels.ctypes.data, K * NR, c.ctypes.data, P, K, add, rows, vectors)
            np.testing.assert_array_equal(c, expected)


@pytest.fixture
def compiled(monkeypatch):
    """A list that has an item for each compilation of tiles, of which there are none yet."""
    compiled = []
    monkeypatch.setattr(build_tiles, "tiles_of", lambda scalar: compiled.append(scalar)
                        or tiles_of(scalar, SMALL))
    monkeypatch.setattr(build_tiles, "_engines", {})
    monkeypatch.setattr(build_tiles.llvm, "add_symbol", lambda name, address: None)
    return compiled


def define_anew(folder):
    build_tiles._engines.clear()
    build_tiles.define_tiles(np.dtype(np.float32), folder)


def test_tiles_are_compiled_anew_only_where_their_file_is_absent_or_damaged(compiled, tmp_path):
    def are_compiled():
        compiled.clear()
        define_anew(tmp_path)
        return bool(compiled)
    assert are_compiled() and not are_compiled()
    file, = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert are_compiled() and not are_compiled()


def test_where_no_file_can_be_kept_tiles_are_compiled_each_time(compiled, tmp_path):
    for folder in (None, tmp_path / "absent"):
        define_anew(folder)
        define_anew(folder)
    assert len(compiled) == 4
