"""Further examples, for kernels: rows that fill no whole vector or tile, more than one block, none.

They are written as those of op_examples.py.  What is expected is the value of the formula.
"""
import numpy as np

from tests.checking import frozen
from tests.minigrad.op_examples import Constant, Drawn, Normal, Whole, call, ints

PRODUCTS = [            # (N for stacks, M, K, P).  Of the last, less than K is packed at a time.
    (1, 1, 1),
    (4, 69, 40, 70),
    (3, 17, 900, 33),
    (2, 33, 0, 17),
    (3, 0, 5, 9),
    (64, 640, 0),
    (2, 2, 50, 857, 31),
    (4, 7, 3, 2),
    (300, 16, 64),
    (200, 500, 300),
    (8, 400, 1500),
]
MLPS = [                # (M, K, F, P)
    (1, 1, 1, 1),
    (50, 0, 7, 3),
    (7, 900, 40, 65),
    (300, 60, 65, 30),
]
NORMED = [
    (1, 1, 1),
    (1, 5, 7),
    (2, 3, 33),
    (1, 300, 65),
]
ATTENDED = [            # (B, H, T, S, D, E)
    (1, 1, 1, 1, 1, 1),
    (2, 3, 50, 50, 5, 5),
    (1, 2, 7, 130, 8, 3),
    (2, 1, 100, 20, 16, 20),
    (2, 4, 64, 64, 32, 32),
    (2, 4, 9, 40, 8, 8),
    (2, 6, 40, 12, 8, 8),
    (3, 4, 60, 60, 4, 7),
    (2, 2, 5, 0, 4, 3),
    (2, 2, 0, 5, 4, 4),
    (0, 4, 5, 5, 4, 4),
    (1, 2, 0, 0, 4, 4),
]
PACKED = [              # (T, H, G)
    (7, 4, 4),
    (70, 4, 2),
    (70, 6, 3),
    (40, 4, 1),
    (130, 2, 1),
    (0, 4, 2),
]
BAGS = [                # (V, R, n, C)
    (5, 200, 1, 3),
    (1, 30, 7, 1),
    (5, 3, 2, 0),
    (65, 1400, 3, 64),
]
TURNED = [              # (shape, heads, D)
    ((1, 2), 1, 2),
    ((3, 5, 20), 3, 6),
    ((2, 2, 70, 48), 4, 8),
    ((5, 90, 300), 6, 32),
]
FAR = np.concatenate([np.linspace(-12, 12, 50_001), [0, -0.0, 1e-30, 1e4, -1e4]])


def Hidden(H, T, S):
    """A mask of 0 and -inf that lets one query see nothing, in the order of columns."""
    def draw(rng):
        mask = np.where(rng.random((H, S, T)) < 0.3, -np.inf, 0).swapaxes(1, 2)
        mask[:, T // 2:T // 2 + 1] = -np.inf
        return mask
    return Constant(Drawn(draw))


def some_targets(rng):
    """Targets among 65, of which every fifth does not count."""
    targets = rng.integers(65, size=300)
    targets[::5] = -100
    return targets


RAGGED = [
    call("matmul", Normal(2, 50, 70), Normal(70, 31)),
    call("linear", Normal(7, 900), Normal(40, 900)),
    call("linear", Normal(2, 3, 90), Normal(40, 90), Normal(40)),
    call("dropout", Normal(100_003), 0.2, rng=frozen),
    call("dropout", Normal(1000), 0.999, rng=frozen),
    call("rms_norm", Normal(1, 1), Normal(1), eps=0.001),
    call("rms_norm", Normal(2, 3, 33), Normal(33), eps=0.001),
    call("rms_norm", Normal(300, 65), Normal(65), eps=0.001),
    call("rotary", Normal(3, 5, 20), 3, 4),
    call("rotary", Normal(2, 2, 70, 48), 6, 8),
    call("rotary", Normal(5, 90, 300), 5, 40),
    call("cross_entropy", Normal(1, 1), ints([0])),
    *[call("softmax", Normal(*shape, std=5))
      for shape in ((1, 1), (3, 0), (5, 7), (2, 3, 33), (300, 65))],
    call("softmax", Normal(3, 33, mean=-300)),
    call("softmax", Normal(3, 16, mean=300)),
    call("cross_entropy", Normal(7, 20, mean=-300), np.arange(7)),
    call("cross_entropy", Normal(300, 65, std=4), Drawn(some_targets)),
    *[call(name, Normal(5, 7, std=300)) for name in ("sigmoid", "silu")],
    call("gelu", FAR),
    call("gelu", FAR, approximate="tanh"),
    *[call("matmul", Normal(*stack, M, K), Normal(*stack, K, P)) for *stack, M, K, P in PRODUCTS],
    *[call("mlp", Normal(M, K), Normal(F, K, std=1 / 9), Normal(F), Normal(P, F, std=1 / 9),
           Normal(P), activation)
      for M, K, F, P in MLPS
      for activation in ("gelu", "gelu_tanh", "relu2")],
    *[call("swiglu", Normal(*shape, std=300), Normal(*shape))       # whose exponentials overflow
      for shape in ((1, 1), (7, 33), (700, 65))],
    *[call("layer_norm", Normal(*shape), Normal(shape[-1]), Normal(shape[-1]), eps=1e-3)
      for shape in NORMED],
    *[call("scaled_dot_product_attention", Normal(B, H, T, D), Normal(B, H, S, D),
           Normal(B, H, S, E), Hidden(H, T, S) if masked else None, p, causal, None, frozen)
      for B, H, T, S, D, E in ATTENDED
      for causal, masked, p in ((True, False, 0), (False, True, 0), (True, True, 0.3))],
    # A mask of its own for each text, and for each head.
    *[call("scaled_dot_product_attention", *[Normal(2, 2, 5, 4)] * 3, Constant(Normal(2, H, 5, 5)))
      for H in (1, 2)],
    # Scores of -121, -132 and -144, without rounding.
    call("scaled_dot_product_attention", Drawn(lambda rng: 11.0 + rng.integers(2, size=(2, 40, 1))),
         Drawn(lambda rng: -11.0 - rng.integers(2, size=(2, 40, 1))), Normal(2, 40, 5, std=0.1),
         is_causal=True),
    *[call("scaled_dot_product_attention", *[Normal(1, 2, 40, 8)] * 3, is_causal=True, scale=scale)
      for scale in (-0.7, 0.0)],        # which must hide no other keys than a positive one
    *[call("self_attention", Normal(2, T, 24), H, G, p, causal, frozen)
      for T, H, G in PACKED
      for causal, p in ((False, 0), (True, 0.3))],
    *[call("qk_norm", Normal(*shape), heads, D, base, 1e-3)
      for base in (None, 1e3)
      for shape, heads, D in TURNED],
    *[call("embedding_bag", Whole(V, R, n), Normal(V, C, std=1 - p), p, frozen)
      for V, R, n, C in BAGS
      for p in (0.0, 0.4, 0.999)],
]
