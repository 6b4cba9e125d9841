"""An encoder-decoder that learns to reverse strings."""
