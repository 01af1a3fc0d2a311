"""No-op tasks of Celery: the app for its worker, and the measurement where it is run itself."""

import json
import os
import sys
import time

from celery import Celery, group

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(
    task_acks_late=bool(os.environ.get("ACKS_LATE")),
    worker_prefetch_multiplier=64,
    task_serializer="json",
    worker_hijack_root_logger=False,
)


@app.task(name="nothing")
def nothing():
    """Does nothing."""


def main():
    jobs = int(sys.argv[1])
    nothing.delay().get(timeout=60)
    begun = time.monotonic()
    group(nothing.s() for _ in range(jobs)).apply_async().get(timeout=500)
    print(json.dumps({"rate": jobs / (time.monotonic() - begun)}))


if __name__ == "__main__":
    main()
