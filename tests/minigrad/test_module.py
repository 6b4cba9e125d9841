"""The tree of parameters: found in order, named by path, copied out and taken back strictly."""
import copy
import dataclasses
import functools
import itertools
import math
import pickle
from collections import OrderedDict, UserDict, UserList, deque
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from minigrad.module import Buffer, Module
from minigrad.nn import full
from tests.kit import leaf, normal, refusal, same


def parameter(*shape, value=0.0, dtype=np.float64):
    return Tensor(np.full(shape, value, dtype), requires_grad=True)


class Inner(Module):
    def __init__(self, value=0.0):
        self.weight = parameter(2, 3, value=value)
        self.bias = None


class Outer(Module):
    """Parameters set in no alphabetical order, in modules, in lists, in lists of lists."""

    def __init__(self):
        self.size = 3
        self.name = "outer"
        self.last = parameter(4, value=1)
        self.inner = Inner(2)
        self.table = np.ones(5)             # an array is no parameter
        self.blocks = [Inner(3), parameter(1, value=4), (Inner(5), [parameter(2, value=6)])]
        self.first = parameter(value=7)


PATHS = [
    "last",
    "inner.weight",
    "blocks.0.weight",
    "blocks.1",
    "blocks.2.0.weight",
    "blocks.2.1.0",
    "first"]


def values(module):
    return {path: p.data.copy() for path, p in module.named_parameters()}


def unchanged(module, before):
    after = values(module)
    return list(after) == list(before) and all(np.array_equal(after[k], before[k]) for k in before)


def paths(module):
    return [path for path, _ in module.named_parameters()]


def test_named_parameters_and_modules_come_in_the_order_in_which_they_were_set():
    module = Outer()
    assert paths(module) == PATHS
    assert [p.data.flat[0] for p in module.parameters()] == [1, 2, 3, 4, 5, 6, 7]
    assert dict(module.named_parameters())["blocks.2.0.weight"] is module.blocks[2][0].weight
    assert list(module.named_modules()) == [
        ("", module), ("inner", module.inner), ("blocks.0", module.blocks[0]),
        ("blocks.2.0", module.blocks[2][0])]
    module.inner.bias = parameter(3)                    # comes later
    assert paths(module.inner) == ["weight", "bias"]
    module.inner.bias = None
    assert paths(module) == PATHS


def test_named_parameters_lists_a_shared_one_once_under_its_first_path():
    module = Outer()
    module.blocks[0].weight = module.inner.weight
    module.tied = module.first
    assert paths(module) == [p for p in PATHS if p != "blocks.0.weight"]
    assert len(module.parameters()) == len(PATHS) - 1 == len(module.state_dict())


def test_Module_finds_parameters_in_dicts_as_in_lists_however_they_are_nested():
    module = Module()
    module.heads = {"one": parameter(1),
                    2: [parameter(2), {"deep": Inner()}],
                    "none": None}
    module.ordered = OrderedDict(b=(parameter(3),), a={})
    assert paths(module) == [
        "heads.one",
        "heads.2.0",
        "heads.2.1.deep.weight",
        "ordered.b.0"]
    assert [path for path, _ in module.named_modules()] == ["", "heads.2.1.deep"]
    other = copy.deepcopy(module)
    for p in other.parameters():
        p.data += 1
    module.load_state_dict(other.state_dict())
    assert all((p.data == 1).all() for p in module.parameters())


def test_Module_refuses_two_parameters_of_one_path_and_a_set():
    module = Module()
    module.a = {"1": parameter(1), 1: parameter(2)}
    assert "two parameters are called a.1" in refusal(ValueError, module.state_dict)
    module.a = [{Inner()}]
    assert "a.0 is a set, which has no order" in refusal(TypeError, module.parameters)
    module.a = {"names"}
    assert module.parameters() == []


class Layers(Module, list):
    __iter__ = list.__iter__


class NamedLayers(Module, dict):
    __iter__ = dict.__iter__


def objects(*parts):
    """An array of objects."""
    array = np.empty(len(parts), object)
    for i, part in enumerate(parts):
        array[i] = part
    return array


@pytest.mark.parametrize("container, names", [
    (deque, ["0.weight", "1"]),
    (UserList, ["0.weight", "1"]),
    (lambda parts: objects(*parts), ["0.weight", "1"]),
    (lambda parts: objects(*parts).reshape(2, 1), ["0.0.weight", "1.0"]),
    (lambda parts: objects(parts[0]).reshape(()), ["0.weight"]),
    (lambda parts: {"a": parts[0], "b": parts[1]}.values(), ["0.weight", "1"]),
    (lambda parts: {"a": parts[0], "b": parts[1]}.items(), ["0.1.weight", "1.1"]),
    (lambda parts: Layers(parts), ["0.weight", "1"]),
    (lambda parts: NamedLayers(a=parts[0], b=parts[1]), ["a.weight", "b"]),
    (lambda parts: UserDict(a=parts[0], b=parts[1]), ["a.weight", "b"]),
    (lambda parts: SimpleNamespace(a=parts[0], b=[parts[1]]), ["a.weight", "b.0"])])
