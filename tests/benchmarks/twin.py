"""The transformer on PyTorch's own layers, trained and sampled as in nanoGPT; and `transformers`.

It is built from the fields of a TransformerConfig, so that nothing of minigrad is loaded.
Shapes: B batch, T time, H heads, D channels of a head, C channels, V classes.
"""
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.benchmarks.sizes import TEMPERATURE

EPS = 1e-5                  # added to a variance
ROTARY_BASE = 10_000.0
MOMENTUM = 0.95             # of Muon
A, B, C = 3.4445, -4.7750, 2.0315      # of its Newton-Schulz steps
STEPS = 3                   # of these
TINY = 1e-7
FNV_BASIS, FNV_PRIME = np.uint64(0xcbf29ce484222325), np.uint64(0x100000001b3)


class Attention(nn.Module):
    """Causal attention of many heads: (B, T, C) -> (B, T, C)."""

    def __init__(self, config):
        super().__init__()
        C, bias = config.n_embd, config.bias
        self.heads, self.p, self.qk_norm = config.n_head, config.dropout, config.qk_norm
        self.qkv, self.out = nn.Linear(C, 3 * C, bias=bias), nn.Linear(C, C, bias=bias)
        self.dropout = nn.Dropout(config.dropout)
        turns = None
        if config.position == "rotary":
            D = C // config.n_head
            angles = (torch.arange(config.block_size, dtype=torch.float64)[:, None]
                      * ROTARY_BASE ** (-2 * torch.arange(D // 2, dtype=torch.float64) / D))
            turns = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)[:, None]
        self.register_buffer("turns", turns, persistent=False)                  # (T, 1, D / 2)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).unbind(2)           # (B, T, H, D)
        mixed = F.scaled_dot_product_attention(
            self.prepared(q).transpose(1, 2), self.prepared(k).transpose(1, 2), v.transpose(1, 2),
            is_causal=True, dropout_p=self.p if self.training else 0.0)         # (B, H, T, D)
        return self.dropout(self.out(mixed.transpose(1, 2).reshape(B, T, C)))

    def prepared(self, x):
        """Queries or keys brought to one size and turned by their positions, or as they are."""
        if self.qk_norm:
            x = F.rms_norm(x, x.shape[-1:], eps=EPS)
        if self.turns is not None:
            pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
            x = torch.view_as_real(pairs * self.turns[:x.shape[1]]).flatten(-2).type_as(x)
        return x


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): (B, T, C) -> (B, T, C)."""

    def __init__(self, config):
        super().__init__()
        C, bias = config.n_embd, config.bias
        self.norm1, self.norm2 = norm(config), norm(config)
        self.attention = Attention(config)
        self.mlp = nn.ModuleDict({"up": nn.Linear(C, 4 * C, bias=bias),
                                  "down": nn.Linear(4 * C, C, bias=bias)})
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.dropout(self.mlp["down"](self.activation(self.mlp["up"](self.norm2(x)))))


class NGramEmbedding(nn.Embedding):
    """The sum of a row for each n-gram that a character ends, from pairs to n characters:
    (B, T) -> (B, T, C)."""

    def __init__(self, n, rows, channels, dropout):
        super().__init__(rows, channels)
        self.n, self.dropout = n, nn.Dropout(dropout)

    def forward(self, ids):
        rows = torch.from_numpy(self.rows(ids.numpy())).flatten(0, 1)
        kept = self.dropout(torch.ones(rows.shape)) if self.training and self.dropout.p else None
        return F.embedding_bag(rows, self.weight, mode="sum",
                               per_sample_weights=kept).view(*ids.shape, -1)

    @torch.compiler.disable         # which cannot compile arithmetic of 64 bits without a sign
    def rows(self, ids):
        """Which rows are summed, by FNV-1a of 64 bits: (B, T) -> (B, T, n - 1)."""
        T, found = ids.shape[1], []
        hashes = np.full(ids.shape, FNV_BASIS)
        for back in range(self.n):
            before = np.zeros(ids.shape, np.uint64)
            before[:, back:] = ids[:, :max(0, T - back)] + 1
            hashes = (hashes ^ before) * FNV_PRIME
            found.append((hashes ^ hashes >> np.uint64(32)) % np.uint64(self.num_embeddings))
        return np.stack(found[1:], axis=-1).astype(np.int64)


class Twin(nn.Module):
    """model.Transformer, with the options that model/config.py says are known to TWIN; parameters
    have the same names.  It predicts as many characters after the next one as `ahead`."""

    def __init__(self, config, ahead=0):
        super().__init__()
        C = config.n_embd
        self.token_embedding = nn.Embedding(config.vocab_size, C)
        if config.ngrams > 1:
            self.ngram_embedding = NGramEmbedding(config.ngrams, config.ngram_rows, C,
                                                  config.ngram_dropout)
        if config.position == "learned":
            self.position_embedding = nn.Embedding(config.block_size, C)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.norm = norm(config)
        self.ahead = nn.ModuleList([nn.Linear(C, config.vocab_size, bias=False)
                                    for _ in range(ahead)])
        self.config = config

    def forward(self, ids, targets=None, ahead=0.0):
        """The loss; without targets, logits of the last position alone, (B, 1, V).  The characters
        after the next one count in the gradient, the first as `ahead`, each further one half."""
        x = self.hidden(ids)
        if targets is None:
            return self.logits(x[:, -1:])
        loss = mean_loss(self.logits(x), targets)
        if ahead:
            x = self.norm(x)
            for k, predict in enumerate(self.ahead, 1):
                further = mean_loss(predict(x[:, :-k]), targets[:, k:])
                loss = loss + ahead / 2 ** (k - 1) * (further - further.detach())
        return loss

    def hidden(self, ids):
        """The output of the last block, (B, T) -> (B, T, C)."""
        x = self.token_embedding(ids)                                           # (B, T, C)
        if self.config.ngrams > 1:
            x = x + self.ngram_embedding(ids)
        if self.config.position == "learned":
            x = x + self.position_embedding(torch.arange(ids.shape[1]))
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        return x

    def logits(self, x):
        """(B, T, C) -> (B, T, V)."""
        return F.linear(self.norm(x), self.token_embedding.weight)


def mean_loss(logits, targets):
    """(B, T, V), (B, T) -> ()."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def norm(config):
    """Over C channels: LayerNorm, or RMSNorm, which learns nothing."""
    if config.norm == "rms":
        return nn.RMSNorm(config.n_embd, eps=EPS, elementwise_affine=False)
    return nn.LayerNorm(config.n_embd, eps=EPS, bias=config.bias)


ACTIVATIONS = {"gelu": F.gelu, "relu2": lambda x: F.relu(x).square()}


class Muon:
    """Momentum, made orthogonal: the steps of minigrad.Muon, but for all matrices of
    a shape at once.  Shapes: N matrices, M rows, K >= M columns.

    Parameters
    ----------
    matrices : each with the rows of a section of it, which is a matrix by itself.
    equal_rows : whether the rows of each step get the same length.
    """

    def __init__(self, matrices, weight_decay, equal_rows):
        self.matrices, self.weight_decay = matrices, weight_decay
        self.equal_rows = equal_rows
        self.params = _by_shape([(p.detach(), rows) for p, rows in matrices])
        self.momenta = [torch.zeros(len(group), *wide(group[0]).shape) for group in self.params]
        self.scales = [torch.tensor([max(1, p.shape[0] / p.shape[1]) ** 0.5 for p in group])
                       .view(-1, 1, 1) for group in self.params]

    @torch.no_grad()
    def step(self, lr):
        """Step every matrix."""
        gradients = _by_shape([(p.grad, rows) for p, rows in self.matrices])
        for group, g, m, scale in zip(self.params, gradients, self.momenta, self.scales):
            g = torch.stack([wide(x) for x in g])                              # (N, M, K)
            m.mul_(MOMENTUM).add_(g)
            steps = orthogonalize(g.add_(m, alpha=MOMENTUM)).mul_(lr * scale)
            steps = [step if step.shape == p.shape else step.T for step, p in zip(steps, group)]
            if self.equal_rows:
                steps = map(equalized, steps)
            torch._foreach_mul_(group, 1 - lr * self.weight_decay)
            torch._foreach_sub_(group, [*steps])


def orthogonalize(x):
    """About U V^T for each x = U S V^T: (N, M, K) -> (N, M, K)."""
    N, M, K = x.shape
    x = x / (x.flatten(1).norm(dim=1) + TINY).view(N, 1, 1)
    if 2 * K <= 3 * M:
        for _ in range(STEPS):
            gram = torch.bmm(x, x.mT)
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
        return x
    gram, every = torch.bmm(x, x.mT), None                                      # (N, M, M)
    for step in range(STEPS):       # on the gram, which takes fewer multiplications
        P = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        P.diagonal(dim1=1, dim2=2).add_(A)
        every = P if every is None else torch.bmm(P, every)
        if step < STEPS - 1:
            gram = torch.bmm(torch.bmm(P, gram), P)
    return torch.bmm(every, x)


def equalized(x):
    """A matrix whose rows have the same length, which is as long as the given one."""
    lengths = x.norm(dim=1, keepdim=True)
    return x * (lengths.square().mean().sqrt() / (lengths + TINY))


def wide(x):
    """Return a matrix, or its transpose, with no more rows than columns."""
    return x if x.shape[0] <= x.shape[1] else x.T


def _by_shape(tensors):
    """Return views of all sections, in a list for each shape of `wide`."""
    groups = {}
    for tensor, rows in tensors:
        for section in tensor.split(rows):
            groups.setdefault(wide(section).shape, []).append(section)
    return list(groups.values())


class PyTorch:
    """PyTorch's side of a comparison.

    Parameters
    ----------
    config : the fields of a TransformerConfig.
    lr, betas, weight_decay : AdamW's.
    max_norm : that gradients are clipped to.
    muon : whether the matrices of the blocks are Muon's; equal_rows : of its steps.
    ngram_decay : the weight decay of the n-gram table.
    ahead : how many characters after the next one are predicted.
    """

    def __init__(self, config, mode, weights, lr, betas, weight_decay, max_norm, muon, ngram_decay,
                 equal_rows, ahead):
        self.twin = Twin(SimpleNamespace(**config), ahead)
        self.twin.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
        self.loss = torch.compile(self.twin) if mode == "compiled" else self.twin
        self.max_norm = max_norm
        matrices, groups = [], {}
        for name, p in self.twin.named_parameters():
            if muon and name.startswith("blocks") and p.ndim == 2:
                sections = 3 if name.endswith("qkv.weight") else 1
                matrices.append((p, len(p) // sections))
                continue
            decay = weight_decay if p.ndim == 2 else 0.0
            if name.startswith("ngram_embedding"):
                decay = ngram_decay
            groups.setdefault(decay, []).append(p)
        self.adamw = torch.optim.AdamW(
            [{"params": params, "weight_decay": decay} for decay, params in groups.items()],
            lr, betas, fused=True)
        self.muon = Muon(matrices, weight_decay, equal_rows)
        self.best = None

    def step(self, ids, targets, lr, muon_lr, ahead=0.0):
        """Train on one batch (B, T) at these learning rates; return the loss before the step."""
        self.twin.train()
        loss = self.loss(torch.from_numpy(ids), torch.from_numpy(targets), ahead)
        loss.backward()
        nn.utils.clip_grad_norm_(self.twin.parameters(), self.max_norm)
        for group in self.adamw.param_groups:
            group["lr"] = lr
        self.adamw.step()
        self.muon.step(muon_lr)
        self.twin.zero_grad(set_to_none=True)
        return loss.item()

    @torch.no_grad()
    def evaluate(self, x, y, batch_size):
        """Mean loss over windows (N, T), in nats per target that counts."""
        self.twin.eval()
        counted = [(y[at:at + batch_size] >= 0).sum() for at in range(0, len(y), batch_size)]
        losses = [self.twin(*map(torch.from_numpy, (x[at:at + batch_size], y[at:at + batch_size])))
                  .item() for at in range(0, len(x), batch_size)]
        return float(np.dot(losses, counted) / sum(counted))

    def keep(self):
        """Remember the weights as the best."""
        self.best = {name: p.clone() for name, p in self.twin.state_dict().items()}

    def go_back(self):
        """To the best weights."""
        self.twin.load_state_dict(self.best)

    @torch.no_grad()
    def generate(self, ids, count):
        """Draw `count` characters after ids (B, T), each from block_size before it; no cache."""
        self.twin.eval()
        ids = torch.from_numpy(ids)
        for _ in range(count):
            logits = self.twin(ids[:, -self.twin.config.block_size:])[:, -1]
            drawn = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
            ids = torch.cat([ids, drawn], dim=1)


class Pretrained:
    """The model of a folder of Hugging Face, on the library `transformers`."""

    def __init__(self, path):
        from transformers import AutoModelForCausalLM
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.model.generation_config.eos_token_id = None        # which would end a text early

    @torch.inference_mode()
    def logits(self, ids):
        """Return the logits of the next token, (B, T) -> (B, V)."""
        return self.model(torch.from_numpy(ids), logits_to_keep=1).logits[:, -1].numpy()

    @torch.inference_mode()
    def generate(self, ids, count):
        """Draw tokens after ids (B, T), with the library's cache; return all, (B, T + count)."""
        ids = torch.from_numpy(ids)
        return self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=True,
            temperature=TEMPERATURE, top_k=0, pad_token_id=0).numpy()
