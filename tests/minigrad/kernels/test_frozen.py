"""Products with frozen, packed weights: the bits of float32, and never a whole matrix."""
import numpy as np
import pytest

from minigrad import formulas, packed
from minigrad.packed import BLOCKS, NUMBERS, Packed, unpacked
from tests.kit import blocks, compiled_only, memory, normal

# Rows and columns of a weight, and rows of the other factor: below, at and above the sizes of
# panels, units and depths of every processor.
SHAPES = [(1, 32, 1), (7, 64, 5), (130, 96, 3), (400, 416, 100)]


@compiled_only
@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("P, K, M", SHAPES)
def test_products_with_a_packed_weight_have_the_bits_of_those_with_its_numbers(kind, P, K, M):
    a = blocks(kind, P, max(1, K // NUMBERS[kind]))
    weight = Packed(a)
    numbers = unpacked(a)
    K = weight.shape[1]
    x = normal(2, M, K, seed=1, dtype=np.float32)
    g = normal(2, M, P, seed=2, dtype=np.float32)
    with np.errstate(all="ignore"):         # bfloat16 numbers are large
        expected = formulas.linear(x, numbers, None), formulas.matmul(g, numbers)
        found = packed.product.kernel(x, weight), packed.product_vjp.kernel(g, weight)
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other)


@compiled_only
def test_products_with_rows_of_several_kinds_have_the_bits_of_those_with_its_numbers():
    a = packed.below([blocks(kind, rows, 512 // NUMBERS[kind])
                      for kind, rows in (("Q5_0", 128), ("Q8_0", 448), ("Q6_K", 64))])
    weight = Packed(a)
    x = normal(9, 512, seed=1, dtype=np.float32)
    g = normal(9, 640, seed=2, dtype=np.float32)
    for one, other in [(packed.product.kernel(x, weight), formulas.linear(x, unpacked(a), None)),
                       (packed.product_vjp.kernel(g, weight), formulas.matmul(g, unpacked(a)))]:
        np.testing.assert_array_equal(one, other)


@compiled_only
def test_products_with_a_packed_weight_take_a_single_row_and_none():
    weight = Packed(blocks("Q8_0", 70, 2))
    for lead in ((), (0,), (3, 0)):
        x = normal(*lead, 64, dtype=np.float32)
        y = packed.product(x, weight)
        assert y.shape == (*lead, 70) and packed.product_vjp(y, weight).shape == x.shape
    np.testing.assert_array_equal(packed.product(normal(64, dtype=np.float32), weight),
                                  packed.product(normal(1, 64, dtype=np.float32), weight)[0])


@compiled_only
def test_products_with_a_packed_weight_never_make_an_array_of_the_whole_matrix():
    weight = Packed(blocks("Q8_0", 4096, 32))                               # 16 MB in float32
    x = normal(2, 1024, dtype=np.float32)
    packed.product_vjp(packed.product(x, weight), weight)                   # in panels, compiled
    for plain in (False, True):
        product = packed.product.plain if plain else packed.product
        product_vjp = packed.product_vjp.plain if plain else packed.product_vjp
        with memory() as most:
            product_vjp(product(x, weight), weight)
        assert most[0] < 6 << 20
