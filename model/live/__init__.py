"""A live page: a trained model in one HTML file, to type into and to take apart."""
