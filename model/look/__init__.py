"""Views into a model: the page, and recorded graphs."""
