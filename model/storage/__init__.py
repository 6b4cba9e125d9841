"""Files on disk: checkpoints, and files that are whole or absent."""
