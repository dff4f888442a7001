"""The pages of the chapters, and for each page a module with the functions that its tables name; see README.md."""
