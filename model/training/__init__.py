"""Training: settings, recipes, a run and its state, and the checks before and during a run."""
