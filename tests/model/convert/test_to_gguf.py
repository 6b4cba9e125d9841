"""GGUF files that are written: the model comes back, a file that came from llama.cpp goes out as it
was, and llama.cpp itself computes what the engine computes."""
import dataclasses
import itertools
import json
import struct
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from data.tokenizer import CharTokenizer
from minigrad.packed import NUMBERS, kind_of, unpacked
from model import Transformer, TransformerConfig, generate, load_checkpoint, save_checkpoint
from model.convert import gguf, to_gguf
from model.convert.__main__ import main
from model.convert.tokens import TokenTokenizer, with_metadata
from model.beginning import load_initial
from tests.kit import arrays, blocks, normal, refusal, scales
from tests.model.convert.gguf_files import (F16, Q8_0, TOKENS, V, for_llama_cpp, gpt2, llama,
                                            written)
from tests.token_files import MERGES, byte_level

pytestmark = pytest.mark.needs("gguf")

Q4_1 = 3
CHARACTERS = "abcdefgh ijklm\nnopqrst\\uvwxyzäöüé漢🙂.,A\t"
SIZES = dict(vocab_size=len(CHARACTERS), block_size=96, n_layer=2, n_head=4, n_embd=32)
LLAMA = TransformerConfig(**SIZES, n_kv_head=2, position="rotary", norm="rms", activation="swiglu",
                          dropout=0.1)
UNTIED = TransformerConfig(**SIZES, position="rotary", norm="rms_gain", activation="swiglu",
                           tied=False, mlp_bias=False, n_inner=64)
GPT2 = TransformerConfig(**SIZES, activation="gelu_tanh")
BIASED = dataclasses.replace(LLAMA, bias=True, n_inner=64)
OF_MLP = dataclasses.replace(LLAMA, mlp_bias=True, norm="rms_gain")
OF_ATTENTION = dataclasses.replace(BIASED, mlp_bias=False)
QWEN2 = dataclasses.replace(UNTIED, attention_bias=True, attention_out_bias=False, mlp_bias=False)
QWEN3 = dataclasses.replace(UNTIED, head_dim=16, n_kv_head=2, qk_norm=True, qk_gain=True)
LONGER = dataclasses.replace(UNTIED, rotary_base=1e6, rotary_factor=8.0)
WIDER = dataclasses.replace(UNTIED, n_embd=48)      # no whole number of blocks of 32
EVERYTHING = {"general.name": "small",
              "tokenizer.chat_template": "{% for m in messages %}é{% endfor %}",
              "tokenizer.ggml.padding_token_id": 2, "general.tags": ["a", "b"],
              "general.quantization_version": 2, "general.file_type": 3}


@pytest.fixture(autouse=True)
def new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def saved(path, config):
    """Save a model of characters whose weights are far from uniform."""
    model = Transformer(config, seed=1)
    draw = np.random.default_rng(0)
    for name, p in model.named_parameters():
        p.data += (0.12 * draw.standard_normal(p.shape)).astype(np.float32)
    save_checkpoint(path, model, CharTokenizer.of(CHARACTERS))
    return model


def stored(kind, shape, seed):
    """Random numbers, quantised as llama.cpp does it: what `written` takes."""
    import gguf as library
    numbers = normal(*shape, seed=seed, dtype=np.float32)
    return kind, shape, library.quantize(numbers, library.GGMLQuantizationType(kind)).tobytes()


def empty(kind):
    """An empty array of the metadata, of a type with this number."""
    return struct.pack("<IIQ", 9, kind, 0)


def imported(made=llama, alignment=32, **changes):
    """Write a GGUF file of tensors of many kinds, and import it as a checkpoint."""
    if made is llama:
        changes |= {"token_embd.weight": stored(Q8_0, (V, 32), 0),
                    "blk.0.ffn_up.weight": stored(Q4_1, (64, 32), 1),
                    "blk.0.attn_q.weight": stored(Q4_1, (32, 32), 2),
                    "blk.1.ffn_up.weight": stored(F16, (64, 32), 3)}
    metadata, tensors = made(**EVERYTHING | changes)
    file = written(Path("from.gguf"), metadata, dict(reversed(tensors.items())), alignment)
    file.write_bytes(file.read_bytes() + bytes(-file.stat().st_size % alignment))
    main(["from.gguf", "out"])
    return file


def through(*names):
    """Convert from each name to the next."""
    for source, target in itertools.pairwise(names):
        main([source, target])


