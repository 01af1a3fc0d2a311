"""Benchmark of procrastinate: no-op jobs, deferred in batches, run by two workers with a concurrency of 20. With
`latency RATE SECONDS`: jobs are deferred one by one, and the delay until each one starts is measured."""

import asyncio
import json
import os
import sys
import time

import procrastinate

from pace import now

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE"], max_size=20))


@app.task(name="nothing")
async def nothing():
    """The no-op job."""


delays = []


@app.task(name="since")
async def since(at):
    """Returns the time since then in milliseconds."""
    delays.append(now() - at)


async def latency(rate, seconds):
    worker = asyncio.create_task(app.run_worker_async(concurrency=20, install_signal_handlers=False))
    # The worker is listening by then.
    await asyncio.sleep(1)
    begun, deferred = now(), []
    for number in range(rate * seconds):
        await asyncio.sleep(max(begun + number * 1_000 / rate - now(), 0) / 1_000)
        deferred.append(asyncio.create_task(since.defer_async(at=now())))
    await asyncio.gather(*deferred)
    while len(delays) < len(deferred):
        await asyncio.sleep(0.05)
    worker.cancel()
    print(json.dumps({"delays": delays}))


async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        if sys.argv[1] == "latency":
            return await latency(*map(int, sys.argv[2:]))
        jobs = int(sys.argv[1])
        begun = time.monotonic()
        for _ in range(jobs // 500):
            await nothing.batch_defer_async(*[{}] * 500)
        await asyncio.gather(*[app.run_worker_async(concurrency=20, wait=False, install_signal_handlers=False) for _ in range(2)])
        seconds = time.monotonic() - begun
        done = len(list(await app.job_manager.list_jobs_async(status="succeeded")))
        assert done == jobs // 500 * 500, f"{done} of {jobs} succeeded"
        print(json.dumps({"rate": done / seconds}))


asyncio.run(main())
