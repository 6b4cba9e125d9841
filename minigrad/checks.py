"""What parameters and settings must be so that an optimiser can step them."""
import math
from numbers import Real
from typing import Any

import numpy as np

from minigrad.core import Tensor

NUMBERS = "lr", "momentum", "eps", "weight_decay"       # of an optimiser's settings, from 0 on


def check_settings(group: dict[str, Any]) -> None:
    """Raise a ValueError unless the settings of a group are numbers of which a step can be made."""
    for name in NUMBERS:
        value = group.get(name, 0)
        if not isinstance(value, (float, int, Real)) or not 0 <= value < math.inf:
            raise ValueError(f"{name} is a finite number of at least 0, not {value!r}")
    betas = group.get("betas", (0, 0))
    if not isinstance(betas, (tuple, list)) or len(betas) != 2 or not all(
            isinstance(beta, (float, int, Real)) and 0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas are two numbers of at least 0 and below 1, not {betas!r}")


def check_parameters(parameters: list[Tensor]) -> None:
    """Raise a ValueError unless these are different leaves of one float type; make their data
    dense, so that a step can update it."""
    places = {}             # of their nodes
    for i, p in enumerate(parameters):
        if not isinstance(p, Tensor) or p.node is None or p.node.op != "leaf":
            raise ValueError("a parameter is a Tensor that was made with requires_grad=True; "
                             f"parameter {i} is {p!r}")
        if p.node in places:
            raise ValueError(f"parameter {i} is parameter {places[p.node]} again, and would be "
                             "stepped twice; give each once")
        if p.node.dtype != parameters[0].node.dtype:
            raise ValueError("an optimiser steps parameters of one float type; parameter 0 is "
                             f"{parameters[0].node.dtype}, and parameter {i} {p.node.dtype}; "
                             "make an optimiser for each type")
        places[p.node] = i
        p.data = dense(p, i, "data", p.data)


def can_be_updated(p: Tensor, *arrays: np.ndarray) -> bool:
    """Whether a step can update these arrays of a parameter, whatever computes it."""
    shape, dtype = p.node.shape, p.node.dtype
    for array in arrays:
        if (type(array) is not np.ndarray or array.shape != shape or array.dtype is not dtype
                or not array.flags.carray):
            return False
    return True


def dense(p: Tensor, i: int, kind: str, array: np.ndarray) -> np.ndarray:
    """Return an array of parameter i, or a copy, so that a step can update it."""
    array = np.require(array, requirements="CAW")
    check_shape_and_type(p, i, kind, array)
    return array


def check_shape_and_type(p: Tensor, i: int, kind: str, array: np.ndarray) -> None:
    """Raise a ValueError unless an array of parameter i is as p was made, as its gradients are."""
    shape, dtype = p.node.shape, p.node.dtype
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"parameter {i} was made as {dtype}{list(shape)}, and its {kind} is "
                         f"{array.dtype}{list(array.shape)}; give it that shape and type again, as "
                         f"with array.astype(np.{dtype}), or make a new Tensor and a new optimiser")
