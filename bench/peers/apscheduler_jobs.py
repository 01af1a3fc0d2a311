"""No-op jobs of APScheduler, due at once, in a job store of SQLite."""

import json
import sys
import tempfile
import threading
import time
from datetime import datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

left = threading.Semaphore(0)


def nothing():
    """Does nothing."""
    left.release()


def main():
    jobs = int(sys.argv[1])
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        scheduler = BackgroundScheduler(
            jobstores={"default": SQLAlchemyJobStore(url=f"sqlite:///{file.name}")},
            executors={"default": ThreadPoolExecutor(8)},
            job_defaults={"misfire_grace_time": None, "max_instances": jobs},
        )
        scheduler.start()
        begun = time.monotonic()
        for _ in range(jobs):
            scheduler.add_job("__main__:nothing", "date", run_date=datetime.now())
        for _ in range(jobs):
            left.acquire()
        print(json.dumps({"rate": jobs / (time.monotonic() - begun)}))
        scheduler.shutdown()


if __name__ == "__main__":
    main()