def test_Module_finds_parameters_in_every_container_that_has_an_order(container, names):
    module = Module()
    module.held = container([Inner(), parameter(1)])
    module.last = parameter(2)
    assert paths(module) == [*(f"held.{name}" for name in names), "last"]
    assert "Inner, 6 parameters" in repr(module)
    module.load_state_dict({path: array + 1 for path, array in module.state_dict().items()})
    assert all((p.data == 1).all() for p in module.parameters())


def test_Module_finds_parameters_in_slots():
    @dataclasses.dataclass(slots=True)
    class Slotted(Module):
        inner: Inner
        bias: Tensor
        size: int = 3

    class More(Slotted):
        __slots__ = "gain", "__own", "empty"

        def hold(self, own):
            self.__own = own

    class Last(More):
        __slots__ = "last"
    module = Last(Inner(), parameter(3))
    module.hold(parameter(4))
    module.gain, module.last, module.later = parameter(1), parameter(1), parameter(2)
    assert paths(module) == ["inner.weight", "bias", "gain", "_More__own", "last", "later"]


class Caller(Module):
    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return x


@pytest.mark.parametrize("held, what", [
    (lambda part: (layer for layer in [part]), "a generator, which gives its parts only once"),
    (lambda part: map(id, [part]), "a map, which gives its parts only once"),
    (lambda part: zip([part]), "a zip, which gives its parts only once"),
    (lambda part: iter([part]), "a list_iterator, which gives its parts only once"),
    (lambda part: reversed((part,)), "a reversed, which gives its parts only once"),
    (lambda part: itertools.repeat(part, 2), "a repeat, which gives its parts only once"),
    (lambda part: {part}, "a set, which has no order"),
    (lambda part: frozenset([(part,)]), "a set, which has no order"),
    (lambda part: functools.partial(mg.linear, weight=part), "a function that keeps parameters"),
    (lambda part: functools.partial(print, [part]), "a function that keeps parameters"),
    (lambda part: functools.partial(Caller(part)), "a function that keeps parameters")])
def test_Module_refuses_to_overlook_parameters(held, what):
    module = Module()
    module.a = [held(Inner())]
    for use in (module.parameters, module.state_dict, module.__repr__):
        assert f"a.0 is {what}: hold parameters and modules in a list" in refusal(TypeError, use)


def test_Module_leaves_alone_what_holds_no_parameter():
    module = Module()
    module.f = functools.partial(mg.gelu, approximate="tanh")
    module.names, module.g, module.text = frozenset("ab"), np.sum, "text"
    module.steps, module.words = itertools.count(), iter(["a", [1]])
    assert module.parameters() == []


def test_Module_whose_parts_are_shared_is_walked_once():
    top = Inner()
    for _ in range(40):                 # 2^40 paths lead to it
        below, top = top, Module()
        top.left = top.right = below
    assert paths(top) == ["left." * 40 + "weight"]
    assert [*top.state_dict()] == paths(top)


