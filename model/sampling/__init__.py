"""Text from a model: its cache of keys and values, sampling, and its loss on a text."""
