"""Several models as one, which predicts the mean of their probabilities."""