def test_Module_that_leads_back_to_itself_gives_each_parameter_once():
    module = Outer()
    expected = values(module)
    module.inner.parent = module
    module.inner.parents = {"all": [module, module.inner]}
    module.blocks[0].neighbours = module.blocks
    module.itself = [module]
    module.itself.append(module.itself)
    module.round = {}
    module.round["again"] = module.round
    assert unchanged(module, expected)
    assert [path for path, _ in module.named_modules()][0] == ""
    assert repr(module).startswith("Outer, ")
    assert module.inner.parameters()[0] is module.inner.weight
    assert len(module.inner.parameters()) == len(PATHS)
    other = copy.deepcopy(module)
    other.load_state_dict(module.state_dict())
    assert unchanged(other, expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_Module_is_copied_with_leaves_of_its_own_and_shared_ones_stay_shared(copied):
    module = Module()
    module.block, module.tied = Inner(2), {"weight": parameter(4)}
    module.tied_too = [module.block.weight, module.tied]
    blocks = [copied(module) for _ in range(2)]
    for made in blocks:
        assert made.tied_too[0] is made.block.weight
        assert made.tied_too[1] is made.tied
        assert [path for path, _ in made.named_parameters()] == ["block.weight", "tied.weight"]
    x = np.ones((1, 3))
    student, teacher, *_ = every = [module, *blocks]
    loss = sum((mg.linear(x, made.block.weight) ** 2).sum() for made in every)
    (loss + ((student.block.weight - teacher.block.weight) ** 2).sum()).backward()
    assert all((made.block.weight.grad == 12).all() for made in every)
    mg.SGD(teacher.parameters(), lr=1.0).step()
    assert (teacher.block.weight.data == -10).all()
    assert (student.block.weight.data == 2).all()


def test_Module_that_keeps_a_result_is_not_copied_until_it_is_detached():
    module = Inner()
    module.last = module.weight * 2
    assert "copy tensor.detach()" in refusal(TypeError, copy.deepcopy, module)
    module.last = module.last.detach()
    assert copy.deepcopy(module).last.shape == (2, 3)


def test_Module_prints_its_parts_their_shapes_and_counts_and_those_that_are_alike_once():
    module = Module()
    module.embedding = leaf(np.ones((5, 2)))
    module.blocks = [Inner(), Inner(), Inner(), parameter(3), parameter(3)]
    module.parts = {"a": parameter(2), "b": Inner()}
    module.head, module.size = Inner(), 7
    module.head.weight = module.embedding
    assert repr(module).splitlines() == [
        "Module, 42 parameters",
        "  embedding: [5, 2]",
        "  blocks.0 to blocks.2, 3 alike: Inner, 6 parameters",
        "    weight: [2, 3]",
        "  blocks.3 to blocks.4, 2 alike: [3]",
        "  parts.a: [2]",
        "  parts.b: Inner, 6 parameters",
        "    weight: [2, 3]",
        "  head: Inner, 10 parameters",
        "    weight: [5, 2], shared with embedding"]
    module = Module()
    module.weight = full((2, 3), 0, dtype=None)
    assert repr(module) == "Module, 6 parameters\n  weight: [2, 3]"


class Normalised(Module):
    """Keeps a running mean, a count and a mask; and an array, which is not saved."""

    def __init__(self):
        self.mean = Buffer(np.zeros(3))
        self.count = Buffer(0)
        self.mask = Buffer(np.tri(3) > 0)
        self.weight = parameter(3, value=2)
        self.array = np.zeros(3)

    def __call__(self, x):
        self.mean.data = self.mean.data + x.data.mean(axis=0)
        self.count.data += 1
        return (x - self.mean) @ self.mask * self.weight


def test_Module_shows_which_parameters_are_frozen_and_lists_and_saves_them_as_the_others():
    module = Outer()
    module.inner.weight.requires_grad = False
    assert "    weight: [2, 3], frozen\n" in repr(module) and repr(module).count("frozen") == 1
    assert paths(module) == PATHS == list(module.state_dict())
    for assign in (False, True):
        module.load_state_dict({path: a + 1 for path, a in values(module).items()}, assign=assign)
        assert [path for path, p in module.named_parameters() if not p.requires_grad] == [
            "inner.weight"]


def test_state_dict_has_buffers_which_are_no_parameters_and_no_plain_array():
    module, other = Normalised(), Normalised()
    assert paths(module) == ["weight"]
    assert [path for path, _ in module.named_buffers()] == ["mean", "count", "mask"]
    x = Tensor(normal(5, 3))
    for _ in range(2):
        module(x).sum().backward()
    assert np.abs(module.weight.grad).sum() > 0
    state = module.state_dict()
    assert list(state) == ["mean", "count", "mask", "weight"]
    assert state["count"] == 2 and state["mask"].dtype == bool
    other.load_state_dict(state)
    for each in (other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert same(each.state_dict(), state)
        assert same({path: b.data for path, b in each.named_buffers()},
                    {path: b.data for path, b in module.named_buffers()})
        assert [path for path, _ in each.named_buffers()] == ["mean", "count", "mask"]
    assert repr(module).splitlines() == [
        "Normalised, 3 parameters",
        "  mean: [3], buffer",
        "  count: [], buffer",
        "  mask: [3, 3], buffer",
        "  weight: [3]"]


def test_load_state_dict_refuses_numbers_that_a_buffer_of_integers_does_not_hold():
    module = Normalised()
    state = module.state_dict()
    for number in (2.5, math.nan):
        state["count"] = np.array(number)
        assert refusal(ValueError, module.load_state_dict, state) == (
            "count was given numbers that int64, its type in this model, does not hold")
    state["count"] = np.array(3.0)
    module.load_state_dict(state)
    assert module.count.data == 3 and module.count.dtype == np.int64


def test_load_state_dict_assigns_a_buffer_as_a_constant():
    module = Normalised()
    state = module.state_dict()
    module.load_state_dict(state, assign=True)
    assert module.mean.data is state["mean"]
    assert not module.mean.requires_grad and module.weight.requires_grad


def test_state_dict_is_a_copy_in_both_directions_into_the_arrays_that_are_there():
    source = Outer()
    module = Outer()
    before = values(source)
    state = source.state_dict()
    assert list(state) == PATHS
    assert all(type(a) is np.ndarray for a in state.values())
    for i, array in enumerate(state.values()):
        array += 10 * i
    assert unchanged(source, before)
    expected = {name: array.copy() for name, array in state.items()}
    held = [p.data for p in module.parameters()]
    module.load_state_dict(state)
    state["first"] += 1
    assert all(p.data is a for p, a in zip(module.parameters(), held))
    assert unchanged(module, expected)


def test_load_state_dict_keeps_the_type_of_each_parameter():
    module = Module()
    module.weight = parameter(2, dtype=np.float32)
    module.load_state_dict({"weight": np.array([0.1, 2])})
    assert module.weight.dtype == np.float32
    assert np.array_equal(module.weight.data, np.array([0.1, 2], np.float32))


@pytest.mark.parametrize("large", [1e300, -1e39])
def test_load_state_dict_refuses_a_number_that_would_become_infinite(large):
    module = Module()
    module.first, module.weight = (parameter(2, dtype=np.float32) for _ in range(2))
    state = {"first": np.ones(2), "weight": np.array([1.0, large])}
    assert "weight was given numbers beyond 3.4e+38, the largest of float32" in refusal(
        ValueError, module.load_state_dict, state)
    assert not module.first.data.any()                      # nothing is changed
    state["weight"][1] = np.inf
    module.load_state_dict(state)
    assert module.weight.data[1] == np.inf


def test_load_state_dict_assigns_an_array_to_all_its_owners_also_where_there_was_none():
    module = Module()
    module.one, module.two = Inner(), Inner()
    module.one.weight = module.two.weight = full((2, 3), 0, dtype=None)
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    module.load_state_dict({"one.weight": given}, assign=True)
    assert module.one.weight is module.two.weight
    assert module.two.weight.data is given
    assert module.one.weight.requires_grad
    assert module.one.weight.dtype == np.float32


@pytest.mark.parametrize("unfit", [
    np.ones((3, 2)).T,
    np.broadcast_to(np.float64(1), (2, 3)),
    np.frombuffer(bytes(48)).reshape(2, 3),
    np.ndarray((2, 3), np.float64, bytearray(49), 1)], ids=["not dense", "one number",
                                                            "not writable", "not aligned"])
def test_load_state_dict_copies_an_assigned_array_that_cannot_be_trained_on(unfit):
    module = Inner()
    module.load_state_dict({"weight": unfit}, assign=True)
    assert module.weight.data.flags.carray
    assert np.array_equal(module.weight.data, unfit)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("unfit, says", [
    (np.ma.masked_array(np.ones(2), [True, False]), "as with array.filled(0)"),
    (np.ones(2, complex), "which are no numbers")])
def test_load_state_dict_refuses_an_array_that_would_lose_a_part(unfit, says, assign):
    module = Module()
    module.first, module.last = parameter(2), parameter(2)
    before = values(module)
    state = {"first": np.ones(2), "last": unfit}
    assert says in refusal((TypeError, ValueError), module.load_state_dict, state, assign=assign)
    assert unchanged(module, before)


def test_load_state_dict_assigns_all_arrays_or_none():
    module = Module()
    module.first, module.last = parameter(2), parameter(2)
    before = values(module)
    state = {"first": np.ones(2), "last": np.ones(2, np.float16)}
    assert "not float16" in refusal(TypeError, module.load_state_dict, state, assign=True)
    assert unchanged(module, before)


def without(state, *names):
    return {name: array for name, array in state.items() if name not in names}


BAD_STATES = [
    (lambda s: without(s, "last", "blocks.1"),
     "the names are not those of this model: missing blocks.1, last"),
    (lambda s: without(s, "first") | {"fist": s["first"]},
     "the names are not those of this model: missing first; unknown fist"),
    (lambda s: s | {"blocks.2.1.0": np.ones(3)},
     "blocks.2.1.0 has shape [2] in this model, and was given [3]"),
    (lambda s: s | {"first": np.ones(1)}, "first has shape [] in this model, and was given [1]"),
    (lambda s: s | {"first": np.array("seven")}, "first was given <U5, which are no numbers")]


@pytest.mark.parametrize("spoil, message", BAD_STATES)
def test_load_state_dict_refuses_a_state_that_does_not_fit_and_changes_nothing(spoil, message):
    module = Outer()
    before = values(module)
    assert message == refusal(ValueError, module.load_state_dict, spoil(
        {name: array + 100 for name, array in module.state_dict().items()}))
    assert unchanged(module, before)
