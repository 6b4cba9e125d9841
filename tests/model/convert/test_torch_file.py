"""Files of torch.save: tensors of every kind come out, a file that lies is refused, and what a
hostile pickle wants does not happen."""
import collections
import copyreg
import io
import os
import pickle
import re
import struct
import zipfile

import numpy as np
import pytest

from model.convert.model_file import FormatError
from model.convert.torch_file import LARGEST, TorchFile, unpickle
from tests.kit import refusal

NUMBERS = np.arange(12, dtype="<f4")
REBUILD = "torch._utils._rebuild_tensor_v2"


# Pickles, by their opcodes

def opcodes(*parts):
    return b"".join(parts) + b"."


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(n):
    size = n.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + n.to_bytes(size, "little", signed=True)


def numbers(*values):
    return b"(" + b"".join(map(number, values)) + b"t"


def name(full):
    return b"c" + "\n".join(full.rsplit(".", 1)).encode() + b"\n"


def persistent(*, word="storage", kind="torch.FloatStorage", key="0", count=12, more=b""):
    return b"(" + text(word) + name(kind) + text(key) + text("cpu") + number(count) + more + b"tQ"


def rebuilt(storage=persistent(), offset=0, shape=(3, 4), strides=(4, 1), by=REBUILD):
    """The pickle of a tensor, as torch.save writes it."""
    return (name(by) + b"(" + storage + number(offset) + numbers(*shape) + numbers(*strides)
            + b"\x89" + name("collections.OrderedDict") + b")RtR")


