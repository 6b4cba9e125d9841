"""Text from a model: its cache of keys and values, what comes next, and how well it predicts."""
