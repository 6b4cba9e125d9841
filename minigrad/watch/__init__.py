"""Watching a computation: events of ops, lines of source, time by op, the recorded graph."""
