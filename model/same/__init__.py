"""Whether this machine computes the bits that are published."""
