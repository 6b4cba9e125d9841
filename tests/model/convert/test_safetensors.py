"""safetensors files: what is written comes back, and what is damaged is refused in a line before
anything is taken up."""
import json
import tracemalloc

import numpy as np
import pytest

from model import CharTokenizer, Transformer, TransformerConfig
from model.convert import safetensors
from model.convert.found import FormatError, Found

pytestmark = pytest.mark.needs("convert")

TOKENIZER = CharTokenizer.of("b\n'a\0é漢🙂")
CONFIG = TransformerConfig(TOKENIZER.vocab_size, block_size=5, n_layer=2, n_head=2, n_embd=4)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def written(path, config=CONFIG):
    found = Found("checkpoint", config, Transformer(config).state_dict(), TOKENIZER)
    safetensors.write(path, found)
    return found


def test_what_is_written_comes_back_to_the_bit(path):
    found = written(path)
    back = safetensors.read(path)
    assert back.kind == "safetensors file" and back.config == CONFIG
    assert back.tokenizer.vocabulary == TOKENIZER.vocabulary
    assert list(back.weights) == list(found.weights)
    assert all(back.weights[name].tobytes() == a.tobytes() for name, a in found.weights.items())


def test_the_library_reads_what_is_written(path):
    from safetensors.numpy import load_file
    found, read = written(path), load_file(path)
    assert read.keys() == found.weights.keys()
    assert all(np.array_equal(read[name], a) for name, a in found.weights.items())
    assert all(tensor.begin % 4 == 0 for tensor in safetensors.opened(path)[0].values())


def test_numbers_of_16_bits_are_read_as_those_of_32_that_they_are(path):
    numbers = np.array([[0.5, -3, 1 + 2 ** -7], [np.inf, 0, -0.0]], np.float32)
    half = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    store(path, {"f": ("F16", numbers.astype(np.float16)), "b": ("BF16", half),
                 "x": ("F32", numbers)})
    tensors, _ = safetensors.opened(path)
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
    header = header.encode()
    length = len(header) if length is None else length
    path.write_bytes(length.to_bytes(8, "little") + header + body)


