"""The squared ReLU (So et al. 2021, "Primer", section 3.2).

In plain NumPy:  y = np.maximum(x, 0)**2;  dy/dx = 2 * np.maximum(x, 0).
"""
from minigrad.kernels.compiling import serial


@serial
def square_and_slope(x, real):
    """The squared ReLU of a number and its derivative there; nan stays nan."""
    positive = real(0) if x < real(0) else x
    return positive * positive, real(2) * positive
