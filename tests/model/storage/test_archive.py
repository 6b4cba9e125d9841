"""A sealed .npz: what comes back is what was written, and nothing is taken up that a file claims
beyond what it holds."""
import functools
import hashlib
import io
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from model import archive
from model.archive import ArchiveError

ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b/c": np.array("é\n漢"),
          "d": np.array(7), "e": np.array([1, 2], np.uint32)}


def written(arrays):
    file = io.BytesIO()
    archive.write(file, arrays)
    return file.getvalue()


def read(content):
    return archive.read(io.BytesIO(content))


def sealed(members, **options):
    """A sealed zip of (name, content) pairs."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as found:
        for name, content in members:
            found.writestr(zipfile.ZipInfo(name), content, options.get("compression"))
    content = file.getvalue()[:-2] + archive.SEALED
    return content + hashlib.sha256(content).hexdigest().encode()


def member(header, body=b""):
    """An array as np.save writes it, but for what its header says."""
    header = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + body


def claim(shape, dtype="<f4"):
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"


def refusal(content):
    with pytest.raises(ArchiveError) as caught:
        read(content)
    return str(caught.value)


@pytest.mark.parametrize("a", [
    np.zeros((2, 0, 3)), np.float64(0.1), np.arange(3, dtype=">i2"), np.array(""),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array([["ab", "c"]]),
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[:, ::2]], ids=repr)
def test_an_array_of_any_shape_order_and_plain_dtype_comes_back(a):
    found = read(written({"a": a}))
    assert found["a"].shape == np.shape(a)
    assert np.array_equal(found["a"], a) and found["a"].dtype.isnative
    assert found["a"].flags.writeable


def test_numpy_reads_the_file_too():
    with np.load(io.BytesIO(written(ARRAYS)), allow_pickle=False) as file:
        assert file.files == list(ARRAYS)
        assert all(np.array_equal(file[name], a) for name, a in ARRAYS.items())


def test_arrays_are_made_one_at_a_time_to_be_written_and_to_be_read(tmp_path):
    made = []

    def ones(i):
        made.append(i)
        return np.full(100_000, i, np.float32)
    lazy = archive.Lazy({f"{i}": functools.partial(ones, i) for i in range(9)})
    assert "3" in lazy and "9" not in lazy and len(lazy) == 9 and not made
    tracemalloc.start()
    try:
        with open(tmp_path / "a.npz", "w+b") as file:
            archive.write(file, lazy)
        found = archive.opened(tmp_path / "a.npz")
        assert made == [*range(9)] and list(found) == list(lazy)
        assert all((found[name] == lazy[name]).all() for name in lazy)
        assert tracemalloc.get_traced_memory()[1] < 6 * 400_000
    finally:
        tracemalloc.stop()


def test_an_opened_file_is_refused_at_once_where_its_bytes_have_changed(tmp_path):
    path, whole = tmp_path / "a.npz", written(ARRAYS)
    for place in range(0, len(whole), 50):
        spoilt = bytearray(whole)
        spoilt[place] ^= 0xff
        path.write_bytes(spoilt)
        with pytest.raises(ArchiveError):
            archive.opened(path)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_file_that_is_replaced_or_written_after_it_was_opened_is_refused(tmp_path, replaced):
    path, other = tmp_path / "a.npz", written(ARRAYS | {"a": ARRAYS["a"] + 1})
    path.write_bytes(written(ARRAYS))
    found = archive.opened(path)
    assert np.array_equal(found["a"], ARRAYS["a"])
    if replaced:
        (tmp_path / "b.npz").write_bytes(other)
        os.replace(tmp_path / "b.npz", path)
    else:
        path.write_bytes(other)
        os.utime(path, (0, 0))          # which the clock may be too coarse to change
    with pytest.raises(ArchiveError, match=r"a.npz has changed while it was read; read it again$"):
        found["a"]


def test_a_file_of_numpy_alone_has_no_seal_and_is_refused():
    file = io.BytesIO()
    np.savez(file, **ARRAYS)
    assert refusal(file.getvalue()).startswith("it does not end with a seal, so it is cut short")


def test_each_changed_byte_and_each_cut_is_noticed():
    whole = written(ARRAYS)
    for place in range(len(whole)):
        spoilt = bytearray(whole)
        spoilt[place] ^= 0xff
        refusal(bytes(spoilt))
        refusal(whole[:place])


BODY = np.zeros(4, np.float32).tobytes()
HOSTILE = {
    "10^12 elements": (member(claim("(1000000000000,)"), BODY), "another size"),
    "10^30 elements": (member(claim(f"({10 ** 30},)"), BODY), "of a kind"),
    "sizes whose product overflows": (member(claim(f"({2 ** 32}, {2 ** 32})"), BODY),
                                      "another size"),
    "10^12 elements of no bytes": (member(claim("(1000000000000,)", "<U0")), "no .npz"),
    "fewer elements than bytes": (member(claim("(3,)"), BODY), "another size"),
    "a negative size": (member(claim("(-4,)"), BODY), "of a kind"),
    "65 axes": (member(claim("(" + "1, " * 65 + ")")[:-1]), "of a kind"),
    "objects": (member(claim("(1,)", "|O"), b"cos\nsystem\n(S'true'\ntR."), "of a kind"),
    "fields": (member("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", BODY),
               "of a kind"),
    "code": (member("{'descr': '<f4', 'fortran_order': False, 'shape': (print(1),), }"),
             "of a kind"),
    "a nest": (member("(" * 90), "of a kind"),
    "no such dtype": (member(claim("(4,)", "<f3"), BODY), "no .npz"),
    "another version": (b"\x93NUMPY\2\0" + member(claim("(4,)"), BODY)[8:], "of a kind"),
    "no characters": (member(claim("()", "<U2"), b"\0\0\x11\0" * 2), "no character"),
    "no header": (b"\x93NUMPY\1\0\xff\xff", "of a kind"),
    "nothing": (b"", "of a kind")}


@pytest.mark.parametrize("content,why", HOSTILE.values(), ids=HOSTILE)
def test_a_member_that_is_no_plain_array_is_refused_before_memory_is_taken(content, why):
    file = sealed([("a.npy", content)])
    tracemalloc.start()
    try:
        assert why in refusal(file)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_bomb_is_refused_and_not_unpacked():
    bomb = sealed([("a.npy", member(claim("(25000000,)"), bytes(100_000_000)))],
                  compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 200_000
    tracemalloc.start()
    try:
        assert refusal(bomb) == "it is compressed"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_members_that_share_their_bytes_are_refused():
    """As in a bomb without compression: 1,000 names for one megabyte."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as found:
        found.writestr("a.npy", member(claim("(250000,)"), bytes(1_000_000)))
        first = found.infolist()[0]
        found.filelist += [first] * 999
    content = file.getvalue()[:-2] + archive.SEALED
    content += hashlib.sha256(content).hexdigest().encode()
    assert refusal(content) == "its arrays claim more bytes than it has"


def test_a_member_that_begins_too_late_in_the_file_is_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as found:
        found.writestr("a.npy", member(claim("(100,)"), bytes(400)))
        found.filelist[0].header_offset += 200
    content = file.getvalue()[:-2] + archive.SEALED
    assert "another size" in refusal(content + hashlib.sha256(content).hexdigest().encode())


def test_two_members_of_one_name_are_refused():
    with pytest.warns(UserWarning, match="Duplicate name"):
        file = sealed([("a.npy", member(claim("(4,)"), BODY))] * 2)
    assert refusal(file) == "two of its arrays have one name"
    assert "one name" in refusal(sealed([("a", b""), ("a.npy", b"")]))


def test_a_table_of_many_members_takes_no_more_memory_than_it_justifies():
    file = sealed([(f"{i}", b"") for i in range(5_000)])
    tracemalloc.start()
    try:
        refusal(file)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(file)
    finally:
        tracemalloc.stop()
