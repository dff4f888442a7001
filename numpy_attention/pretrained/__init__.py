"""Part V. Real weights: models from other programs, loaded into the layers of this book."""
