"""Beside PEFT itself: our adapters compute there what they compute here."""
import os
import warnings

import numpy as np
import pytest

from model import load_checkpoint
from model.convert.__main__ import main
from tests.extras import lacking
from tests.model.convert.adapters import saved_adapter
from tests.model.convert.test_adapter import GPT2, IDS, LLAMA

os.environ["HF_HUB_OFFLINE"] = "1"
if not lacking("interop"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import peft
        import torch
        from transformers import AutoModelForCausalLM

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
