"""What vjps return, and how it is added up: sparse gradients, rows of a table, broadcasting."""
import numpy as np
import pytest

import minigrad as mg
from minigrad.gradients import Added, Rows, unbroadcast
from minigrad.plug import watch_ops
from tests.kit import bag, leaf


def test_Added_is_summed_with_other_gradients_and_shared_with_none():
    @mg.op(register=False)
    def first(x):
        def add(total):
            total[0] += g_of[-1]
        g_of = []
        return x[:1].copy(), (lambda g: g_of.append(g[0]) or Added(add),)
    x = leaf([1.0, 2.0])
    (first(x) + first(x)).sum().backward()
    assert x.grad.tolist() == [2, 0]
    y = leaf([1.0, 2.0])
    (y * 3).sum().backward()
    (first(y) * 5).sum().backward()
    assert y.grad.tolist() == [8, 3]


@pytest.mark.parametrize("use, expected, kept", [
    (lambda x: bag([[1], [5], [1]], x), [0, 2, 0, 0, 0, 1, 0], True),
    (lambda x: bag([[1, 5], [5, 6]], x), [0, 1, 0, 0, 0, 2, 1], True),
    (lambda x: bag([range(7)], x), [1] * 7, False),
    (lambda x: bag([[1]], x) + bag([[2]], x), [0, 1, 1, 0, 0, 0, 0], False),
    (lambda x: bag([[1]], x) + x, [1, 8, 1, 1, 1, 1, 1], False),
    (lambda x: bag([[1]], x * 2), [0, 2, 0, 0, 0, 0, 0], False)])
def test_Rows_are_kept_of_the_gradient_of_a_table_of_which_few_were_read(use, expected, kept):
    x = leaf(np.arange(21.0).reshape(7, 3))
    use(x).sum().backward()
    assert isinstance(x.node.grad, Rows) == kept
    read = x.grad
    assert np.array_equal(read, np.outer(expected, [1, 1, 1]))
    assert x.grad is read
    use(x).sum().backward()
    assert np.array_equal(x.grad, 2 * read)
    x.grad = None
    assert x.grad is None


def test_Rows_hold_the_ids_of_the_rows_that_were_read_and_the_gradient_of_each():
    x = leaf(np.arange(21.0).reshape(7, 3))
    bag([[5], [1], [5]], x).sum().backward()
    ids, values, shape = x.node.grad
    assert ids.tolist() == [1, 5]
    assert values.tolist() == [[1, 1, 1], [2, 2, 2]]
    assert shape == (7, 3)


def test_Added_is_added_to_no_array_that_is_also_another_gradient():
    x = leaf(np.ones((2, 3)))
    y = leaf(np.ones((2, 3)))
    read = bag([[0]], x)                # older than x + y, whose gradient comes first
    (read.sum() + ((x + y) * np.ones((2, 3))).sum()).backward()
    assert x.grad.tolist() == [[2, 2, 2], [1, 1, 1]]
    assert y.grad.tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("keep, result, copied", [
    (lambda a: None, lambda a: a, False),
    (lambda a: None, lambda a: a.reshape(3, 2), False),
    (lambda a: a, lambda a: a, True),
    (lambda a: a, lambda a: a.reshape(3, 2), True),
    (lambda a: a[1:], lambda a: a, True),
    (lambda a: a[1:], lambda a: a.reshape(3, 2), True),
    (lambda a: memoryview(a), lambda a: a, True),
    (lambda a: None, lambda a: np.frombuffer(bytearray(48)).reshape(3, 2), True),
    (lambda a: None, lambda a: np.zeros((3, 4))[:, :2], True),
    (lambda a: None, lambda a: np.zeros((4, 2))[:3], True),
    (lambda a: None, lambda a: np.asfortranarray(a), True),
    (lambda a: None, lambda a: np.broadcast_to(np.ones(2), (3, 2)), True)],
    ids=["new", "new, folded", "kept", "its base kept", "its view kept", "a view of its base kept",
         "its buffer kept", "a strange buffer", "some columns", "some rows", "in column order",
         "read-only"])
def test_a_leaf_keeps_what_a_vjp_returns_without_a_copy_only_if_nobody_else_holds_it(
        keep, result, copied):
    kept = []
    places = []

    @mg.op(register=False)
    def double(x):
        def dx(g):
            array = np.full((3, 2), 2.0)
            kept.append(keep(array))
            array = result(array)
            places.append(array.ctypes.data)
            return array
        return 2 * x, (dx,)
    x = leaf(np.ones((3, 2)))
    double(x).sum().backward()
    assert (x.grad.ctypes.data != places[0]) == copied
    x.grad[:] = 7
    assert not any(np.equal(array, 7).any() for array in kept if array is not None)
    assert x.grad.flags.carray


def test_a_leaf_shares_its_gradient_neither_with_what_it_was_started_from_nor_with_a_leaf():
    x = leaf(np.ones(3))
    y = leaf(np.ones(3))
    start = np.ones(3)
    (x + y).backward(start)
    z = leaf(np.ones(3))
    z.backward(start)
    events = []
    w = leaf(np.ones(3))
    with watch_ops(events.append):
        mg.exp(w).backward(start)
    for p in (x, y, z, w):
        p.grad[:] = 7
        assert [np.array_equal(q.grad, p.grad) for q in (x, y, z, w)].count(True) == 1
        p.grad[:] = p.data
    assert (start == 1).all()
    w.grad[:] = 7
    [_, dx], = [event.outputs[0] for event in events if event.direction == "backward"]
    assert (dx != 7).all()


def test_Added_is_added_to_a_sum_in_column_order():
    """As a table has that is also used twice as W.T."""
    W = leaf(np.arange(12.0).reshape(4, 3))
    read = bag([[1], [3]], W)
    a, b = np.eye(3)[:2]
    products = a @ W.T + b @ W.T
    (read.sum() + (products * np.arange(4)).sum()).backward()
    assert W.grad.tolist() == [[0, 0, 0], [2, 2, 1], [2, 2, 0], [4, 4, 1]]


def test_unbroadcast_sums_over_the_axes_that_were_repeated_and_refuses_others():
    assert unbroadcast(np.ones((2, 3)), (3,)).tolist() == [2, 2, 2]
    assert unbroadcast(np.ones((2, 3)), (2, 1)).tolist() == [[3], [3]]
    says = r"the vjp gave \[3\] for an argument of shape \[1, 1, 3\]"
    with pytest.raises(ValueError, match=says):
        unbroadcast(np.ones(3), (1, 1, 3))


@pytest.mark.parametrize("ids", [[4], [9], [-1]])
def test_Added_refuses_rows_that_the_table_has_not(ids):
    ids = np.array(ids)
    wrong = mg.op(lambda x: (x[:1], (lambda g: Added(lambda total, places: None, ids),)),
                  register=False)
    x = leaf(np.ones((4, 2)))
    with pytest.raises(IndexError, match="rows of the table, from 0 to 3"):
        wrong(x).sum().backward()
    assert x.grad is None
