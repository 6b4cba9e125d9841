"""Watching a computation: lines of source, time by op, the recorded graph and its drawing."""
