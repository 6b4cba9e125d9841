"""A walk through attention: stations, pictures, exercises."""
