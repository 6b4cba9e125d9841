"""The KV cache: keys and values are kept, and a compiled kernel draws from them."""