class Reduced:
    """Pickled as a call."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


SYSTEM, COMMAND, ORDERED = name("os.system"), text("touch here"), name("collections.OrderedDict")
DATA = {"none": None, "yes": True, "no": False, "small": 7, "two": 300, "minus": -1, "big": 2 ** 70,
        "half": 0.5, "text": "é漢", 3: "three", "empty": ((), [], {}), "long": (1,) * 5,
        "tuples": ((1,), (1, 2), (1,) * 3), "list": [1], "lists": [[1, 2]], "dict": {"a": {"b": 1}}}


@pytest.mark.parametrize("protocol", (2, 3, 4, 5))
def test_plain_data_come_back(protocol):
    inner = []
    inner.append(inner)
    data, first, second = unpickle(pickle.dumps([DATA, inner, inner], protocol))
    assert data == DATA and first is second and first[0] is first
    content = collections.OrderedDict(a=1, b=2)
    content._metadata = {"version": 1}
    found = unpickle(pickle.dumps(content, protocol))
    assert found == {"a": 1, "b": 2}
    before = dict(vars(collections.OrderedDict))
    with pytest.raises(FormatError):
        unpickle(opcodes(ORDERED, b"N}", text("update"), b"Ns\x86b"))
    assert vars(collections.OrderedDict) == before


MKDIR = r"wants (posix|nt)\.mkdir,"
HOSTILE = {
    "a function of the system": (pickle.dumps(Reduced(os.mkdir, ("here",)), 2), MKDIR),
    "by names on the stack": (pickle.dumps(Reduced(os.mkdir, ("here",)), 4), MKDIR),
    "eval": (pickle.dumps(Reduced(eval, ("open('here', 'w')",)), 2), r"__builtin__\.eval"),
    "exec": (pickle.dumps(Reduced(exec, ("open('here', 'w')",)), 4), r"builtins\.exec"),
    "a dotted name": (opcodes(b"\x80\x04", text("collections"), text("OrderedDict.fromkeys"),
                              b"\x93"), r"collections\.OrderedDict\.fromkeys"),
    "OBJ": (opcodes(b"(", SYSTEM, COMMAND, b"o"), r"os\.system"),
    "INST": (opcodes(b"(", COMMAND, b"ios\nsystem\n"), r"os\.system"),
    "NEWOBJ": (opcodes(SYSTEM, b")\x81"), r"os\.system"),
    "NEWOBJ of an allowed name": (opcodes(name(REBUILD), b")\x81"), "damaged"),
    "a registered code": (opcodes(b"\x80\x02\x82\x01"), "os.mkdir"),
    "a buffer elsewhere": (opcodes(b"\x80\x05\x97"), "buffer"),
    "a name in several lines": (opcodes(b"\x80\x04", text("os"), text("sys\ntem"), b"\x93"),
                                r"os\.sys\\ntem"),
    "a name without end": (opcodes(b"\x80\x04", text("os"), text("x" * 9999), b"\x93"), "x{77}")}


@pytest.mark.parametrize("content, says", HOSTILE.values(), ids=HOSTILE)
def test_what_a_hostile_pickle_wants_is_named_and_not_done(content, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copyreg.add_extension("os", "mkdir", 1)
    try:
        assert re.search(says, refusal(FormatError, unpickle, content))
    finally:
        copyreg.remove_extension("os", "mkdir", 1)
    assert not list(tmp_path.iterdir())


WHOLE = pickle.dumps(DATA, 4)
DAMAGED = [b"", b".", b"N", b"t.", b"h\0.", b"\xff.", b"]K\1s.", b"}(K\1u.", b")Na.", b"}]Ns.",
           opcodes(text("os.system"), b")R"), opcodes(ORDERED, b"NR"),
           opcodes(ORDERED, b"]\x85RNNs")[:-2], b"X\xff\xff\xff\x7fab.", b"\x8b\xff\xff\xff\xff.",
           b"L" + b"9" * 5000 + b"L\n.", b"K\1K\1\x93.", *(WHOLE[:n] for n in range(len(WHOLE))),
           opcodes(b"\x80\x04\x95", struct.pack("<Q", 10 ** 18), b"N")[:-2],
           opcodes(b"\x80\x04\x8d", struct.pack("<Q", 10 ** 18), b"N"), bytes(LARGEST + 1),
           opcodes(b"\x80\x05\x96", struct.pack("<Q", 10 ** 12), b"N")]


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: str(content[:20]))
def test_a_damaged_pickle_has_one_line(content):
    assert re.search("its pickle (is damaged|has more than 2,097,152 bytes)",
                     refusal(FormatError, unpickle, content))


# Tensors in a zip

def zipped(members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return file.getvalue()


def members(tensor=rebuilt(), storage=NUMBERS.tobytes(), **others):
    return {"x/data.pkl": b"\x80\x02" + tensor + b".", "x/data/0": storage,
            **{f"x/{name}": content for name, content in others.items()}}


@pytest.fixture
def opened(tmp_path):
    def opened(content):
        if isinstance(content, dict):
            content = zipped(content)
        (tmp_path / "file.pt").write_bytes(content)
        return TorchFile(tmp_path / "file.pt")
    return opened


def array(file):
    return file.array(file.content)


@pytest.mark.parametrize("part", ["[:]", "[1:, ::2]", ".T", "[2:3]", "[:, 3]", "[2, 1]", "[::2].T"])
def test_a_view_of_a_storage_has_its_numbers(part, opened):
    whole = NUMBERS.reshape(3, 4)
    view = np.asarray(eval(f"whole{part}"))
    offset = (view.ctypes.data - whole.ctypes.data) // 4 if view.ndim else 9
    found = array(opened(members(rebuilt(persistent(), offset, view.shape,
                                         [step // 4 for step in view.strides]))))
    assert np.array_equal(found, view) and found.shape == view.shape
    assert found.dtype == np.float32 and found.flags.c_contiguous


@pytest.mark.parametrize("kind, stored, more", [
    ("Half", NUMBERS.astype("<f2"), {}), ("Double", NUMBERS.astype("<f8"), {}),
    ("BFloat16", (NUMBERS.view("<u4") >> 16).astype("<u2"), {}),
    ("Float", NUMBERS.astype(">f4"), {"byteorder": b"big"})])
def test_numbers_of_another_precision_or_byte_order_become_float32(kind, stored, more, opened):
    tensor = rebuilt(persistent(kind=f"torch.{kind}Storage"))
    found = array(opened(members(tensor, stored.tobytes(), **more)))
    assert found.dtype == np.float32 and np.array_equal(found, NUMBERS.reshape(3, 4))


LYING = {
    "strides beyond the storage": rebuilt(strides=(4, 2)),
    "more numbers than the storage": rebuilt(shape=(10 ** 6, 10 ** 6), strides=(0, 0)),
    "a negative size": rebuilt(shape=(-3, 4)),
    "a negative stride": rebuilt(offset=10, strides=(-4, -1)),
    "a negative offset": rebuilt(offset=-1),
    "one stride of two": rebuilt(strides=(1,)),
    "a storage that is not there": rebuilt(persistent(key="1")),
    "a storage outside": rebuilt(persistent(key="../data.pkl"))}


@pytest.mark.parametrize("tensor", LYING.values(), ids=LYING)
def test_a_tensor_that_lies_is_refused(tensor, opened):
    file = opened(members(tensor))
    with pytest.raises((FormatError, TypeError, ValueError)):
        array(file)


@pytest.mark.parametrize("content, says", [
    (b"\x80\x02}.", "not a zip"), (zipped(members())[:-9], "not a zip"),
    (zipped({"x/data.pkl": b"N.", "x/y/data.pkl": b"N."}), "too many values"),
    (zipped(members(storage=bytes(10 ** 6)), zipfile.ZIP_DEFLATED), "claim more bytes"),
    (zipped({"x/data.pkl": bytes(1 << 21) + b"."}), "more than 2,097,152 bytes"),
    (members(rebuilt(persistent(kind="os.FloatStorage"))), "os.FloatStorage"),
    *((members(rebuilt(key)), "is damaged or hostile")
      for key in (persistent(more=b"N"), text("storage") + b"Q"))], ids=range(8))
def test_a_file_that_is_not_of_torch_save_is_refused(content, says, opened):
    assert says in refusal(FormatError, opened, content)


def test_members_that_share_their_bytes_claim_more_than_the_file_has(opened):
    content = bytearray(zipped(members() | {f"x/data/{i}": bytes(4000) for i in range(1, 5)}))
    first, second = (content.index(b"PK\3\4", content.index(b"x/data/%d" % i)) for i in (0, 1))
    for i in range(2, 5):       # each begins where data/1 does
        at = content.rindex(b"x/data/%dPK" % i)
        content[at - 4:at] = struct.pack("<I", first)
    directory = content[content.index(b"PK\1\2"):]
    directory[-6:-2] = struct.pack("<I", second)
    assert "claim more bytes" in refusal(FormatError, opened, bytes(content[:second] + directory))


def test_numbers_that_do_not_have_their_checksum_are_refused(opened):
    whole = zipped(members())
    at = whole.index(NUMBERS.tobytes())
    file = opened(whole[:at] + b"\x55" + whole[at + 1:])
    assert "data/0 is damaged" in refusal(FormatError, array, file)


@pytest.mark.needs("interop")
def test_all_that_torch_saves_comes_out(tmp_path):
    import torch
    base = torch.randn(5, 7)
    tensors = {"base": base, "view": base[1:, ::2], "turned": base.T, "row": base[3],
               "number": torch.tensor(2.5), "half": base.half(), "brief": base.bfloat16(),
               "double": base.double(), "repeated": base[:1].expand(1, 7)}
    layer = torch.nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(2)).sum().backward()
    optimizer.step()
    others = {"optimizer": optimizer.state_dict(), "none": None, "long": torch.arange(3),
              "scalar": np.float32(0.5), "size": base.shape, "device": base.device,
              "empty": torch.empty(0, 3)}
    torch.save({"tensors": tensors, "others": others}, tmp_path / "file.pt")
    file = TorchFile(tmp_path / "file.pt")
    assert list(file.content["others"]) == list(others)
    found = file.content["tensors"]
    for key, tensor in tensors.items():
        assert np.array_equal(file.array(found[key]), tensor.detach().float().numpy()), key
    assert found["base"].storage == found["view"].storage
