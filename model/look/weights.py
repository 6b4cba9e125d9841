"""The weights of a model for a page: bytes with a scale for each row, and what the rounding costs.

Shapes: R rows, K numbers of a row.
"""
import zlib
from typing import Any

import numpy as np

from model.transformer import Transformer

SMALL = 1_000_000       # bytes of float32 up to which nothing is rounded
LARGEST = 127           # of the whole numbers in a byte, with either sign


def fits_unrounded(model: Transformer) -> bool:
    """Whether the model is so small that its weights stay float32."""
    return 4 * sum(p.size for p in model.parameters()) < SMALL


def quantized(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers and the scale of each row, (R, K) -> (R, K) int8, (R,) float32, so that
    their product is near the weight: at most half a scale away."""
    scales = (abs(weight).max(axis=1) / LARGEST).astype(np.float32)
    return np.rint(weight / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8), scales


def rounded(model: Transformer) -> Transformer:
    """Return the model that the page computes: of the same weights, as `packed` rounds them."""
    weights = {name: p.data.astype(np.float32) for name, p in model.named_parameters()}
    if not fits_unrounded(model):
        for name, weight in weights.items():
            if weight.ndim == 2:
                whole, scales = quantized(weight)
                weights[name] = whole * scales[:, None]
    found = Transformer(model.config, dtype=None)
    found.load_state_dict(weights, assign=True)
    return found


def packed(model: Transformer,
           beside: Transformer | None = None) -> tuple[list[dict[str, Any]], bytes]:
    """Return the name and shape of each parameter, in their order, and their numbers, deflated:
    float32, or the float32 scales of the rows and then bytes.  Each begins at a multiple of 4.  The
    names of a second model begin with "beside."."""
    tensors, arrays = [], []
    models = {"": model} | ({"beside.": beside} if beside else {})
    for prefix, each in models.items():
        for name, p in each.named_parameters():
            exact = p.data.ndim < 2 or fits_unrounded(each)
            tensors.append({"name": prefix + name, "shape": p.shape, "exact": exact})
            whole, scales = (p.data[:0], p.data) if exact else quantized(p.data)
            arrays += [scales.astype("<f4").tobytes(), whole.tobytes(), bytes(-whole.size % 4)]
    return tensors, zlib.compress(b"".join(arrays), 9)


def size_in_page(model: Transformer) -> int:
    """Return about how many bytes of a page the weights take, in base64."""
    numbers = sum(p.size for p in model.parameters())
    return numbers * (4 if fits_unrounded(model) else 1) * 4 // 3
