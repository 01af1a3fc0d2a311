"""/bin/true as tasks of HyperQueue: a server and a worker of all cores in this process, no journal."""

import json
import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster


def main():
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
