"""A room: what happens in a training step, and three small graphs, in numbers and words."""
