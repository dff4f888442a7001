"""A page for each topic: what is claimed of an op, a layer or a model, and how it is held."""
