"""Steps of an adapter here and in PEFT, from the same pairs, batches and rates:

    python -m tests.interop.beside_peft out_smol my_text.txt NEW_FOLDER 100

trains an adapter of rank 8 beside PEFT's, and prints for each step both losses and the seconds of
the processor that it took.  NEW_FOLDER gets the base in the form of Hugging Face.
"""
import os
import pathlib
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

import data
import minigrad as mg
from minigrad.random import generator
from model import save_checkpoint
from model.beginning import load_initial
from model.convert.__main__ import main as convert
from model.lora.adapted import AdaptedTransformer
from model.lora.begin import adapted_config, make_adapted
from model.run import make_optimizer
from model.settings import ADAPTER, Settings

os.environ["HF_HUB_OFFLINE"] = "1"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import peft
    import torch
    from transformers import AutoModelForCausalLM

CLIP = 1.0      # the largest norm of the gradient
Batch = tuple[np.ndarray, np.ndarray]


class Step(NamedTuple):
    """A step of both: their losses, and the seconds of the processor that each took."""
    ours: float
    theirs: float
    our_seconds: float
    their_seconds: float


def steps_of_both(
        model: AdaptedTransformer,
        base: str,
        adapter: str,
        batches: Iterable[tuple[float, Batch]]) -> Iterator[Step]:
    """Take a step for each (rate, batch), here and in PEFT.

    Parameters
    ----------
    base, adapter : folders of Hugging Face and of PEFT with the same weights as the model.
    """
    torch.set_num_threads(1)
    theirs = peft.PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        adapter,
        is_trainable=True)
    pairs = [p for p in theirs.parameters() if p.requires_grad]
    settings = Settings(lora=model.config.lora, **ADAPTER)
    optimizer = make_optimizer(model, settings)
    group = optimizer.param_groups[0]
    judge = torch.optim.AdamW(
        pairs,
        betas=group["betas"],
        eps=group["eps"],
        weight_decay=group["weight_decay"])
    for rate, (ids, targets) in batches:
        started = time.process_time()
        loss = model.loss(ids, targets)
        loss.backward()
        mg.clip_grad_norm_(model.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        between = time.process_time()
        logits = theirs(torch.tensor(ids)).logits
        their_loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1),
            torch.tensor(targets).flatten())
        judge.zero_grad()
        their_loss.backward()
        torch.nn.utils.clip_grad_norm_(pairs, CLIP)
        judge.param_groups[0]["lr"] = rate
        judge.step()
        ended = time.process_time()
        yield Step(loss.item(), their_loss.item(), between - started, ended - between)


def main(base: str, text: str, folder: str, steps: str) -> None:
    """Run the command."""
    folder = pathlib.Path(folder)
    settings = Settings(init_from=base, lora=8)
    initial = load_initial(base, frozen=True)
    model = make_adapted(adapted_config(initial.model.config, settings), 1, initial.model)
    save_checkpoint(folder / "on" / "ckpt.npz", model, initial.tokenizer)
    convert([base, str(folder / "hf")])
    convert([str(folder / "on"), str(folder / "peft")])
    texts = data.read_texts((text,))
    ids = data.Text(texts.characters, texts.name, initial.tokenizer).train
    rng = generator(1, "batches")
    batches = ((1e-3 * min(1, number / 25), data.random_batch(ids, 2, 128, rng=rng))
               for number in range(1, int(steps) + 1))
    for number, step in enumerate(steps_of_both(model, folder / "hf", folder / "peft", batches), 1):
        print(f"step {number:4}   loss {step.ours:.4f} here, {step.theirs:.4f} in PEFT   "
              f"seconds {step.our_seconds:.2f} and {step.their_seconds:.2f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
