"""Benchmark of Celery: the app for its worker, and the measurement if run as a script. With `latency RATE SECONDS`:
no-op tasks are sent one by one, and the delay until each one starts is measured."""

import json
import os
import sys
import time

from celery import Celery, group

from pace import now, paced

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(
    task_acks_late=bool(os.environ.get("ACKS_LATE")),
    worker_prefetch_multiplier=64,
    task_serializer="json",
    worker_hijack_root_logger=False,
)


@app.task(name="nothing")
def nothing():
    """The no-op task."""


@app.task(name="since")
def since(at):
    """Returns the time since then in milliseconds."""
    return now() - at


def latency(rate, seconds):
    since.delay(now()).get(timeout=60)
    sent = [since.delay(at) for at in paced(rate, seconds)]
    print(json.dumps({"delays": [result.get(timeout=60) for result in sent]}))


def main():
    if sys.argv[1] == "latency":
        return latency(*map(int, sys.argv[2:]))
    jobs = int(sys.argv[1])
    nothing.delay().get(timeout=60)
    begun = time.monotonic()
    group(nothing.s() for _ in range(jobs)).apply_async().get(timeout=500)
    print(json.dumps({"rate": jobs / (time.monotonic() - begun)}))


if __name__ == "__main__":
    main()
