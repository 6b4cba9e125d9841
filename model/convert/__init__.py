"""Formats of files that hold a model.  Each module reads one as a Found; some write one, too."""
