"""Benchmark of HyperQueue: /bin/true as tasks, with a server and a worker on all cores in this process, without a
journal. With `latency RATE SECONDS PROGRAM`: tasks are submitted one by one, and the delay until each one reaches its
`main` is measured. The worker then claims 16 cores: with two, a queue would build up at 50 tasks a second, because a task
occupies a core until the server has processed its end, and the delay would be that of the queue."""

import json
import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

from pace import paced


def latency(rate, seconds, program):
    with tempfile.TemporaryDirectory() as folder, LocalCluster(server_dir=folder) as cluster:
        cluster.start_worker(WorkerConfig(cores=16))
        client = cluster.client()
        stamps = f"{folder}/stamps"
        open(stamps, "w").close()
        begun, submitted = {}, []
        for number, _ in enumerate(paced(rate, seconds)):
            job = Job(default_workdir=folder)
            name = f"n{number}"
            job.program([program, stamps], env={"BELFRY_JOB_NAME": name}, stdout=None, stderr=None)
            begun[name] = time.time() * 1e6
            submitted.append(client.submit(job))
        client.wait_for_jobs(submitted)
        with open(stamps) as lines:
            found = [line.split() for line in lines]
        print(json.dumps({"delays": [(int(at) - begun[name]) / 1e3 for name, at in found]}), flush=True)


def main():
    if sys.argv[1] == "latency":
        return latency(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, LocalCluster(server_dir=folder) as cluster:
        cluster.start_worker()
        client = cluster.client()
        job = Job(default_workdir=folder)
        for _ in range(count):
            job.program(["/bin/true"], stdout=None, stderr=None)
        begun = time.monotonic()
        client.wait_for_jobs([client.submit(job)])
        print(json.dumps({"rate": count / (time.monotonic() - begun)}), flush=True)


if __name__ == "__main__":
    main()
