"""Pickles as plain data: what they hold comes out, and what they want to do does not happen."""
import collections
import copyreg
import functools
import operator
import os
import pathlib
import pickle
import pickletools
import struct
import tracemalloc

import pytest

from model.convert import unpickling
from model.convert.found import FormatError
from model.convert.unpickling import Call, Persistent, unpickled

DATA = {"none": None, "yes": True, "no": False, "small": 7, "two": 300, "minus": -1, "big": 2 ** 70,
        "half": 0.5, "text": "é漢", 3: "three", "empty": ((), [], {}), "long": (1,) * 5,
        "tuples": ((1,), (1, 2), (1,) * 3), "list": [1], "lists": [[1, 2]], "dict": {"a": {"b": 1}}}


class Reduced:
    """Pickled as a call."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


class WithState:
    """Pickled by a class, then given a state."""

    def __setstate__(self, state):
        raise AssertionError("it was called")


def opcodes(*parts):
    return b"".join(parts) + b"."


def global_(name):
    return b"c" + name.replace(" ", "\n").encode() + b"\n"


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


@pytest.mark.parametrize("protocol", (2, 3, 4, 5))
def test_plain_data_come_back(protocol):
    assert unpickled(pickle.dumps(DATA, protocol), ()) == DATA


@pytest.mark.parametrize("protocol", (2, 4))
def test_what_is_in_two_places_is_one_object_and_may_hold_itself(protocol):
    inner = []
    inner.append(inner)
    first, second = unpickled(pickle.dumps([inner, inner], protocol), ())
    assert first is second and first[0] is first


@pytest.mark.parametrize("protocol", (2, 4))
def test_an_ordered_dict_is_a_dict_without_its_attributes(protocol):
    content = collections.OrderedDict(a=1, b=2)
    content._metadata = {"version": 1}
    found = unpickled(pickle.dumps(content, protocol), ())
    assert type(found) is dict and found == {"a": 1, "b": 2}


def test_a_call_of_an_expected_name_is_noted_and_not_made():
    content = pickle.dumps(Reduced(os.mkdir, ("x",)), 2)
    assert unpickled(content, {"posix.mkdir", "nt.mkdir"}).arguments == ("x",)
    assert not pathlib.Path("x").exists()


def test_what_is_kept_elsewhere_comes_as_its_key():
    assert unpickled(opcodes(text("a"), b"Q"), ()) == Persistent("a")


SYSTEM = global_("os system")
COMMAND = text("touch here")
MKDIR = r"wants (posix|nt)\.mkdir,"
HOSTILE = {
    "a function of the system": (pickle.dumps(Reduced(os.mkdir, ("here",)), 2), MKDIR),
    "by names on the stack": (pickle.dumps(Reduced(os.mkdir, ("here",)), 4), MKDIR),
    "eval": (pickle.dumps(Reduced(eval, ("open('here', 'w')",)), 2), r"__builtin__\.eval"),
    "exec": (pickle.dumps(Reduced(exec, ("open('here', 'w')",)), 4), r"builtins\.exec"),
    "getattr in a chain": (opcodes(global_("builtins getattr"), SYSTEM, text("x"), b"\x86R"),
                           r"builtins\.getattr"),
    "an attribute of a module": (pickle.dumps(Reduced(operator.attrgetter, ("system",)), 4),
                                 r"operator\.attrgetter"),
    "a part of a function": (pickle.dumps(functools.partial(os.mkdir, "here"), 4),
                             r"functools\.partial"),
    "a module": (pickle.dumps(Reduced(__import__, ("os",)), 4), r"builtins\.__import__"),
    "a dotted name": (opcodes(b"\x80\x04", text("collections"), text("OrderedDict.fromkeys"),
                              b"\x93"), r"collections\.OrderedDict\.fromkeys"),
    "OBJ": (opcodes(b"(", SYSTEM, COMMAND, b"o"), r"os\.system"),
    "OBJ of an allowed class": (opcodes(b"(", global_("collections OrderedDict"), b"o"),
                                "instruction OBJ,"),
    "INST": (opcodes(b"(", COMMAND, b"ios\nsystem\n"), "instruction INST of os system,"),
    "NEWOBJ": (pickle.dumps(WithState(), 2), r"\.WithState|copy_reg\._reconstructor"),
    "NEWOBJ of an allowed class": (opcodes(global_("collections OrderedDict"), b")\x81"),
                                   "instruction NEWOBJ,"),
    "NEWOBJ_EX": (opcodes(b"\x80\x04", global_("collections OrderedDict"), b")}\x92"),
                  "instruction NEWOBJ_EX,"),
    "a registered code": (opcodes(b"\x80\x02\x82\x01"), "instruction EXT1,"),
    "a registered code of 4 bytes": (opcodes(b"\x80\x02\x84\x01\0\0\0"), "instruction EXT4,"),
    "copyreg": (opcodes(global_("copyreg add_extension"), text("os"), text("system"),
                        b"K\x01\x87R"), r"copyreg\.add_extension"),
    "a persistent text": (opcodes(b"Pos.system\n"), r"instruction PERSID of os\.system"),
    "a buffer elsewhere": (opcodes(b"\x80\x05\x97"), "instruction NEXT_BUFFER,"),
    "bytes to decode": (opcodes(b"S'os.system'\n"), r"instruction STRING of os\.system"),
    "another loader": (opcodes(global_("torch.serialization load"), COMMAND, b"\x85R"),
                       r"torch\.serialization\.load"),
    "a pickle inside": (opcodes(global_("_pickle loads"), COMMAND, b"\x85R"), r"_pickle\.loads"),
    "a name in several lines": (opcodes(b"\x80\x04", text("os"), text("sys\ntem"), b"\x93"),
                                r"os\.sys\\ntem"),
    "a name without end": (opcodes(b"\x80\x04", text("os"), text("x" * 9999), b"\x93"),
                           r"os\.x{77}\.\.\.,"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_hostile_pickle_wants_is_named_and_not_done(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copyreg.add_extension("os", "mkdir", 1)
    try:
        with pytest.raises(FormatError) as error:
            unpickled(HOSTILE[name][0], {"torch._utils._rebuild_tensor_v2"})
    finally:
        copyreg.remove_extension("os", "mkdir", 1)
    error.match(HOSTILE[name][1])
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


DAMAGED = {
    "nothing": b"", "only an end": b".", "no end": b"N", "a mark that is not there": b"t.",
    "a memory that is not there": b"h\0.", "an unknown instruction": b"\xff.",
    "a text of a list": b"]K\1s.", "more to a dict than pairs": b"}(K\1u.",
    "an item to a tuple": b")Na.", "a key that is a tuple": b"}))s.",
    "a key of many bytes": b"}\x8a\x09" + bytes(8) + b"\1Ns.",
    "a call of a text": opcodes(text("os.system"), b")R"),
    "a call with a list": opcodes(global_("collections OrderedDict"), b"]R"),
    "items to a call": opcodes(global_("collections OrderedDict"), b"]\x85RNNs"),
    "a length beyond the end": b"X\xff\xff\xff\x7fab.",
    "a negative length": b"\x8b\xff\xff\xff\xff.",
    "a whole number of many digits": b"L" + b"9" * 5000 + b"L\n.",
    "names that are numbers": b"K\1K\1\x93.",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_pickle_has_one_line(name):
    with pytest.raises(FormatError, match="pickle is damaged$"):
        unpickled(DAMAGED[name], ())


def test_a_pickle_cut_at_any_byte_is_damaged():
    whole = pickle.dumps(DATA, 4)
    for size in range(len(whole)):
        with pytest.raises(FormatError):
            unpickled(whole[:size], ())


def bomb():
    """A billion laughs: tuples of ten of the one before, 60 deep."""
    return opcodes(b"Nq\0", *(b"(" + b"h\0" * 10 + b"tq\0" for _ in range(60)))


LARGE = {
    "as many objects as bytes": b"}" * (1 << 12) + b".",
    "lists in lists": b"(" * (1 << 11) + b"t" * ((1 << 11) - 1) + b".",
    "a place far away in the memory": opcodes(b"Nr\xff\xff\xff\xff"),
    "one thing many times": bomb(),
    "a frame of 10^18 bytes": opcodes(b"\x80\x04\x95", struct.pack("<Q", 10 ** 18), b"N"),
    "a text of 10^18 bytes": opcodes(b"\x80\x04\x8d", struct.pack("<Q", 10 ** 18), b"N"),
}


@pytest.mark.parametrize("name", LARGE)
def test_memory_stays_within_a_multiple_of_the_pickle(name):
    tracemalloc.start()
    try:
        unpickled(LARGE[name], ())
    except FormatError:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * len(LARGE[name]) + 50_000


def test_a_pickle_that_is_too_large_is_not_begun(monkeypatch):
    monkeypatch.setattr(pickletools, "genops", None)
    with pytest.raises(FormatError, match="2,097,153 bytes, and 2,097,152 are read"):
        unpickled(bytes(unpickling.LARGEST + 1), ())


def test_a_call_in_data_is_not_taken_for_a_tuple_or_a_text():
    found = unpickled(opcodes(global_("a b"), b")R"), {"a.b"})
    assert found == Call("a.b", ()) and not isinstance(found, (tuple, str))
