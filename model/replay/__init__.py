"""Replay: a step whose loss or gradient was not finite, taken again to find the op that made it."""
