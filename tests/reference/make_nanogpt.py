"""Write the folder nanogpt/ as nanoGPT does, for tests/model/convert/test_nanogpt.py.

    python -m tests.reference.make_nanogpt              with '.[interop]'

The model is the benchmarks' twin on PyTorch, with the names of nanoGPT's GPT.  In the folder:

    ckpt.pt         a checkpoint after some steps, of a compiled model, as torch.save writes it
    meta.pkl        the characters, as pickle.dump writes it
    logits.npz      ids (B, T), and the model's logits for them (B, T, V)
"""
import pathlib
import pickle
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import torch

from model import TransformerConfig
from tests.benchmarks.twin import Twin

FOLDER = pathlib.Path(__file__).with_name("nanogpt")
CHARACTERS = "\n !aehlortw"
SIZE = dict(n_layer=2, n_head=2, n_embd=8, block_size=6, bias=True, vocab_size=len(CHARACTERS),
            dropout=0.1)
STEPS = 3
NAMES = {"token_embedding": "wte", "position_embedding": "wpe", "blocks": "h", "norm1": "ln_1",
         "attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj", "norm2": "ln_2",
         "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj", "norm.": "ln_f."}


def nanogpts(name):
    """Return the name that a parameter of the twin has in a compiled model of nanoGPT."""
    for part, theirs in NAMES.items():
        name = name.replace(part, theirs)
    return f"_orig_mod.transformer.{name}"


def trained():
    """Return a model after some steps on random ids, and its optimiser's state."""
    model = Twin(SimpleNamespace(**asdict(TransformerConfig(**SIZE)))).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    for _ in range(STEPS):
        ids = torch.randint(SIZE["vocab_size"], (4, SIZE["block_size"]))
        model(ids[:, :-1], ids[:, 1:].contiguous()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return model, optimizer.state_dict()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    model, optimizer = trained()
    weights = {nanogpts(name): weight for name, weight in model.state_dict().items()}
    weights["_orig_mod.lm_head.weight"] = weights[nanogpts("token_embedding.weight")]
    torch.save({"model": weights, "optimizer": optimizer, "model_args": SIZE, "iter_num": 250,
                "best_val_loss": torch.tensor(1.5),
                "config": {"dataset": "hello", "learning_rate": 0.03, "compile": True}},
               FOLDER / "ckpt.pt")
    (FOLDER / "meta.pkl").write_bytes(pickle.dumps({
        "vocab_size": len(CHARACTERS), "itos": dict(enumerate(CHARACTERS)),
        "stoi": {c: i for i, c in enumerate(CHARACTERS)}}))
    ids = torch.randint(SIZE["vocab_size"], (3, SIZE["block_size"]))
    np.savez_compressed(FOLDER / "logits.npz", ids=ids,
                        logits=model.logits(model.hidden(ids)).detach())
    for path in sorted(FOLDER.iterdir()):
        print(f"{path}: {path.stat().st_size / 1000:.1f} kB")


if __name__ == "__main__":
    main()
