"""model.sample --interactive: beginnings typed at a terminal, each continued by the model."""
