"""The pages of the chapters, and modules with the functions that their tables name; see README.md."""
