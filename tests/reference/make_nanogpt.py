"""Writes the folder nanogpt/ as nanoGPT does.  tests/model/convert/test_nanogpt.py reads it.

Run by hand, in an environment that has PyTorch too:

    python -m tests.reference.make_nanogpt

The model has the structure and the names of nanoGPT's GPT.  In the folder:

    ckpt.pt         a checkpoint after some steps, of a compiled model, as torch.save writes it
    meta.pkl        the characters, as pickle.dump writes it
    logits.npz      ids (B, T), and the model's logits for them (B, T, V)
"""
import pathlib
import pickle

import numpy as np

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    raise SystemExit("make_nanogpt.py needs PyTorch: pip install torch") from None

FOLDER = pathlib.Path(__file__).with_name("nanogpt")
CHARACTERS = "\n !aehlortw"
SIZE = dict(n_layer=2, n_head=2, n_embd=8, block_size=6, bias=True, vocab_size=len(CHARACTERS),
            dropout=0.1)
STEPS = 3


class Norm(nn.Module):
    """A layer norm with or without a bias."""

    def __init__(self, C: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(C))
        self.bias = nn.Parameter(torch.zeros(C)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias)


class Attention(nn.Module):
    """Causal heads side by side."""

    def __init__(self, C: int, H: int, bias: bool) -> None:
        super().__init__()
        self.H = H
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C, bias=bias), nn.Linear(C, C, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [part.unflatten(-1, (self.H, -1)).swapaxes(-2, -3)
                 for part in self.c_attn(x).chunk(3, dim=-1)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.c_proj(mixed.swapaxes(-2, -3).flatten(-2))


class MLP(nn.Module):
    """Four times as wide, with the exact GELU."""

    def __init__(self, C: int, bias: bool) -> None:
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(C, 4 * C, bias=bias), nn.Linear(4 * C, C, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    """Attention, then the MLP, each after a norm."""

    def __init__(self, C: int, H: int, bias: bool) -> None:
        super().__init__()
        self.ln_1, self.attn = Norm(C, bias), Attention(C, H, bias)
        self.ln_2, self.mlp = Norm(C, bias), MLP(C, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """The model for these model_args; dropout is left out."""

    def __init__(self, args: dict) -> None:
        super().__init__()
        C, V, bias = args["n_embd"], args["vocab_size"], args["bias"]
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(V, C), "wpe": nn.Embedding(args["block_size"], C),
            "h": nn.ModuleList([Block(C, args["n_head"], bias) for _ in range(args["n_layer"])]),
            "ln_f": Norm(C, bias)})
        self.lm_head = nn.Linear(C, V, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        part = self.transformer
        x = part.wte(ids) + part.wpe.weight[:ids.shape[-1]]
        for block in part.h:
            x = block(x)
        return self.lm_head(part.ln_f(x))


def trained(args: dict, seed: int = 0, steps: int = STEPS) -> tuple[GPT, dict]:
    """A model after some steps on random ids, and its optimiser's state."""
    torch.manual_seed(seed)
    model = GPT(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    for _ in range(steps):
        ids = torch.randint(args["vocab_size"], (4, args["block_size"]))
        F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return model, optimizer.state_dict()


def checkpoint(args: dict, weights: dict, optimizer: dict | None = None) -> dict:
    """What nanoGPT's train.py saves."""
    return {"model": weights, "optimizer": optimizer, "model_args": args, "iter_num": 250,
            "best_val_loss": torch.tensor(1.5),
            "config": {"dataset": "hello", "learning_rate": 0.03, "compile": True}}


def meta(characters: str) -> dict:
    """What nanoGPT's data/shakespeare_char/prepare.py saves."""
    return {"vocab_size": len(characters), "itos": dict(enumerate(characters)),
            "stoi": {c: i for i, c in enumerate(characters)}}


def main() -> None:
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    model, optimizer = trained(SIZE)
    weights = {f"_orig_mod.{name}": weight for name, weight in model.state_dict().items()}
    torch.save(checkpoint(SIZE, weights, optimizer), FOLDER / "ckpt.pt")
    (FOLDER / "meta.pkl").write_bytes(pickle.dumps(meta(CHARACTERS)))
    ids = torch.randint(SIZE["vocab_size"], (3, SIZE["block_size"]))
    np.savez_compressed(FOLDER / "logits.npz", ids=ids, logits=model(ids).detach())
    for path in sorted(FOLDER.iterdir()):
        print(f"{path}: {path.stat().st_size / 1000:.1f} kB")


if __name__ == "__main__":
    main()
