"""safetensors files: what is written comes back, and what is damaged is refused in a line before
any number is read."""
import json

import numpy as np
import pytest

from model.convert import safetensors
from model.convert.model_file import FormatError
from tests.kit import memory, refusal
from tests.model.convert.safetensors_files import CONFIG, SIZES, TOKENIZER, written

pytestmark = pytest.mark.needs("convert")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_what_is_written_comes_back_to_the_bit_here_and_in_the_library(path):
    from safetensors.numpy import load_file
    found, back = written(path), safetensors.read(path)
    assert back.kind == "safetensors file" and back.config == CONFIG
    assert back.tokenizer.vocabulary == TOKENIZER.vocabulary
    assert list(back.weights) == list(found.weights)
    theirs = load_file(path)
    assert theirs.keys() == found.weights.keys()
    for name, a in found.weights.items():
        assert back.weights[name].tobytes() == theirs[name].tobytes() == a.tobytes()
    assert int.from_bytes(path.read_bytes()[:8], "little") % 4 == 0      # where numbers start


def test_numbers_of_16_bits_are_read_as_those_of_32_that_they_are(path):
    numbers = np.array([[0.5, -3, 1 + 2 ** -7], [np.inf, 0, -0.0]], np.float32)
    half = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    store(path, {"f": ("F16", numbers.astype(np.float16)), "b": ("BF16", half),
                 "x": ("F32", numbers)})
    tensors, _ = safetensors.open_tensors(path)
    for name in "fbx":
        a = tensors[name].read()
        assert a.dtype == np.float32 and a.tobytes() == numbers.tobytes(), name


def store(path, tensors, metadata=None):
    """A sound file of any dtypes, written without the library."""
    header, body = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, a) in tensors.items():
        header[name] = {"dtype": dtype, "shape": a.shape,
                        "data_offsets": [len(body), len(body) + a.nbytes]}
        body += a.tobytes()
    raw(path, json.dumps(header), body)


def raw(path, header, body=b"", length=None):
    length = len(header) if length is None else length
    path.write_bytes(length.to_bytes(8, "little") + header.encode() + body)


def entry(begin, end, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def refused(path):
    """The line that refuses a file before its numbers take memory."""
    with memory() as taken:
        said = refusal(FormatError, safetensors.read, path)
    assert str(path) in said and taken[0] < 3_000_000
    return said


A = json.dumps(entry(0, 8))
DAMAGED = {
    "nothing": ("", b"", 0),
    "a header of 10^18 bytes": ("{}", b"", 10 ** 18),
    "no JSON": ('{"a": ', b""),
    "no object": ("[]", b""),
    "overlapping tensors": (json.dumps({"a": entry(0, 8), "b": entry(4, 12)}), bytes(12)),
    "a gap": (json.dumps({"a": entry(0, 8), "b": entry(12, 20)}), bytes(20)),
    "fewer bytes than the header says": (json.dumps({"a": entry(0, 8)}), bytes(7)),
    "more bytes": (json.dumps({"a": entry(0, 8)}), bytes(9)),
    "10^12 numbers in 10^12 bytes": (json.dumps({"a": entry(0, 4 * 10 ** 12, [10 ** 12])}),
                                     bytes(8)),
    "sizes whose product overflows": (json.dumps({"a": entry(0, 8, [2 ** 62, 8])}), bytes(8)),
    "a negative size": (json.dumps({"a": entry(0, 8, [-2])}), bytes(8)),
    "an unknown dtype": (json.dumps({"a": entry(0, 8, dtype="F33")}), bytes(8)),
    "one name twice": (f'{{"a": {A}, "a": {A}}}', bytes(8)),
    "a size twice": (f'{{"a": {A[:-1]}, "shape": [2]}}}}', bytes(8))}


@pytest.mark.parametrize("parts", [*DAMAGED.values(), b"", b"PK\3\4" + bytes(30), bytes(5000)])
def test_a_damaged_header_is_refused_in_a_line_and_no_number_is_read(path, parts):
    path.write_bytes(parts) if isinstance(parts, bytes) else raw(path, *parts)
    assert "is damaged or not a safetensors file" in refused(path)


@pytest.mark.parametrize("changed, says", [
    ({"norm.weight": None}, "lacks norm.weight"),
    ({"more": np.zeros(4, np.float32)}, "has more, for which its configuration has no place"),
    ({"norm.weight": np.zeros(3, np.float32)}, "of the shape [3], and its configuration asks for"),
    ({"norm.weight": np.zeros(4)}, "norm.weight of F64, and only F32, F16, BF16 can be read"),
    ({"config": None}, "no configuration beside them; give the folder that it is in"),
    ({"config": json.dumps(SIZES | {"n_layer": 10 ** 6})}, "claims 1000000 layers, and holds"),
    *((changed, "has metadata that python -m model.convert does not write") for changed in (
        {"config": json.dumps(SIZES | {"vocab_size": 9})}, {"config": "[" * 100_000},
        {"config": "{"}, {"config": '{"vocab_size": 8, "depth": 3}'},
        {"vocabulary": '"aa"'}, {"vocabulary": "3"}))], ids=lambda value: str(value)[:40])
def test_tensors_and_metadata_that_are_not_of_one_model_are_named(path, changed, says):
    written(path)
    stored, metadata = safetensors.open_tensors(path)
    arrays = {name: tensor.read() for name, tensor in stored.items()} | {"": None}
    for name, value in changed.items():
        (metadata if name in ("config", "vocabulary") else arrays)[name] = value
    store(path, {name: ("F64" if a.dtype == np.float64 else "F32", a)
                 for name, a in arrays.items() if a is not None},
          {name: value for name, value in metadata.items() if value is not None})
    assert says in refused(path)


def test_a_file_that_has_become_shorter_is_named(path):
    written(path)
    weights = safetensors.read(path).weights
    path.write_bytes(path.read_bytes()[:-4])
    assert f"{path} has become shorter while it was read" in refusal(FormatError, dict, weights)
