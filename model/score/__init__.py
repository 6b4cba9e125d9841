"""A room: how well a model predicts a text: model.sample --score."""
