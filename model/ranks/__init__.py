"""Ranks: processes that train one model together, each with its rows of every batch."""
