"""What a student's file may take: memory, and processor time."""

MEMORY = 1 << 31  # bytes of addresses, for the Python of the worker with NumPy and all


def limit_process(seconds: float, memory: int = MEMORY) -> None:
    """From now on this process, and each of its children, is refused memory beyond that, and ended after that time.

    Where the system has no such limits (Windows), there are none.
    """
    try:
        import resource
    except ImportError:
        return
    wanted = {"RLIMIT_AS": memory, "RLIMIT_CPU": int(seconds) + 2, "RLIMIT_CORE": 0}
    for name, most in wanted.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # macOS knows RLIMIT_AS by name, and refuses it
            continue
