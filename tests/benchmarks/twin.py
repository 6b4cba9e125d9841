"""The transformer on PyTorch's own layers, trained and sampled as nanoGPT does it.

Shapes: B batch, T time, C channels, V classes.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.benchmarks.sizes import MAX_NORM, OPTIMIZER, VOCABULARY, Size


class Attention(nn.Module):
    """Causal attention of many heads: (B, T, C) -> (B, T, C)."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        C = size.channels
        self.heads, self.p = size.heads, size.dropout
        self.qkv, self.out = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(C, dim=2))                     # (B, H, T, D)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                               dropout_p=self.p if self.training else 0.0)
        return self.dropout(self.out(mixed.transpose(1, 2).reshape(B, T, C)))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): (B, T, C) -> (B, T, C)."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        C = size.channels
        self.norm1, self.norm2 = nn.LayerNorm(C, bias=False), nn.LayerNorm(C, bias=False)
        self.attention = Attention(size)
        self.mlp = nn.ModuleDict({"up": nn.Linear(C, 4 * C, bias=False),
                                  "down": nn.Linear(4 * C, C, bias=False)})
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.dropout(self.mlp["down"](F.gelu(self.mlp["up"](self.norm2(x)))))


class Twin(nn.Module):
    """model.Transformer without biases; parameters have the same names."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.block_size = size.block
        self.token_embedding = nn.Embedding(VOCABULARY, size.channels)
        self.position_embedding = nn.Embedding(size.block, size.channels)
        self.dropout = nn.Dropout(size.dropout)
        self.blocks = nn.ModuleList([Block(size) for _ in range(size.layers)])
        self.norm = nn.LayerNorm(size.channels, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        """The loss; without targets, logits of the last position alone, (B, 1, V)."""
        x = self.token_embedding(ids) + self.position_embedding(torch.arange(ids.shape[1]))
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x if targets is not None else x[:, -1:])
        logits = F.linear(x, self.token_embedding.weight)
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    @torch.no_grad()
    def generate(self, ids: torch.Tensor, count: int) -> torch.Tensor:
        """Ids (B, T) and `count` more, each from the last block_size before it; no cache."""
        for _ in range(count):
            logits = self(ids[:, -self.block_size:])[:, -1]
            drawn = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
            ids = torch.cat([ids, drawn], dim=1)
        return ids


class PyTorch:
    """PyTorch's side of a comparison."""

    def __init__(self, size: Size, mode: str, weights: dict[str, np.ndarray]) -> None:
        self.twin = Twin(size)
        self.twin.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
        self.loss = torch.compile(self.twin) if "compiled" in mode else self.twin
        self.autocast = torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in mode)
        groups = [{"params": [p for p in self.twin.parameters() if p.ndim >= 2]},
                  {"params": [p for p in self.twin.parameters() if p.ndim < 2],
                   "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, **OPTIMIZER, fused=True)

    def ready(self) -> None:
        """All is loaded."""

    def step(self, ids: np.ndarray, targets: np.ndarray) -> float:
        """Train on one batch (B, T); returns the loss before."""
        self.twin.train()
        with self.autocast:
            loss = self.loss(torch.from_numpy(ids), torch.from_numpy(targets))
        loss.backward()
        nn.utils.clip_grad_norm_(self.twin.parameters(), MAX_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def generate(self, ids: np.ndarray, count: int) -> None:
        """Draw `count` characters after ids (B, T)."""
        self.twin.eval()
        self.twin.generate(torch.from_numpy(ids), count)
