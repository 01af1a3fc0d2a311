"""Jobs at an even pace."""

import time


def now():
    """Milliseconds of a clock that no wall clock moves and that all processes share."""
    return time.monotonic_ns() / 1e6


def paced(rate, seconds):
    """The moments at which to add a job: so many a second for so many seconds."""
    begun = now()
    for number in range(rate * seconds):
        wait = begun + number * 1_000 / rate - now()
        if wait > 0:
            time.sleep(wait / 1_000)
        yield now()
