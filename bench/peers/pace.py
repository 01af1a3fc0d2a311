"""Adds jobs at a constant rate."""

import time


def now():
    """Returns milliseconds of a monotonic clock that all processes share."""
    return time.monotonic_ns() / 1e6


def paced(rate, seconds):
    """Yields the times at which to add a job: `rate` per second, for `seconds` seconds."""
    begun = now()
    for number in range(rate * seconds):
        wait = begun + number * 1_000 / rate - now()
        if wait > 0:
            time.sleep(wait / 1_000)
        yield now()
