"""Adapters for other programs: llama.cpp, PEFT, and merged into one model."""
import json
import pathlib
import re

import numpy as np
import pytest

import minigrad as mg
from model import Transformer, generate, load_checkpoint, save_checkpoint
from model.convert.__main__ import main
from tests.kit import refusal
from tests.model.convert.adapters import GPT2, IDS, LLAMA, saved_adapter
from tests.model.convert.gguf_files import for_llama_cpp


@pytest.fixture(autouse=True)
def new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.needs("gguf")
def test_a_gguf_adapter_has_the_names_and_keys_of_llama_cpp():
    import gguf
    model = saved_adapter(LLAMA, ".")
    main(["on", "a.gguf"])
    file = gguf.GGUFReader("a.gguf")
    keys = {key: field.contents() for key, field in file.fields.items()}
    assert keys["general.architecture"] == "llama" and keys["general.type"] == "adapter"
    assert keys["adapter.type"] == "lora" and keys["adapter.lora.alpha"] == 6.0
    tensors = {each.name: each.data for each in file.tensors}
    assert len(tensors) == 2 * 2 * 7
    pair = model.blocks[1].attention.qkv
    for part, rows in zip("qkv", np.split(pair.lora_b.data, [32, 48])):
        np.testing.assert_array_equal(tensors[f"blk.1.attn_{part}.weight.lora_a"], pair.lora_a.data)
        np.testing.assert_array_equal(tensors[f"blk.1.attn_{part}.weight.lora_b"], rows)


def answers(path, adapter, starts):
    """What llama.cpp writes after each beginning, and the log-probability of each token of it."""
    import xllamacpp
    params = for_llama_cpp(path, 128)
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if adapter:
        lora = xllamacpp.CommonAdapterLoraInfo()
        lora.path = adapter
        lora.scale = 1.0
        params.lora_adapters = [lora]
    server = xllamacpp.Server(params)
    for start in starts:
        answer = server.handle_completions(dict(prompt=start, n_predict=48, temperature=0, top_k=1,
                                                n_probs=1))
        choice, = answer["choices"]
        yield choice["text"], [token["logprob"] for token in choice["logprobs"]["content"]]


@pytest.mark.needs("gguf", "judge")
@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_llama_cpp_writes_with_the_adapter_what_the_engine_writes(config):
    saved_adapter(config, ".")
    main(["on", "a.gguf"])
    main(["base", "base.gguf", "--as", "f32"])
    model, tokenizer, *_ = load_checkpoint("on/ckpt.npz")
    starts = ["a", "é", " the", "quick", "b\\c"]
    alone = [text for text, _ in answers("base.gguf", None, starts)]
    found = [*answers("base.gguf", "a.gguf", starts)]
    assert alone != [text for text, _ in found]
    for start, (text, logs) in zip(starts, found, strict=True):
        assert start + text == generate(model, tokenizer, start, 48, temperature=0)
        ids = tokenizer.encode(start + text)
        with mg.no_grad():
            ours = mg.log_softmax(model(ids[:-1])).data
        ours = ours[np.arange(len(ours)), ids[1:]][len(start) - 1:]
        assert np.abs(ours - logs).max() < 1e-3


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_a_merged_model_computes_what_base_and_adapter_compute(config, capsys):
    text = pathlib.Path("text.txt")
    text.write_text("the quick brown fox jumps over it. " * 40)
    training = dict(settings=dict(data=str(text), eval_iters=2, batch_size=2))
    model = saved_adapter(config, ".", training)
    before = pathlib.Path("base/ckpt.npz").read_bytes()
    main(["on", "whole.npz", "--merge"])
    whole = load_checkpoint("whole.npz").model
    assert type(whole) is Transformer
    np.testing.assert_allclose(whole(IDS).data, model(IDS).data, rtol=1e-4, atol=1e-5)
    assert pathlib.Path("base/ckpt.npz").read_bytes() == before
    first, last = map(float, re.search(r"loss +([\d.]+) nats a character of base and adapter, and "
                                       r"([\d.]+) of what was written",
                                       capsys.readouterr().out).groups())
    assert abs(first - last) < 1e-3 and first > 1


def test_merging_says_where_no_text_is_to_measure_the_loss(capsys):
    saved_adapter(GPT2, ".", dict(settings=dict(data="gone.txt", eval_iters=2, batch_size=2)))
    main(["on", "whole.npz", "--merge"])
    assert "loss        not measured, as the text" in capsys.readouterr().out


def test_merging_an_adapter_without_a_record_of_a_run_says_that_no_loss_is_measured(capsys):
    saved_adapter(GPT2, ".")
    main(["on", "whole.npz", "--merge"])
    path = pathlib.Path("on", "ckpt.npz")
    assert f"loss        not measured, as {path} does not say on which text" in (
        capsys.readouterr().out)
    assert pathlib.Path("whole.npz").exists()


@pytest.mark.needs("convert")
def test_a_folder_for_peft_names_rank_alpha_and_modules():
    saved_adapter(LLAMA, ".", lora_layers="qkv,down")
    main(["on", "peft"])
    says = json.loads(pathlib.Path("peft/adapter_config.json").read_text())
    assert (says["r"], says["lora_alpha"], says["peft_type"]) == (4, 6.0, "LORA")
    assert says["target_modules"] == ["mlp.down_proj", "self_attn.k_proj", "self_attn.q_proj",
                                      "self_attn.v_proj"]


@pytest.mark.parametrize("words, says", [
    (["base", "x.npz", "--merge"], "is a whole model, and --merge is for an adapter"),
    (["on", "x.npz"], "for a .npz file of the whole model, give --merge"),
    (["on", "x.gguf", "--as", "f16"], "--as f16 is for a whole model; leave it out, or give "
                                      "--merge")])
def test_main_refuses_what_is_no_adapter_or_not_for_one(words, says):
    saved_adapter(GPT2, ".")
    assert says in refusal(SystemExit, main, words)
    assert not pathlib.Path(words[1]).exists()


def test_main_refuses_an_adapter_whose_base_is_not_there():
    saved_adapter(GPT2, ".")
    pathlib.Path("base/ckpt.npz").unlink()
    said = refusal(SystemExit, main, ["on", "x.npz", "--merge"])
    assert "is an adapter of" in said and "which is not there; put it back" in said


def test_main_refuses_an_adapter_whose_base_is_another_one_now():
    saved_adapter(GPT2, ".")
    model, tokenizer, *_ = load_checkpoint("base/ckpt.npz")
    model.norm.weight.data *= 2
    save_checkpoint("base/ckpt.npz", model, tokenizer)
    said = refusal(SystemExit, main, ["on", "x.npz", "--merge"])
    assert "it is another base now; put the former back" in said