def stated(path):
    """The metadata of a file, as the library reads them."""
    import gguf as library
    return {key: field.contents() for key, field in library.GGUFReader(path).fields.items()}


def in_json(*path):
    """What is in a JSON file."""
    return json.loads(Path(*path).read_text("utf-8"))


@pytest.mark.parametrize("config", [LLAMA, UNTIED, GPT2, WIDER, BIASED, OF_MLP, OF_ATTENTION,
                                    QWEN2, QWEN3, LONGER])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
def test_write_stores_a_model_of_characters_that_comes_back(config, kind, capsys):
    model = saved("ckpt.npz", config)
    main(["ckpt.npz", "m.gguf", "--as", "f16", "--as", kind])
    found = gguf.read("m.gguf")
    assert found.config == config
    assert found.tokenizer.vocabulary == CHARACTERS
    most = {"f32": 0, "f16": 2 ** -11, "bf16": 2 ** -8, "q8_0": 1 / 254 + 2 ** -11}[kind]
    for name, p in model.named_parameters():
        assert np.abs(found.weights[name] - p.data).max() <= most * np.abs(p.data).max(), name
    said = capsys.readouterr()
    assert "they are the same" in said.out
    assert said.err == "warning: --as is given 2 times; the last one counts\n"


@pytest.mark.parametrize("made, changes", [
    (llama, {}), (gpt2, {}), (llama, {"output.weight": None}),
    (llama, {"general.alignment": 256, "alignment": 256}),
    (llama, {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 1}),
    (llama, {"general.languages": empty(8), "some.numbers": empty(5), "some.bytes": empty(0)}),
    (gpt2, {"tokenizer.ggml.merges": empty(8)})])
def test_write_gives_an_unchanged_file_back_byte_for_byte(made, changes):
    file = imported(made, **changes)
    main(["out", "again.gguf"])
    assert Path("again.gguf").read_bytes() == file.read_bytes()


def test_write_gives_blocks_back_that_the_library_would_make_otherwise():
    import gguf as library
    kind = library.GGMLQuantizationType.Q5_0
    a = blocks("Q5_0", 64, 1)
    a["d"] = -1         # for every number, the library takes the scale that its largest gives
    assert not np.array_equal(library.quantize(unpacked(a), kind), a.view(np.uint8))
    file = imported(**{"blk.0.ffn_gate.weight": (int(kind), (64, 32), a.tobytes())})
    main(["out", "m.gguf"])
    assert Path("m.gguf").read_bytes() == Path(file).read_bytes()


def test_write_names_a_model_of_ours_by_its_file_and_keeps_that_name():
    saved("out/ckpt.npz", LLAMA)
    main(["out", "my lantern.v2.gguf"])
    assert stated("my lantern.v2.gguf")["general.name"] == "my lantern.v2"
    main(["out", "a\udcff.gguf"])       # as Python reads the name b"a\xff.gguf"
    assert stated("a\udcff.gguf")["general.name"] == "a?"
    config = dataclasses.replace(LLAMA, vocab_size=V)
    save_checkpoint("tokens.npz", Transformer(config), TokenTokenizer(byte_level()))
    through("tokens.npz", "first.gguf", "back", "second.gguf")
    assert stated("second.gguf")["general.name"] == "first"


RECORD = {"settings": {"data": "x"}, "state": {"iteration": 100}}
IDENTITY = {"general.finetune": "8k", "general.version": "1", "general.uuid": "u",
            "general.basename": "Small", "general.author": "A. N. Other",
            "general.license": "apache-2.0", "general.url": "https://example.org"}


def trained_on(folder, **record):
    """Save the model of a folder as a run saves it."""
    model, tokenizer, *_ = load_checkpoint(f"{folder}/ckpt.npz")
    dict(model.named_parameters())["norm.weight"].data[0] += 1
    save_checkpoint("on.npz", model, tokenizer, RECORD | record)


@pytest.mark.needs("gguf", "convert")
def test_write_does_not_call_a_model_the_original_that_was_trained_further():
    file = imported(**IDENTITY)
    before = stated(file)
    trained_on("out")
    # Other files have no record of training, and keep the name.
    through("on.npz", "direct.gguf", "out2")
    through("on.npz", "copy.npz", "x.safetensors", "out3", "far.gguf")
    for name in ("direct.gguf", "far.gguf"):
        found = stated(name)
        assert found["general.name"] == "small, trained further by minigrad"
        assert before.keys() - found.keys() == {
            "general.finetune", "general.version", "general.uuid", "general.url"}
        for key in ("general.basename", "general.author", "general.license",
                    "tokenizer.chat_template"):
            assert found[key] == before[key]
    trained_on("out2")
    main(["on.npz", "twice.gguf"])
    assert stated("twice.gguf")["general.name"] == "small, trained further by minigrad"


