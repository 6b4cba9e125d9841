"""A page to look into a trained model."""
