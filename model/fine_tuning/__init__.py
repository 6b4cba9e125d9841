"""A room: fine-tuning, where a new run starts from the weights of a checkpoint."""