def test_write_keeps_the_name_of_a_model_that_no_step_has_changed():
    file = imported(**IDENTITY)
    model, tokenizer, *_ = load_checkpoint("out/ckpt.npz")
    save_checkpoint("best.npz", model, tokenizer, RECORD | {"state": {"iteration": 0}})
    main(["best.npz", "m.gguf"])
    assert stated("m.gguf")["general.name"] == "small"
    assert stated("m.gguf").keys() == stated(file).keys()


@pytest.mark.parametrize("changes", [{"general.name": None}, {"general.name": 7}])
def test_write_takes_a_name_that_is_none_as_it_is(changes):
    file = imported(**changes)
    trained_on("out")
    main(["on.npz", "m.gguf"])
    assert stated("m.gguf").get("general.name") == stated(file).get("general.name")


def test_a_run_records_the_steps_by_which_a_trained_model_is_known(trained):
    assert load_checkpoint(trained / "ckpt.npz").training["state"]["iteration"] > 0


@pytest.mark.parametrize("value, types, says", [
    ([[1], [2]], [9, 9], "its some.key is an array of arrays, which llama.cpp does not read"),
    ([], [9], None)])
def test_write_names_an_array_of_arrays_and_keeps_an_empty_one_of_an_older_checkpoint(
        value, types, says):
    imported()
    model, tokenizer, *_ = load_checkpoint("out/ckpt.npz")
    metadata = tokenizer.metadata | {"keys": tokenizer.metadata["keys"]
                                     | {"some.key": [value, types]}}
    older = TokenTokenizer(with_metadata(tokenizer.library_json, metadata), 0, V)
    save_checkpoint("older.npz", model, older)
    if says:
        assert says in refusal(SystemExit, main, ["older.npz", "m.gguf"])
    else:
        main(["older.npz", "m.gguf"])
        assert stated("m.gguf")["some.key"] == []


def test_write_refuses_to_slow_rotations_of_a_class_that_llama_cpp_knows_without():
    saved("ckpt.npz", dataclasses.replace(QWEN2, rotary_base=1e6, rotary_factor=8.0))
    with pytest.raises(SystemExit, match="has rotary_factor 8.0, and llama.cpp slows no rotations "
                       "of a qwen2; convert it to a .safetensors file"):
        main(["ckpt.npz", "m.gguf"])


def test_write_refuses_a_factor_that_slows_no_channel():
    saved("ckpt.npz", dataclasses.replace(UNTIED, rotary_base=20.0, rotary_factor=8.0))
    with pytest.raises(SystemExit, match="has rotary_factor 8.0, and it slows no channel fully, "
                       "and so no GGUF file can say it; convert it to a .safetensors file"):
        main(["ckpt.npz", "m.gguf"])


@pytest.mark.parametrize("changes, says", [
    ({"norm_eps": 1e-50}, "its llama.attention.layer_norm_rms_epsilon is 0 as a number of 32 bits"),
    ({"rotary_base": 1e39}, "its llama.rope.freq_base is inf as a number of 32 bits"),
    ({"block_size": 2 ** 32}, "its llama.context_length is 4.29497e+09 as a number of 32 bits"),
    ({"rotary_base": 12345.678901, "norm_eps": 1e-5 / 3}, None)])
def test_write_refuses_settings_beyond_32_bits_and_notes_those_that_are_rounded(changes, says):
    config = dataclasses.replace(LLAMA, **changes)
    saved("ckpt.npz", config)
    if says:
        assert says in refusal(SystemExit, main, ["ckpt.npz", "m.gguf"])
    else:
        main(["ckpt.npz", "m.gguf"])
        assert gguf.read("m.gguf").config == config


def test_write_refuses_a_block_that_does_not_fit_into_the_type_of_before():
    imported(**{"llama.context_length": struct.pack("<IH", 2, 16)})
    model, tokenizer, *_ = load_checkpoint("out/ckpt.npz")
    longer = Transformer(dataclasses.replace(model.config, block_size=2 ** 16))
    longer.load_state_dict(model.state_dict())
    save_checkpoint("longer.npz", longer, tokenizer)
    said = refusal(SystemExit, main, ["longer.npz", "m.gguf"])
    assert "train with a smaller --block_size" in said
    main(["out", "m.gguf"])


