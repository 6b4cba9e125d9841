"""What each kernel computes, in plain NumPy, under the kernel's own name."""
from minigrad import kernels
from minigrad.kernels.dropout import plain_keep as keep     # noqa: F401

globals().update({name: getattr(kernels, name).plain for name in kernels.__all__})
