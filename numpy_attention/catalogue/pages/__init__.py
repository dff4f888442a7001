"""One page for each topic: entries, trials, exercises and known mistakes of ops, layers and models."""