def test_a_checkpoint_keeps_blocks_until_the_model_is_trained(capsys):
    """Of matrices whose tensors are of one kind."""
    parts = {f"blk.0.attn_{part}.weight": stored(Q4_1, (rows, 32), 2)
             for part, rows in dict(q=32, k=16, v=16).items()}
    file = imported(**parts, **{"blk.1.attn_q.weight": stored(Q8_0, (32, 32), 4)})
    kept = arrays("out/ckpt.npz")
    assert kept["model/blocks.0.attention.qkv.weight"].tobytes() == b"".join(
        content for _, _, content in parts.values())
    kinds = {name: kind_of(a) for name, a in kept.items() if kind_of(a)}
    assert kinds == {"model/token_embedding.weight": "Q8_0", "model/blocks.0.mlp.up.weight": "Q4_1",
                     "model/blocks.0.attention.qkv.weight": "Q4_1",
                     "model/blocks.1.mlp.up.weight": "F16"}
    main(["out", "copy.npz"])
    assert Path("copy.npz").read_bytes() == Path("out/ckpt.npz").read_bytes()
    capsys.readouterr()
    model = load_initial("out").model
    assert capsys.readouterr().out == (
        "unpacked    the weights, from F16, Q4_1, Q8_0 to float32, for training\n")
    for name, a in gguf.read(file).weights.items():
        assert np.array_equal(dict(model.named_parameters())[name].data, a), name


# What a file Q4_K_M of a small model holds: queries, keys and values differ, as those of SmolLM2
MIXED = {"token_embd": "Q6_K", "attn_q": "Q4_K", "attn_k": "Q5_0", "attn_v": "Q6_K",
         "attn_output": "Q5_K", "ffn_gate": "Q4_K", "ffn_up": "Q5_0", "ffn_down": "Q6_K"}
SIZE = {"Q5_0": 0.02, "Q4_K": 6e-4, "Q5_K": 3e-4, "Q6_K": 6e-5}     # of the scales of their blocks


