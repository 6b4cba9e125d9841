"""Where a transformer's parameters are, and what a token costs."""
