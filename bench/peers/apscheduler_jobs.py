"""Benchmark of APScheduler: no-op jobs that are due immediately, in an SQLite job store. With `latency RATE SECONDS`:
jobs are added one by one, and the delay until each one starts is measured."""

import json
import sys
import tempfile
import threading
import time
from datetime import datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from pace import now, paced

left = threading.Semaphore(0)
delays = []


def nothing():
    """The no-op job."""
    left.release()


def since(at):
    """Returns the time since then in milliseconds."""
    delays.append(now() - at)
    left.release()


def main():
    latency = sys.argv[1] == "latency"
    rate, seconds = map(int, sys.argv[2:4]) if latency else (0, 0)
    jobs = rate * seconds if latency else int(sys.argv[1])
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        scheduler = BackgroundScheduler(
            jobstores={"default": SQLAlchemyJobStore(url=f"sqlite:///{file.name}")},
            executors={"default": ThreadPoolExecutor(8)},
            job_defaults={"misfire_grace_time": None, "max_instances": jobs},
        )
        scheduler.start()
        begun = time.monotonic()
        for at in paced(rate, seconds):
            scheduler.add_job("__main__:since", "date", args=[at], run_date=datetime.now())
        for _ in range(0 if latency else jobs):
            scheduler.add_job("__main__:nothing", "date", run_date=datetime.now())
        for _ in range(jobs):
            left.acquire()
        print(json.dumps({"delays": delays} if latency else {"rate": jobs / (time.monotonic() - begun)}))
        scheduler.shutdown()


if __name__ == "__main__":
    main()