def file_of_mixed_kinds(path):
    """Write a GGUF file of one layer whose matrices are in blocks of 256 and of 32."""
    import gguf as library
    shapes = {"token_embd": (V, 256), "attn_q": (256, 256), "attn_k": (128, 256),
              "attn_v": (128, 256), "attn_output": (256, 256), "ffn_gate": (256, 256),
              "ffn_up": (256, 256), "ffn_down": (256, 256)}
    tensors = {}
    for seed, (name, kind) in enumerate(MIXED.items()):
        P, K = shapes[name]
        a = blocks(kind, P, K // NUMBERS[kind], seed)
        for part in scales(a.dtype):
            a[part] = SIZE[kind] * normal(*a[part].shape, seed=seed)
        if name == "token_embd":        # zeros: only tokens of printable ASCII are ever likely
            a["d"][[*range(34), *range(128, V)]] = 0
        where = name if name == "token_embd" else f"blk.0.{name}"
        tensors[f"{where}.weight"] = int(library.GGMLQuantizationType[kind]), (P, K), a.tobytes()
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        tensors[f"{name}.weight"] = np.ones(256, np.float32)
    sizes = {"block_count": 1, "embedding_length": 256, "feed_forward_length": 256,
             "rope.dimension_count": 64, "context_length": 96}
    metadata, _ = llama(**{f"llama.{key}": value for key, value in sizes.items()})
    return written(path, metadata, tensors)


def test_a_file_of_mixed_kinds_is_read_sampled_and_written_byte_for_byte():
    import gguf as library
    file = file_of_mixed_kinds(Path("from.gguf"))
    main(["from.gguf", "out"])
    kept = arrays("out/ckpt.npz")
    assert kind_of(kept["model/blocks.0.attention.qkv.weight"]) == "Q4_K and Q5_0 and Q6_K"
    assert Path("out/ckpt.npz").stat().st_size < sum(a.nbytes for a in kept.values())   # deflated
    model, tokenizer, *_ = load_checkpoint("out/ckpt.npz")
    texts = {generate(model, tokenizer, "a", 60, temperature=0, cache=cache)
             for cache in (True, False)}
    main(["out", "again.gguf"])
    assert Path("again.gguf").read_bytes() == file.read_bytes()
    main(["out", "floats.gguf", "--as", "f32"])
    for tensor, theirs in zip(library.GGUFReader(file).tensors,
                              library.GGUFReader("floats.gguf").tensors, strict=True):
        expected = library.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(theirs.data, expected, err_msg=tensor.name)
    main(["floats.gguf", "out_floats"])
    floats, *_ = load_checkpoint("out_floats/ckpt.npz")
    texts.add(generate(floats, tokenizer, "a", 60, temperature=0))
    assert len(texts) == 1


def test_write_keeps_options_that_the_keys_of_a_file_cannot_say():
    imported()
    model, tokenizer, *_ = load_checkpoint("out/ckpt.npz")
    other = Transformer(dataclasses.replace(model.config, dropout=0.2, block_size=8))
    other.load_state_dict(model.state_dict())
    save_checkpoint("other.npz", other, tokenizer)
    main(["other.npz", "m.gguf"])
    assert gguf.read("m.gguf").config == other.config
    # Rotary positions reach as far as before.
    assert stated("m.gguf")["llama.context_length"] == model.config.block_size == 16
    through("m.gguf", "out2", "again.gguf")
    assert Path("again.gguf").read_bytes() == Path("m.gguf").read_bytes()
    # A model that the keys of the file describe is not what its note says.
    _, tokenizer, *_ = load_checkpoint("out2/ckpt.npz")
    save_checkpoint("as_before.npz", model, tokenizer)
    main(["as_before.npz", "as_before.gguf"])
    assert gguf.read("as_before.gguf").config == model.config


@pytest.mark.needs("gguf", "convert")
def test_rotary_positions_reach_as_far_as_before_in_folders_of_hugging_face():
    imported()
    model, tokenizer, *_ = load_checkpoint("out/ckpt.npz")
    short = Transformer(dataclasses.replace(model.config, block_size=8))
    short.load_state_dict(model.state_dict())
    save_checkpoint("short.npz", short, tokenizer)
    through("short.npz", "hf", "back", "hf2", "m.gguf")
    for folder in ("hf", "hf2"):
        config = in_json(folder, "config.json")
        assert config["max_position_embeddings"] == 16
        assert config["minigrad"]["block_size"] == 8
        assert in_json(folder, "tokenizer_config.json")["model_max_length"] == 16
    assert stated("m.gguf")["llama.context_length"] == 16
    assert gguf.read("m.gguf").config == load_checkpoint("back/ckpt.npz")[0].config == short.config
    config.pop("minigrad")      # as another program writes a folder
    Path("hf2", "config.json").write_text(json.dumps(config), "utf-8")
    main(["hf2", "theirs"])
    _, tokenizer, *_ = load_checkpoint("theirs/ckpt.npz")
    assert tokenizer.metadata["keys"]["llama.context_length"] == [16, [4]]


def test_write_keeps_every_tensor_that_training_did_not_change():
    file = imported()
    path = "out/ckpt.npz"
    model, tokenizer, *_ = load_checkpoint(path)
    dict(model.named_parameters())["blocks.0.mlp.up.weight"].data[0, 0] += 1
    save_checkpoint(path, model, tokenizer)
    main([path, "tuned.gguf"])
    import gguf as library
    before, after = (library.GGUFReader(each) for each in (file, "tuned.gguf"))
    for a, b in zip(before.tensors, after.tensors, strict=True):
        if a.name == "blk.0.ffn_up.weight":
            assert b.tensor_type == F16
        else:
            assert (a.name, a.tensor_type) == (b.name, b.tensor_type)
            assert np.array_equal(a.data, b.data), a.name
    assert after.fields["general.file_type"].contents() == library.LlamaFileType.MOSTLY_F16
    for key, field in before.fields.items():
        if key != "general.file_type":
            assert field.contents() == after.fields[key].contents(), key


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("source", ["from.gguf", "out"])
def test_write_unpacks_all_matrices_for_the_kind_that_is_asked_for(kind, source):
    import gguf as library
    file = imported()
    main([source, "m.gguf", "--as", kind])
    found = library.GGUFReader("m.gguf")
    asked = library.GGMLQuantizationType[kind.upper()]
    for tensor in found.tensors:
        one_axis = len(tensor.shape) == 1
        assert tensor.tensor_type == (library.GGMLQuantizationType.F32 if one_axis else asked)
    stated_type = library.LlamaFileType[to_gguf.KINDS[kind]]
    assert found.fields["general.file_type"].contents() == stated_type
    assert [tensor.name for tensor in found.tensors] == [
        tensor.name for tensor in library.GGUFReader(file).tensors]
    if kind == "f32":
        weights = gguf.read("m.gguf").weights
        for name, a in gguf.read(file).weights.items():
            assert np.array_equal(weights[name], a), name


def test_positions_and_vectors_of_gpt2_are_never_rounded():
    import gguf as library
    saved("ckpt.npz", GPT2)
    main(["ckpt.npz", "m.gguf", "--as", "q8_0"])
    found = library.GGUFReader("m.gguf").tensors
    kinds = {tensor.name: tensor.tensor_type.name for tensor in found}
    rounded = {name for name, kind in kinds.items() if kind != "F32"}
    assert kinds["position_embd.weight"] == "F32"
    assert rounded == {"token_embd.weight"} | {
        f"blk.{i}.{part}.weight" for i in (0, 1)
        for part in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")}


def with_numbers(path, number, all=False):
    """Save a model with a number in one of its matrices, or with all numbers of it."""
    model = Transformer(GPT2, seed=1)
    matrix = model.blocks[0].mlp.up.weight.data
    if all:
        matrix[...] = 0
    matrix[3, 5] = number
    save_checkpoint(path, model, CharTokenizer.of(CHARACTERS))
    return matrix


@pytest.mark.parametrize("kind, number, holds", [
    ("f16", 65520, "bf16"), ("f16", -1e5, "bf16"), ("f16", 3.4e38, "f32"),
    ("q8_0", 8321040, "bf16"), ("q8_0", -1e30, "bf16"), ("bf16", 3.3961776e38, "f32")])
def test_write_refuses_a_number_that_is_too_large_for_its_kind(kind, number, holds):
    with_numbers("ckpt.npz", number)
    said = refusal(SystemExit, main, ["ckpt.npz", "m.gguf", "--as", kind])
    assert f"blk.0.ffn_up.weight has a number of the size {abs(number):,.6g}, and {kind}" in said
    assert f"; give --as {holds}, which holds them" in said and not Path("m.gguf").exists()
    main(["ckpt.npz", "m.gguf", "--as", holds])


def test_write_refuses_a_number_that_is_too_large_for_the_usual_kind():
    with_numbers("ckpt.npz", 1e30)
    assert "and f16 holds sizes below 65,520; give --as bf16" in refusal(
        SystemExit, main, ["ckpt.npz", "m.gguf"])


@pytest.mark.parametrize("kind, number, holds", [
    ("f16", 2 ** -25, "bf16"), ("q8_0", -3.7e-6, "bf16"), ("bf16", 2 ** -140, "f32")])
def test_write_refuses_a_matrix_of_which_nothing_would_be_left(kind, number, holds):
    with_numbers("ckpt.npz", number, all=True)
    said = refusal(SystemExit, main, ["ckpt.npz", "m.gguf", "--as", kind])
    assert f"has no number larger than {abs(number):.3g}, and {kind} would make 0 of all; " in said
    assert f"give --as {holds}, which" in said
    main(["ckpt.npz", "m.gguf", "--as", holds])


@pytest.mark.parametrize("kind, number, read", [
    ("f16", 65519.99, 65504), ("f16", 2.1 ** -25, 0), ("f16", 1e-7, 2.0 ** -23),
    ("bf16", -3.39e38, -3.3895314e38), ("q8_0", 8.32e6, 65504 * 127), ("f32", 3.4e38, 3.4e38),
    ("f32", 1e-45, 1e-45), ("bf16", 1e-40, 9.18355e-41)])
def test_write_stores_numbers_at_the_limits_of_its_kind(kind, number, read):
    with_numbers("ckpt.npz", number)
    main(["ckpt.npz", "m.gguf", "--as", kind])
    found = gguf.read("m.gguf").weights["blocks.0.mlp.up.weight"][3, 5]
    assert np.isclose(found, np.float32(read), rtol=1e-5, atol=0)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_write_refuses_what_is_no_number(kind, number):
    _, tensors = llama()
    tensors["blk.0.ffn_up.weight"][3, 5] = number
    written(Path("bad.gguf"), *llama(**tensors))
    said = refusal(SystemExit, main, ["bad.gguf", "m.gguf", "--as", kind])
    assert "blk.0.ffn_up.weight holds nan or inf; its training may have diverged" in said


@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0"])
def test_numbers_that_are_read_back_further_off_than_the_kind_rounds_are_refused(
        kind, capsys, monkeypatch):
    model = saved("ckpt.npz", GPT2)
    name = "blocks.1.mlp.down.weight"
    a = dict(model.named_parameters())[name].data
    found = {}

    def changed(path, real=gguf.read):
        model_file = real(path)
        found["read"] = model_file.weights[name]
        weights = {each: model_file.weights[each] for each in model_file.weights}
        weights[name] = found["read"].copy()
        weights[name][2, 7] = found["number"]
        return model_file._replace(weights=weights)
    monkeypatch.setattr(to_gguf, "read", changed)
    allowed = to_gguf.rounding(a, kind)[2, 7]
    for share, refused in ((0.99, False), (1.01, True), (-0.99, False), (-1.01, True)):
        found["number"] = a[2, 7] + share * allowed
        words = ["ckpt.npz", f"m{share}.gguf", "--as", kind]
        if refused:
            assert f"came back with other numbers in {name}" in refusal(SystemExit, main, words)
        else:
            main(words)
            assert f"they are the same, as {kind} rounds\n" in capsys.readouterr().out
    # What the kind does to the numbers uses the most that is allowed, and not only a small part.
    most = (np.abs(found["read"] - a) / to_gguf.rounding(a, kind)).max()
    assert 0.5 < most <= 1


@pytest.mark.needs("gguf", "convert")
def test_the_chat_template_goes_through_folders_of_hugging_face_and_back():
    file = imported()
    template = EVERYTHING["tokenizer.chat_template"]
    through("out", "folder", "out2", "folder2", "m.gguf")
    for folder in ("folder", "folder2"):
        assert in_json(folder, "tokenizer_config.json")["chat_template"] == template
        assert "minigrad.metadata" not in str(in_json(folder, "tokenizer.json"))
    found = stated("m.gguf")
    assert found["tokenizer.chat_template"] == template
    assert found["tokenizer.ggml.tokens"] == stated(file)["tokenizer.ggml.tokens"]


@pytest.mark.needs("gguf", "convert")
def test_a_tokenizer_without_merges_goes_out_with_one_that_no_text_has():
    parts = json.loads(byte_level())
    parts["model"]["merges"] = []
    config = dataclasses.replace(LLAMA, vocab_size=V)
    tokenizer = TokenTokenizer(json.dumps(parts))
    save_checkpoint("ckpt.npz", Transformer(config), tokenizer)
    main(["ckpt.npz", "m.gguf"])
    assert stated("m.gguf")["tokenizer.ggml.merges"] == ["ÿ ÿ"]


def test_a_chat_template_in_a_file_of_its_own_is_kept():
    imported()
    main(["out", "folder"])
    config = in_json("folder/tokenizer_config.json")
    del config["chat_template"]
    Path("folder/tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    Path("folder/chat_template.jinja").write_text("ä {{ x }}", "utf-8")
    main(["folder", "m.gguf"])
    assert gguf.read("m.gguf").tokenizer.metadata["keys"][
        "tokenizer.chat_template"][0] == "ä {{ x }}"


@pytest.mark.parametrize("options, said", [
    (dict(position="rotary", norm="rms", activation="relu2", qk_norm=True, ngrams=3),
     "--ngrams 1 --no-qk_norm --activation swiglu"),
    (dict(), "--activation gelu_tanh"), (dict(activation="relu2"), "--activation gelu_tanh"),
    (dict(position="sinusoidal", activation="gelu_tanh"), "--position learned")])
def test_write_names_the_flags_of_a_model_that_llama_cpp_computes(options, said):
    saved("ckpt.npz", TransformerConfig(**SIZES | options))
    assert f"train a model with {said}, or" in refusal(SystemExit, main, ["ckpt.npz", "m.gguf"])
    assert not Path("m.gguf").exists()


@pytest.mark.parametrize("words, said", [
    (["m.npz", "--as", "f16"], "--as f16 is for a .gguf file"),
    (["m.gguf", "--as", "q4_k"], "llama-quantize"), (["m.gguf", "--as", "F16"], "f16")])
def test_main_refuses_a_kind_that_is_not_written(words, said):
    saved("ckpt.npz", GPT2)
    assert said in refusal(SystemExit, main, ["ckpt.npz", *words])


def answered(path, starts):
    """What llama.cpp answers to each beginning."""
    import xllamacpp
    given = for_llama_cpp(path, 128)
    # The engine keeps keys and values in float32.
    given.cache_type_k = given.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    given.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(given)
    for start in starts:
        yield server.handle_completions(dict(prompt=start, n_predict=64, temperature=0,
                                             top_k=1, n_probs=1))


def completed(path, starts):
    """What llama.cpp writes after each beginning, and the log-probability of each token of it."""
    for answer in answered(path, starts):
        choice, = answer["choices"]
        yield choice["text"], [token["logprob"] for token in choice["logprobs"]["content"]]


@pytest.mark.needs("gguf", "judge")
@pytest.mark.parametrize("config, kind, most, mean", [
    (config, *limits)
    for config in (LLAMA, UNTIED, GPT2, BIASED, OF_MLP, OF_ATTENTION, QWEN2, QWEN3, LONGER)
    for limits in (("f32", 1e-3, 1e-3), ("f16", 5e-3, 1e-3), ("q8_0", 0.1, 0.02))
    # Random models of these two have letters whose logits are 7e-5 apart, which f16 changes.
    if limits[0] != "f16" or config not in (QWEN2, LONGER)])
def test_llama_cpp_writes_the_text_that_the_engine_writes(config, kind, most, mean):
    # With f16 and q8_0, llama.cpp rounds the numbers that it multiplies with the weights, too.
    saved("ckpt.npz", config)
    main(["ckpt.npz", "m.gguf", "--as", kind])
    main(["m.gguf", "out"])
    model, tokenizer, *_ = load_checkpoint("out/ckpt.npz")
    starts = ["a", "é", "漢🙂", " the", "A.", "\n", "quick", "b\\c", "zzz", "ok\t"]
    for start, (text, found) in zip(starts, completed("m.gguf", starts), strict=True):
        if kind != "q8_0":
            assert start + text == generate(model, tokenizer, start, max_new_tokens=64,
                                            temperature=0)
        ids = tokenizer.encode(start + text)
        with mg.no_grad():
            logs = mg.log_softmax(model(ids[:-1])).data
        of_text = logs[np.arange(len(logs)), ids[1:]][len(start) - 1:]
        apart = np.abs(of_text - found)
        assert apart.max() < most
        assert apart.mean() < mean


@pytest.mark.needs("gguf", "convert", "judge")
def test_llama_cpp_reads_the_blocks_of_mixed_kinds_that_the_engine_reads():
    file_of_mixed_kinds(Path("from.gguf"))
    through("from.gguf", "out", "again.gguf")
    main(["out", "floats.gguf", "--as", "f32"])
    model, tokenizer, *_ = load_checkpoint("out/ckpt.npz")
    starts = ["a", "the quick brown fox", "zzz"]
    # On blocks, llama.cpp rounds the numbers that it multiplies with them to 8 bits.
    for file, most, mean in (("floats.gguf", 1e-3, 1e-3), ("again.gguf", 0.5, 0.1)):
        for start, answer in zip(starts, answered(file, starts), strict=True):
            choice, = answer["choices"]
            if file == "floats.gguf":
                assert start + choice["text"] == generate(model, tokenizer, start, 64,
                                                          temperature=0)
            tokens = choice["logprobs"]["content"]
            before = tokenizer.encode(start)
            ids = np.array([*before, *(token["id"] for token in tokens)])
            with mg.no_grad():
                logs = mg.log_softmax(model(ids[:-1])).data
            of_text = logs[np.arange(len(logs)), ids[1:]][len(before) - 1:]
            apart = np.abs(of_text - [token["logprob"] for token in tokens])
            assert len(apart) == 64
            assert apart.max() < most
            assert apart.mean() < mean


@pytest.mark.needs("gguf", "convert", "judge")
@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "llama-bpe", "qwen2"])
def test_llama_cpp_makes_as_many_tokens_of_a_text_as_a_tokenizer_json_does(pre):
    # One split merges digits, the other does not; a user's token is one, not its bytes.
    imported(**{
        "tokenizer.ggml.pre": pre, "tokenizer.ggml.merges": [*MERGES[:-1], "1 2"],
        "tokenizer.ggml.tokens": [*TOKENS[:-1], "12"],
        "tokenizer.ggml.token_type": [3] + [1] * (V - 3) + [4, 1]})
    through("out", "folder", "m.gguf")
    _, tokenizer, *_ = load_checkpoint("out/ckpt.npz")
    starts = ["12 1", f"a{TOKENS[-2]}", " the é漢", "x1234\n\n  I'S"]
    answers = answered("m.gguf", starts)
    assert [answer["usage"]["prompt_tokens"] for answer in answers] == [
        len(tokenizer.encode(start)) for start in starts]
