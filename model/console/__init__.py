"""Command lines: flags, and one-line answers to mistakes."""
