"""model.sample --chat: a question, put as the model's chat template puts it, and the answer."""
