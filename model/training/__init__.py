"""Training: settings, recipes, a run and what it keeps, and the checks before and on the way."""
