"""A room: texts in folders and by patterns, and known texts that are downloaded."""