def entry(begin, end, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def refusal(path):
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as caught:
            safetensors.read(path)
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


A, B = json.dumps(entry(0, 8)), json.dumps(entry(8, 16))
DAMAGED = {
    "nothing": ("", b"", 0),
    "a header that is longer than the file": ("{}", b"", 10 ** 6),
    "a header of 10^18 bytes": ("{}", b"", 10 ** 18),
    "no JSON": ('{"a": ', b""),
    "no object": ("[]", b""),
    "overlapping tensors": (json.dumps({"a": entry(0, 8), "b": entry(4, 12)}), bytes(12)),
    "a gap": (json.dumps({"a": entry(0, 8), "b": entry(12, 20)}), bytes(20)),
    "fewer bytes than the header says": (json.dumps({"a": entry(0, 8)}), bytes(7)),
    "more bytes": (json.dumps({"a": entry(0, 8)}), bytes(9)),
    "10^12 numbers in 8 bytes": (json.dumps({"a": entry(0, 8, [10 ** 12])}), bytes(8)),
    "10^12 numbers in 10^12 bytes": (json.dumps({"a": entry(0, 4 * 10 ** 12, [10 ** 12])}),
                                     bytes(8)),
    "sizes whose product overflows": (json.dumps({"a": entry(0, 8, [2 ** 62, 8])}), bytes(8)),
    "a negative size": (json.dumps({"a": entry(0, 8, [-2])}), bytes(8)),
    "an unknown dtype": (json.dumps({"a": entry(0, 8, dtype="F33")}), bytes(8)),
    "one name twice, for the same bytes": (f'{{"a": {A}, "a": {A}}}', bytes(8)),
    "one name twice, for other bytes": (f'{{"a": {A}, "a": {B}}}', bytes(16)),
    "a size twice": (f'{{"a": {A[:-1]}, "shape": [2]}}}}', bytes(8))}


@pytest.mark.parametrize("parts", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_header_is_refused_in_a_line_and_nothing_is_taken_up(path, parts):
    raw(path, *parts)
    said = refusal(path)
    assert "is no safetensors file, or a damaged one" in said or "twice in its header" in said


def test_a_file_of_another_kind_is_refused(path):
    for content in (b"", b"PK\3\4" + bytes(30), bytes(5000), b"\n" * 100):
        path.write_bytes(content)
        assert "is no safetensors file, or a damaged one" in refusal(path)


def test_each_cut_is_noticed(path):
    written(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        refusal(path)


def test_a_file_without_our_configuration_leads_to_its_folder(path):
    store(path, {"a": ("F32", np.zeros(2, np.float32))}, {"format": "pt"})
    assert "no configuration beside them; give the folder that it is in" in refusal(path)


def metadata_of(path):
    return safetensors.opened(path)[1]


def arrays_of(path):
    return {name: ("F32", tensor.read()) for name, tensor in safetensors.opened(path)[0].items()}


def test_a_tensor_that_is_missing_or_too_much_or_of_another_shape_is_named(path):
    written(path)
    arrays, metadata = arrays_of(path), metadata_of(path)
    store(path, {name: a for name, a in arrays.items() if name != "norm.weight"}, metadata)
    assert "lacks norm.weight; " in refusal(path)
    store(path, arrays | {"more": arrays["norm.weight"]}, metadata)
    assert "has more, for which a model of its configuration has no place; " in refusal(path)
    store(path, arrays | {"norm.weight": ("F32", np.zeros(3, np.float32))}, metadata)
    assert "norm.weight of the shape [3], and its configuration asks for [4]; " in refusal(path)
    store(path, arrays | {"norm.weight": ("F64", np.zeros(4))}, metadata)
    assert "norm.weight of F64, and weights are read in F32, F16, BF16" in refusal(path)


def test_more_tensors_than_are_read_are_refused_before_the_library_looks(path, monkeypatch):
    monkeypatch.setattr(safetensors, "MOST", 2)
    for count, says in ((2, "no configuration beside them"), (3, "more than the 2 tensors")):
        raw(path, json.dumps({str(i): entry(8 * i, 8 * i + 8) for i in range(count)}),
            bytes(8 * count))
        assert says in refusal(path)


@pytest.mark.parametrize("changed", [
    {"config": "{"}, {"config": "[]"}, {"config": '{"vocab_size": 8, "n_layer": 0}'},
    {"config": '{"vocab_size": 9, "block_size": 5, "n_layer": 2, "n_head": 2, "n_embd": 4}'},
    {"config": '{"vocab_size": 8, "depth": 3}'}, {"vocabulary": '"aa"'}, {"vocabulary": "3"},
    {"config": "[" * 100_000}], ids=lambda changed: str(changed)[:40])
def test_metadata_that_describe_no_model_are_refused(path, changed):
    written(path)
    store(path, arrays_of(path), metadata_of(path) | changed)
    assert "has metadata that python -m model.convert does not write" in refusal(path)


def test_a_claim_of_a_million_layers_takes_no_memory(path):
    written(path)
    metadata = metadata_of(path)
    config = json.loads(metadata["config"]) | {"n_layer": 10 ** 6}
    store(path, arrays_of(path), metadata | {"config": json.dumps(config)})
    assert "lacks blocks.2." in refusal(path)


def test_without_the_library_it_says_what_to_install(path, monkeypatch):
    written(path)
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(FormatError, match=r"python -m pip install -e '.\[convert\]'"):
        safetensors.read(path)


def test_a_file_that_has_become_shorter_is_named(path):
    written(path)
    weights = safetensors.read(path).weights
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FormatError, match="model.safetensors has become shorter while it was read"):
        dict(weights)
