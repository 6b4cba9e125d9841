"""What stands between a person and a command: flags, and mistakes answered in a line."""
