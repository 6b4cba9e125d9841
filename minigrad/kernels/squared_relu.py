"""The squared ReLU (So et al. 2021, "Primer", section 3.2).

In plain NumPy:  y = np.maximum(x, 0)**2;  dy/dx = 2 * np.maximum(x, 0) = 2 * np.sqrt(y).
"""
import numpy as np

from minigrad.kernels.build.compiling import serial


@serial
def squared_relu(x, real):
    """Return the squared ReLU of a number; nan stays nan."""
    positive = real(0) if x < real(0) else x
    return positive * positive


@serial
def slope_where(y, real):
    """Return its derivative at the point where its value is y."""
    return real(2) * np.sqrt(y)
