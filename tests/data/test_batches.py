import numpy as np
import pytest

from data import IGNORE, Shuffled, random_batch, spread, split, windows


@pytest.mark.parametrize("n", [0, 1, 9, 10, 11, 99, 1_115_394])
def test_the_split_falls_where_nanogpt_puts_it_in_ids_and_in_a_string(n):
    train, val = split(np.arange(n))
    assert len(train) == int(n * 0.9)
    assert np.array_equal(np.concatenate([train, val]), np.arange(n))
    assert split("abcdefghijk") == ("abcdefghi", "jk")
    assert split("abcd", share=0.5) == ("ab", "cd")


def test_the_targets_of_a_batch_are_its_ids_one_later_and_a_seed_draws_it_again():
    (x, y), again = (random_batch(np.arange(100), 5, 7, np.random.default_rng(0)) for _ in "ab")
    assert np.array_equal((x, y), again)
    assert x.shape == y.shape == (5, 7)
    assert np.array_equal(x, x[:, :1] + np.arange(7))
    assert np.array_equal(y, x + 1)


def test_every_start_is_equally_likely_with_the_last_one_possible():
    x, y = random_batch(np.arange(8), 40_000, 4, np.random.default_rng(0))
    starts, counts = np.unique(x[:, 0], return_counts=True)
    assert np.array_equal(starts, [0, 1, 2, 3])
    assert y.max() == 7
    assert np.all(np.abs(counts - 10_000) < 400)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
def test_batches_are_contiguous_int64_whatever_the_ids(dtype):
    ids = np.arange(40).astype(dtype)
    for array in (*random_batch(ids, 3, 8, np.random.default_rng(0)), *windows(ids, 8)):
        assert array.dtype == np.int64
        assert array.flags.c_contiguous


@pytest.mark.parametrize("n_ids, block_size", [(9, 8), (17, 8), (10, 8), (16, 8), (18, 8), (5, 1)])
def test_windows_count_every_target_exactly_once(n_ids, block_size):
    ids = np.arange(n_ids) + 1000
    x, y = windows(ids, block_size)
    assert x.shape == y.shape == (-(-(n_ids - 1) // block_size), block_size)
    counted = y != IGNORE
    assert np.array_equal(y[counted], ids[1:])
    assert np.array_equal(x[counted], ids[:-1])
    assert x[-1, -1] == ids[-2]


def test_windows_of_too_few_ids_are_refused():
    with pytest.raises(ValueError, match="windows of 8 need 9 ids, got 8"):
        windows(np.arange(8), 8)


@pytest.mark.parametrize("n, wanted", [(10, 1), (10, 3), (10, 9), (1743, 600)])
def test_the_windows_looked_at_are_spread_evenly_and_all_of_them_if_more_are_wanted(n, wanted):
    chosen = spread(n, wanted)
    assert len(chosen) == wanted
    assert np.all(np.isin(np.diff(chosen), [n // wanted, -(-n // wanted)]))
    after = n - 1 - chosen[-1]
    assert abs(chosen[0] - after) <= 1
    for all_of_them in (0, n, n + 1):
        assert np.array_equal(spread(n, all_of_them), np.arange(n))
    assert spread(0, wanted).size == 0


def of_pass(number):
    return np.random.default_rng([7, number])


@pytest.mark.parametrize("N, T", [(9, 8), (10, 8), (23, 8), (100, 8), (1000, 7), (5, 1), (2, 1)])
def test_a_pass_of_shuffled_windows_reads_an_id_at_most_once_and_all_but_the_ends(N, T):
    shuffled = Shuffled(np.arange(N), T, of_pass)
    for number in range(3):
        x, y = shuffled.batch(number * shuffled.n, shuffled.n)
        assert x.shape == y.shape == (shuffled.n, T)
        assert np.array_equal(y, x + 1)
        assert y.max() < N
        read = np.sort(x, axis=None)
        assert np.array_equal(read, read[0] + np.arange(len(read)))
        assert N - len(read) < 2 * T + 1


def test_each_pass_of_shuffled_windows_begins_elsewhere_and_has_another_order():
    shuffled = Shuffled(np.arange(1000), 8, of_pass)
    passes = [shuffled.batch(number * shuffled.n, shuffled.n)[0][:, 0] for number in range(20)]
    assert len({starts.min() for starts in passes}) > 5
    assert len({tuple(np.argsort(starts)) for starts in passes}) == len(passes)
    assert all(np.any(np.diff(starts) < 0) for starts in passes)


def test_shuffled_windows_are_the_same_in_batches_of_any_size_over_the_end_of_a_pass():
    shuffled = Shuffled(np.arange(50), 8, of_pass)
    whole, _ = shuffled.batch(0, 12)
    again = Shuffled(np.arange(50), 8, of_pass)
    parts = [again.batch(first, count)[0] for first, count in ((7, 5), (0, 3), (3, 4))]
    assert np.array_equal(whole, np.concatenate([parts[1], parts[2], parts[0]]))
