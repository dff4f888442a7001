"""What a long run needs around the loop: settings, threads, ranks, checkpoints, a log, and a way back after a kill."""
