"""No-op jobs of procrastinate: deferred in batches, run by two workers of 20 each."""

import asyncio
import json
import os
import sys
import time

import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE"], max_size=20))


@app.task(name="nothing")
async def nothing():
    """Does nothing."""


async def main():
    jobs = int(sys.argv[1])
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        begun = time.monotonic()
        for _ in range(jobs // 500):
            await nothing.batch_defer_async(*[{}] * 500)
        await asyncio.gather(*[app.run_worker_async(concurrency=20, wait=False, install_signal_handlers=False) for _ in range(2)])
        seconds = time.monotonic() - begun
        done = len(list(await app.job_manager.list_jobs_async(status="succeeded")))
        assert done == jobs // 500 * 500, f"{done} of {jobs} succeeded"
        print(json.dumps({"rate": done / seconds}))


asyncio.run(main())
