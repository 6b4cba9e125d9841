"""Beside PEFT itself: our adapters compute there what they compute here."""
import dataclasses
import json
import os
import warnings

import numpy as np
import pytest

from model import Transformer, load_checkpoint, save_checkpoint
from model.convert.__main__ import main
from tests.extras import lacking
from tests.kit import refusal
from tests.model.convert.adapters import GPT2, IDS, LLAMA, saved_adapter

os.environ["HF_HUB_OFFLINE"] = "1"
if not lacking("interop"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import peft
        import torch
        from transformers import AutoModelForCausalLM
    from tests.interop.beside_peft import steps_of_both

pytestmark = [pytest.mark.needs("interop"), pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_peft_computes_the_logits_of_an_adapter(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved_adapter(config, ".")
    main(["base", "hf"])
    main(["on", "peft"])
    theirs = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("hf"), "peft")
    with torch.no_grad():
        logits = theirs(torch.tensor(IDS)).logits.numpy()
        with theirs.disable_adapter():
            base = theirs(torch.tensor(IDS)).logits.numpy()
    expected = load_checkpoint("on/ckpt.npz").model(IDS).data
    most = np.abs(expected).max()
    assert np.abs(logits - expected).max() < 1e-5 * most
    assert np.abs(base - expected).max() > 1e-2 * most


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_an_adapter_that_peft_made_has_its_logits_here(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved_adapter(config, ".")
    main(["base", "hf"])
    modules = ["q_proj", "v_proj", "down_proj"] if config is LLAMA else ["c_attn", "mlp.c_proj"]
    settings = peft.LoraConfig(
        r=4,
        lora_alpha=6,
        target_modules=modules,
        fan_in_fan_out=config is GPT2,
        init_lora_weights=False)
    torch.manual_seed(0)
    theirs = peft.get_peft_model(AutoModelForCausalLM.from_pretrained("hf"), settings).eval()
    theirs.save_pretrained("theirs")
    main(["theirs", "ours", "--base", "base"])
    with torch.no_grad():
        logits = theirs(torch.tensor(IDS)).logits.numpy()
    model = load_checkpoint("ours/ckpt.npz").model
    assert model.config.lora == (8 if config is LLAMA else 4)       # of queries and values
    assert np.abs(logits - model(IDS).data).max() < 1e-5 * np.abs(logits).max()


def test_an_adapter_of_peft_comes_back_as_it_went(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = saved_adapter(LLAMA, ".")
    main(["on", "peft"])
    main(["peft", "again", "--base", "base"])
    again = load_checkpoint("again/ckpt.npz").model
    assert again.config.lora == 4
    for (name, p), q in zip(model.named_parameters(), again.parameters(), strict=True):
        np.testing.assert_array_equal(p.data, q.data, err_msg=name)


@pytest.mark.parametrize("config, layers", [(LLAMA, "out,gate,up,down"),
                                            (GPT2, "qkv,out,up,down")], ids=["llama", "gpt2"])
def test_a_hundred_steps_have_the_losses_that_they_have_in_peft(config, layers, tmp_path,
                                                                monkeypatch):
    """Where a class has queries, keys and values in one layer, or they have no pair: elsewhere each
    of them has a first matrix of its own there."""
    monkeypatch.chdir(tmp_path)
    model = saved_adapter(config, ".", lora_layers=layers)
    main(["base", "hf"])
    main(["on", "peft"])
    rng = np.random.default_rng(0)
    V = config.vocab_size
    after = rng.integers(V, size=V)     # each id is followed by another
    batches = []
    for step in range(100):
        ids = [rng.integers(V, size=2)]
        while len(ids) < 9:
            ids.append(after[ids[-1]])
        ids = np.stack(ids, axis=1)                                         # (B, T + 1)
        batches.append((3e-3 * min(1, (step + 1) / 10), (ids[:, :-1], ids[:, 1:])))
    steps = [*steps_of_both(model, "hf", "peft", batches)]
    assert steps[-1].ours < steps[0].ours - 1
    assert max(abs(step.ours - step.theirs) for step in steps) < 0.02


@pytest.mark.parametrize("words, change, says", [
    (["peft", "x"], {}, "is an adapter of PEFT; name the checkpoint of its base with --base"),
    (["base", "x", "--base", "base"], {}, "--base is for a folder with adapter_config.json"),
    (["peft", "x", "--base", "on"], {}, "is an adapter itself; give its base"),
    (["peft", "x", "--base", "other"], {}, "is an adapter of another base: its model.layers.0"),
    (["peft", "x", "--base", "base"], {"use_dora": True}, "has use_dora = True, and only False")])
def test_main_refuses_an_adapter_of_peft_that_does_not_fit(words, change, says, tmp_path,
                                                           monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved_adapter(LLAMA, ".")
    main(["on", "peft"])
    path = tmp_path / "peft" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    wider = Transformer(dataclasses.replace(LLAMA, n_inner=96))
    save_checkpoint("other/ckpt.npz", wider, load_checkpoint("base/ckpt.npz").tokenizer)
    assert says in refusal(SystemExit, main, words)
    assert not (tmp_path / "x").exists()
