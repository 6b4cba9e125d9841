"""A room: n-grams counted in the training text, mixed into a prediction: model.sample --counted."""
