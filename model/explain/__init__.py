"""A room: one training step, explained from the text to the changed weights, in a terminal."""
