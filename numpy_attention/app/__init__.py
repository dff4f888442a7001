"""The command line and the pictures: `main` has the commands, `plots` the figures."""
