"""Views into a model: the page, the graphs and one explained step."""
