"""Single heads of attention, and heads side by side: the layer of `model/attention.py`, unpacked.

Shapes: T queries, S keys and values, H heads, D channels of a query or key.
"""
from collections.abc import Sequence

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad.module import Module
from model.attention import attention
from model.layers import Linear, Rng


class SelfAttention(Module):
    """One head that attends to every position: (..., T, d_in) -> (..., T, d_out).

    Source: Vaswani et al. 2017, section 3.2.1.
    """
    causal = False

    def __init__(self, d_in: int, d_out: int, qkv_bias: bool = False, dropout: float = 0.0,
                 rng: Rng = None, dtype: type = np.float32, d_context: int | None = None,
                 d_value: int | None = None) -> None:
        rng = np.random.default_rng(0) if rng is None else rng

        def linear(inputs, outputs):        # whose outputs have the inputs' scale
            return Linear(inputs, outputs, qkv_bias, rng, inputs ** -0.5, dtype)
        d_context = d_context or d_in
        self.query = linear(d_in, d_out)
        self.key = linear(d_context, d_out)
        self.value = linear(d_context, d_value or d_out)
        self.dropout = dropout

    def __call__(self, x: Tensor, rng: Rng = None, mask: np.ndarray | None = None) -> Tensor:
        """`mask` (bool) broadcasts to (..., T, T) and is true where a query may attend."""
        return self.attend(x, x, mask, rng)

    def attend(self, x: Tensor, context: Tensor, mask: np.ndarray | None, rng: Rng) -> Tensor:
        """Attend from x to a context."""
        if x.ndim < 2:
            raise ValueError(f"attention reads x (..., T, C), and this has shape {list(x.shape)}")
        query = self.query(x)
        key = self.key(context)
        value = self.value(context)
        return mg.scaled_dot_product_attention(query, key, value, mask, self.dropout, self.causal,
                                               rng=rng)

    def weights(self, x: Tensor, context: Tensor | None = None, mask: np.ndarray | None = None
                ) -> np.ndarray:
        """Return the weights with which `attend` mixes values, by the plain formula, without
        dropout: (..., T, d_in), (..., S, d_context) -> (..., T, S).  The context is x by default.
        """
        context = x if context is None else context
        if self.causal:
            seen = np.tri(x.shape[-2], context.shape[-2], dtype=bool)
            mask = seen if mask is None else seen & mask
        query = self.query(x)
        key = self.key(context)
        _, weights = attention(query, key, self.value(context), mask)
        return weights.data


class CausalAttention(SelfAttention):
    """One head with a causal mask, which attends to no later position:
    (..., T, d_in) -> (..., T, d_out).  T is at most `context_length`.  Without an rng nothing is
    dropped: layer(x, rng=rng) drops weights, and layer(x) is for use after training.

    Source: Vaswani et al. 2017, section 3.2.3 ("masking out (setting to -inf)").
    """
    causal = True

    def __init__(self, d_in: int, d_out: int, context_length: int, dropout: float = 0.0,
                 qkv_bias: bool = False, rng: Rng = None, dtype: type = np.float32) -> None:
        super().__init__(d_in, d_out, qkv_bias, dropout, rng, dtype)
        self.context_length = context_length

    def __call__(self, x: Tensor, rng: Rng = None, mask: np.ndarray | None = None) -> Tensor:
        if x.ndim > 1 and x.shape[-2] > self.context_length:
            raise ValueError(f"the input has {x.shape[-2]} positions; this attention was made for "
                             f"at most {self.context_length} (context_length)")
        return super().__call__(x, rng, mask)


class CrossAttention(SelfAttention):
    """Attention with queries from x, and keys and values from another sequence:
    (..., T, d_in), (..., S, d_context) -> (..., T, d_out).

    Source: Vaswani et al. 2017, section 3.2.3 ("encoder-decoder attention").
    """

    def __init__(self, d_in: int, d_out: int, d_context: int | None = None, qkv_bias: bool = False,
                 dropout: float = 0.0, rng: Rng = None, dtype: type = np.float32) -> None:
        super().__init__(d_in, d_out, qkv_bias, dropout, rng, dtype, d_context)

    def __call__(self, x: Tensor, context: Tensor, mask: np.ndarray | None = None,
                 rng: Rng = None) -> Tensor:
        """`mask` (bool) broadcasts to (..., T, S) and is true where a query may attend.

        To batch contexts of different lengths, pad the shorter ones.  A mask (B, 1, S) that is
        false at the padding then hides it from every query.
        """
        return self.attend(x, context, mask, rng)


class StackedHeads(Module):
    """Single heads of any kind side by side, then an optional output projection:
    concat(head_1, ..., head_H) W^O, (..., T, d_in) -> (..., T, H D) -> (..., T, outputs).

    Pass one generator to all heads; without one, all heads start with the same weights:
    `StackedHeads([SelfAttention(C, D, rng=rng) for _ in range(H)], Linear(H * D, C, False, rng))`.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, heads: Sequence[Module], out: Linear | None = None) -> None:
        self.heads = list(heads)
        self.out = out

    def __call__(self, *sequences: Tensor, mask: np.ndarray | None = None,
                 rng: Rng = None) -> Tensor:
        """Call every head with the same arguments."""
        each = [head(*sequences, mask=mask, rng=rng) for head in self.heads]
        mixed = mg.concatenate(each, axis=-1)
        return mixed if self.out is None else self.out(mixed)

    def weights(self, x: Tensor, context: Tensor | None = None, mask: np.ndarray | None = None
                ) -> np.ndarray:
        """Return every head's attention weights: (..., H, T, S).  The context is x by default."""
        each = [head.weights(x, context, mask) for head in self.heads]
        return np.stack(each, axis=-3)
