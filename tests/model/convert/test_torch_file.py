"""Files of torch.save: tensors of every kind come out, and a file that lies is refused."""
import io
import pathlib
import struct
import zipfile

import numpy as np
import pytest

from model.convert.found import FormatError
from model.convert.torch_file import TorchFile

NUMBERS = np.arange(12, dtype="<f4")


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


def rebuilt(storage=persistent(), offset=0, shape=(3, 4), strides=(4, 1),
            by="torch._utils._rebuild_tensor_v2"):
    """The pickle of a tensor, as torch.save writes it."""
    return (name(by) + b"(" + storage + number(offset) + numbers(*shape) + numbers(*strides)
            + b"\x89" + name("collections.OrderedDict") + b")RtR")


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
    return file.array(file.view(file.content))


@pytest.mark.parametrize("part", ["[:]", "[1:, ::2]", ".T", "[2:3]", "[:, 3]", "[2, 1]", "[::2].T"])
def test_a_view_of_a_storage_has_its_numbers(part, opened):
    whole = NUMBERS.reshape(3, 4)
    view = np.asarray(eval(f"whole{part}"))
    offset = (view.ctypes.data - whole.ctypes.data) // 4 if view.ndim else 9
    found = array(opened(members(rebuilt(persistent(), offset, view.shape,
                                         [step // 4 for step in view.strides]))))
    assert np.array_equal(found, view) and found.shape == view.shape
    assert found.dtype == np.float32 and found.flags.c_contiguous


@pytest.mark.parametrize("kind, stored", [
    ("Half", NUMBERS.astype("<f2")), ("Double", NUMBERS.astype("<f8")),
    ("BFloat16", (NUMBERS.view("<u4") >> 16).astype("<u2"))])
def test_numbers_of_another_precision_become_float32(kind, stored, opened):
    tensor = rebuilt(persistent(kind=f"torch.{kind}Storage"))
    found = array(opened(members(tensor, stored.tobytes())))
    assert found.dtype == np.float32 and np.array_equal(found, NUMBERS.reshape(3, 4))


def test_numbers_of_a_machine_of_the_other_byte_order_come_out(opened):
    found = array(opened(members(storage=NUMBERS.astype(">f4").tobytes(), byteorder=b"big")))
    assert np.array_equal(found, NUMBERS.reshape(3, 4))


def test_a_stride_along_one_number_does_not_matter(opened):
    tensor = rebuilt(shape=(1, 4), strides=(10 ** 30, 1))
    assert np.array_equal(array(opened(members(tensor))), NUMBERS[None, :4])


LYING = {
    "strides beyond the storage": (rebuilt(strides=(4, 2)), "beyond its storage"),
    "an offset beyond the storage": (rebuilt(offset=1), "beyond its storage"),
    "more numbers than the storage": (rebuilt(shape=(10 ** 6, 10 ** 6), strides=(0, 0)),
                                      "beyond its storage"),
    "no numbers": (rebuilt(shape=(0, 10 ** 30)), "is empty"),
    "a negative size": (rebuilt(shape=(-3, 4)), "whole numbers from 0"),
    "a negative stride": (rebuilt(offset=11, strides=(-4, -1)), "whole numbers from 0"),
    "a negative offset": (rebuilt(offset=-1), "whole numbers from 0"),
    "one stride of two": (rebuilt(strides=(1,)), "number of axes"),
    "three axes": (rebuilt(shape=(3, 2, 2), strides=(4, 2, 1)), "number of axes"),
    "a storage shorter than it claims": (rebuilt(persistent(count=13)), "has 48 bytes"),
    "a storage longer than it claims": (rebuilt(persistent(count=11)), "has 48 bytes"),
    "a storage of 10^30 numbers": (rebuilt(persistent(count=10 ** 30)), "has 48 bytes"),
    "a storage of -12 numbers": (rebuilt(persistent(count=-12)), "whole numbers from 0"),
    "a storage that is not there": (rebuilt(persistent(key="1")), "has 0 bytes"),
    "a storage outside": (rebuilt(persistent(key="../data.pkl")), "has 0 bytes"),
    "the same from the root": (rebuilt(persistent(key="/etc/passwd")), "has 0 bytes"),
    "a persistent id of another kind": (rebuilt(persistent(word="module")), "no tensor with"),
    "a persistent id with more": (rebuilt(persistent(more=b"N")), "no tensor with"),
    "a persistent id that is a text": (rebuilt(text("storage") + b"Q"), "no tensor with"),
    "numbers of no floating point": (rebuilt(persistent(kind="torch.IntStorage")), "IntStorage"),
    "a size as the storage's class": (rebuilt(persistent(kind="torch.Size")), "torch.Size"),
    "a list": (b"]", "no tensor with"),
    "another call": (name("torch.Size") + b")R", "no tensor with"),
    "a parameter of nothing": (name("torch._utils._rebuild_parameter") + b")R", "no tensor with"),
}


@pytest.mark.parametrize("case", LYING)
def test_a_tensor_that_lies_is_refused_before_a_number_is_read(case, opened, monkeypatch):
    tensor, why = LYING[case]
    file = opened(members(tensor))
    monkeypatch.setattr(np, "frombuffer", None)
    with pytest.raises(FormatError, match=why):
        array(file)


@pytest.mark.parametrize("content, why", [
    (b"", "not the zip"), (b"\x80\x02}.", "not the zip"), (zipped(members())[:-9], "not the zip"),
    (zipped({"x/other": b""}), "0 members data.pkl"),
    (zipped({"x/data.pkl": b"N.", "x/y/data.pkl": b"N."}), "2 members data.pkl"),
    (zipped(members(), zipfile.ZIP_DEFLATED), "compressed"),
    (zipped({"x/data.pkl": bytes(1 << 21) + b"."}), "more than the 2,097,152 bytes"),
    (zipped(members(rebuilt(by="os.system"))), "os.system"),
    (zipped(members(rebuilt(persistent(kind="os.FloatStorage")))), "os.FloatStorage"),
], ids=range(9))
def test_a_file_that_is_not_of_torch_save_is_refused(content, why, opened):
    with pytest.raises(FormatError, match=why):
        opened(content)


def test_two_members_of_one_name_are_refused(opened):
    with pytest.warns(UserWarning, match="Duplicate"), io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for member, content in [*members().items(), ("x/data/0", b"")]:
                archive.writestr(member, content)
        twice = file.getvalue()
    with pytest.raises(FormatError, match="two members"):
        opened(twice)


def test_members_that_share_their_bytes_claim_more_than_the_file_has(opened):
    content = bytearray(zipped(members() | {f"x/data/{i}": bytes(4000) for i in range(1, 5)}))
    first, second = (content.index(b"PK\3\4", content.index(b"x/data/%d" % i)) for i in (0, 1))
    for i in range(2, 5):       # each begins where data/1 does
        at = content.rindex(b"x/data/%dPK" % i)
        content[at - 4:at] = struct.pack("<I", first)
    directory = content[content.index(b"PK\1\2"):]
    directory[-6:-2] = struct.pack("<I", second)
    with pytest.raises(FormatError, match="claim more bytes"):
        opened(bytes(content[:second] + directory))


def test_numbers_that_are_not_those_that_were_written_are_refused(opened):
    content = bytearray(zipped(members()))
    content[content.index(NUMBERS.tobytes()) + 5] ^= 1
    file = opened(bytes(content))
    with pytest.raises(FormatError, match="data/0 is damaged"):
        array(file)


def test_a_file_cut_at_any_byte_is_refused(opened):
    whole = zipped(members())
    for size in range(len(whole)):
        with pytest.raises(FormatError):
            array(opened(whole[:size]))


def test_a_file_changed_in_any_byte_is_refused_or_read(opened):
    whole = zipped(members())
    for at in range(len(whole)):
        try:
            array(opened(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1:]))
        except FormatError as error:
            assert "\n" not in str(error)


def test_no_file_is_an_error_of_the_system():
    with pytest.raises(FileNotFoundError):
        TorchFile(pathlib.Path("nowhere.pt"))


@pytest.mark.needs("interop")
def test_all_that_torch_saves_comes_out(tmp_path):
    import torch
    base = torch.randn(5, 7)
    tensors = {"base": base, "view": base[1:, ::2], "turned": base.T, "row": base[3],
               "number": torch.tensor(2.5), "half": base.half(), "brief": base.bfloat16(),
               "double": base.double(), "repeated": base[:1].expand(1, 7),
               "parameter": torch.nn.Parameter(base)}
    layer = torch.nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(2)).sum().backward()
    optimizer.step()
    others = {"state": layer.state_dict(), "optimizer": optimizer.state_dict(), "none": None,
              "long": torch.arange(3), "bool": torch.ones(2, dtype=torch.bool),
              "scalar": np.float32(0.5), "scalars": [np.float64(0.5), np.int64(3)],
              "size": base.shape, "device": base.device, "empty": torch.empty(0, 3)}
    torch.save({"tensors": tensors, "others": others}, tmp_path / "file.pt")
    file = TorchFile(tmp_path / "file.pt")
    assert list(file.content["others"]) == list(others)
    for key, tensor in tensors.items():
        found = file.array(file.view(file.content["tensors"][key]))
        assert np.array_equal(found, tensor.detach().float().numpy()), key
    views = {key: file.view(file.content["tensors"][key]) for key in tensors}
    assert views["base"].key == views["view"].key == views["parameter"].key
    for key in ("empty", "long", "bool", "scalar", "none"):
        with pytest.raises(FormatError):
            file.view(file.content["others"][key])
