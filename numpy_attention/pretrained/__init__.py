"""Part V. Real weights: models of other programs, read into the layers of this book."""
