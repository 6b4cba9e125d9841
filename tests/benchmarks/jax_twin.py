"""The GPT-2 recipe in JAX, trained by one compiled step with optax's AdamW.

It is built from the fields of a TransformerConfig, so that nothing of minigrad is loaded.
Shapes: B batch, T time, H heads, D channels of a head, C channels, V classes.
"""
import os
from functools import partial
from types import SimpleNamespace

import numpy as np

EPS = 1e-5                  # added to a variance


class Jax:
    """JAX's side of a comparison.

    Parameters
    ----------
    config : the fields of a TransformerConfig.
    weights : name -> array, as `state_dict` returns them.
    threads : how many processors JAX may use.
    lr, betas, weight_decay : AdamW's.
    max_norm : that gradients are clipped to.
    others : what only other recipes need.

    Raises
    ------
    ValueError : the model has what this one has not.
    """

    def __init__(self, config, weights, threads, lr, betas, weight_decay, max_norm, **others):
        check(config, others)
        if hasattr(os, "sched_setaffinity"):        # by which JAX counts its threads
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        import jax
        import optax
        config = SimpleNamespace(**config)

        def optimizer(lr):
            return optax.chain(
                optax.clip_by_global_norm(max_norm),
                optax.adamw(lr, *betas, weight_decay=weight_decay, mask=are_matrices))

        # The weights and the optimiser's state are donated: updated where they are.
        @partial(jax.jit, donate_argnums=(0, 1))
        def step(weights, state, ids, targets, lr, key):
            loss, gradients = jax.value_and_grad(loss_of)(weights, ids, targets, config, key)
            updates, state = optimizer(lr).update(gradients, state, weights)
            return optax.apply_updates(weights, updates), state, loss

        self.weights = {name: jax.numpy.asarray(w.copy()) for name, w in weights.items()}
        self.state = optimizer(lr).init(self.weights)
        self.key = jax.random.key(0)
        self._step = step

    def step(self, ids, targets, lr, muon_lr=None, ahead=0.0):
        """Train on one batch (B, T) at this learning rate; return the loss before the step."""
        import jax
        self.key, key = jax.random.split(self.key)
        *trained, loss = self._step(self.weights, self.state, ids, targets, lr, key)
        self.weights, self.state = jax.block_until_ready(trained)
        return float(loss)


def check(config, others):
    """Raise a ValueError unless this file has what a model and its training need."""
    has = dict(position="learned", norm="layer", activation="gelu", bias=False, tied=True, ngrams=1,
               qk_norm=False, norm_eps=EPS)
    for name, value in has.items():
        if config[name] != value:
            raise ValueError(f"of {name} the twin in JAX has {value}, and not {config[name]}")
    if others.get("ahead"):
        raise ValueError("the twin in JAX predicts no more than the next character")
    if others.get("muon"):
        raise ValueError("the twin in JAX has no Muon")


def are_matrices(weights):
    """Which weights decay."""
    return {name: w.ndim == 2 for name, w in weights.items()}


def loss_of(weights, ids, targets, config, key):
    """The mean of -log softmax(logits)[target], (B, T), (B, T) -> ()."""
    import jax
    import jax.numpy as jnp
    keys = iter(jax.random.split(key, 3 * config.n_layer + 1))

    def dropout(x):
        if not config.dropout:
            return x
        kept = jax.random.bernoulli(next(keys), 1 - config.dropout, x.shape)
        return jnp.where(kept, x / (1 - config.dropout), 0)

    T = ids.shape[1]
    table = weights["token_embedding.weight"]
    x = dropout(table[ids] + weights["position_embedding.weight"][:T])         # (B, T, C)
    for i in range(config.n_layer):
        its = {name.removeprefix(f"blocks.{i}."): w for name, w in weights.items()}
        unit = normed(x, its["norm1.weight"])
        mixed = attention(unit @ its["attention.qkv.weight"].T, config.n_head, dropout)
        x = x + dropout(mixed @ its["attention.out.weight"].T)
        unit = normed(x, its["norm2.weight"])
        hidden = jax.nn.gelu(unit @ its["mlp.up.weight"].T, approximate=False)
        x = x + dropout(hidden @ its["mlp.down.weight"].T)
    logits = normed(x, weights["norm.weight"]) @ table.T                        # (B, T, V)
    logs = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logs, targets[..., None], axis=-1).mean()


def attention(qkv, heads, dropout):
    """Causal attention of packed queries, keys and values, (B, T, 3 C) -> (B, T, C)."""
    import jax
    import jax.numpy as jnp
    B, T, _ = qkv.shape
    q, k, v = jnp.moveaxis(qkv.reshape(B, T, 3, heads, -1), 2, 0)               # (B, T, H, D)
    scores = jnp.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    scores = jnp.where(np.tri(T, dtype=bool), scores, -jnp.inf)
    weights = dropout(jax.nn.softmax(scores))                                   # (B, H, T, T)
    return jnp.einsum("bhts,bshd->bthd", weights, v).reshape(B, T, -1)


def normed(x, weight):
    """Layer norm without a bias, (..., C), (C,) -> (..., C)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred * (variance + EPS) ** -0.5 * weight
