"""A page a topic."""
