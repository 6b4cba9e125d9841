"""Adapters: a few numbers are trained beside a model whose weights stay as they are (LoRA)."""
