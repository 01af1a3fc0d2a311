#!/usr/bin/env python3
"""Compares Belfry with other schedulers (peers) in one run on one machine.

    make bench-peers                      all peers, three rounds
    make bench-peers PEERS=celery,belfry  only these peers
    make bench-peers ROUNDS=5 JOBS=20000
    make bench-peers LATENCY=1            start delay instead of throughput, at 50 jobs per second

Peers are installed from public registries (PyPI, npm, Debian) into `target/peers`. Redis and PostgreSQL are
started on loopback, in separate folders, and stopped again. Every round measures every peer once, one after
the other, so that a slow period of the machine affects all of them. The result is the median with the lowest
and the highest value.

Each peer uses the settings that its documentation recommends for throughput, and its row states the durability
of these settings: jobs that may be lost in a power failure are less work than durable jobs.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import typing

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PLACE = TARGET / "peers"
PYTHON_PEERS = ["celery==5.*", "redis", "procrastinate==3.*", "psycopg[binary]", "apscheduler==3.*", "sqlalchemy", "hyperqueue"]


class Missing(Exception):
    """Raised with the reason why a peer cannot be measured on this machine."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(command, **more):
    return subprocess.run(command, check=True, text=True, capture_output=True, **more).stdout


@contextlib.contextmanager
def process(command, log, **more):
    """Runs a process, and stops it with all of its children at the end of the block."""
    with open(log, "ab") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, **more)
        try:
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def until(what, true, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(Exception):
            if true():
                return
        time.sleep(0.05)
    raise Missing(f"timed out after {seconds} s waiting for {what}")


# Requirements of the peers


def python():
    """Returns the interpreter of a virtual environment with the PyPI peers."""
    venv = PLACE / "python"
    interpreter = venv / "bin" / "python"
    mark = venv / "complete"
    if not mark.exists():
        say("installing the PyPI peers")
        run([sys.executable, "-m", "venv", str(venv)])
        run([str(interpreter), "-m", "pip", "install", "--quiet", *PYTHON_PEERS])
        mark.touch()
    return str(interpreter)


def node():
    """Returns the folder with the npm peers."""
    folder = PLACE / "node"
    if not (folder / "node_modules").exists():
        say("installing the npm peers")
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            if (HERE / name).exists():
                shutil.copy(HERE / name, folder)
        # Not `npm ci`: it refuses a lock file without the optional packages of other systems, which some registries lack.
        run(["npm", "install", "--no-audit", "--no-fund"], cwd=folder)
    for script in HERE.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


def redis_program():
    found = shutil.which("redis-server")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        say("installing redis-server")
        run(["apt-get", "install", "--yes", "--no-install-recommends", "redis-server"], env=os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"})
        found = shutil.which("redis-server")
    if found is None:
        raise Missing("redis-server is not installed (Debian: apt-get install redis-server)")
    return found


@contextlib.contextmanager
def redis(always):
    """Runs a Redis with fsync on each write (`always`) or once a second; yields its URL."""
    program, port = redis_program(), free_port()
    with tempfile.TemporaryDirectory(dir=PLACE, prefix="redis-") as folder:
        sync = "always" if always else "everysec"
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--appendonly", "yes",
                   "--appendfsync", sync, "--save", "", "--maxmemory-policy", "noeviction"]
        with process(command, PLACE / "redis.log"):
            until("Redis", lambda: socket.create_connection(("127.0.0.1", port), 1).close() or True)
            yield f"redis://127.0.0.1:{port}/0"


def postgres_program(name):
    candidates = sorted(pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    found = str(candidates[0]) if candidates else shutil.which(name)
    if found is None:
        raise Missing("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return found


@contextlib.contextmanager
def postgres():
    """Runs a PostgreSQL with package defaults, which sync every commit; yields its URL."""
    port = free_port()
    with tempfile.TemporaryDirectory(dir=PLACE, prefix="postgres-") as folder:
        as_user = []
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
            for parent in pathlib.Path(folder).parents:
                if not os.stat(parent).st_mode & 0o001:
                    raise Missing(f"the user postgres cannot access {parent}: set CARGO_TARGET_DIR to an accessible folder")
        data = f"{folder}/data"
        run([*as_user, postgres_program("initdb"), "-D", data, "-U", "bench", "--auth=trust", "-E", "UTF8"], cwd="/")
        command = [*as_user, postgres_program("postgres"), "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", folder]
        with process(command, PLACE / "postgres.log", cwd="/"):
            url = f"postgresql://bench@127.0.0.1:{port}/postgres"
            until("PostgreSQL", lambda: run([postgres_program("psql"), url, "-c", "select 1"]))
            yield url


def measured(command, **more):
    """Runs a script, and returns the last line of its output as JSON."""
    done = subprocess.run(command, text=True, capture_output=True, timeout=600, **more)
    if done.returncode != 0:
        raise Missing(f"{command[0]} exited with {done.returncode}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


# The peers. Each is called with the arguments of its script: a number of jobs, which returns a rate, or
# `latency RATE SECONDS`, which returns the milliseconds from just before each job was added to its start.


def belfry(name, *more, seconds=4):
    binary = TARGET / "release" / "belfry-bench"
    with tempfile.TemporaryDirectory() as folder:
        run([str(binary), name, *more, "--seconds", str(seconds), "--rounds", "1", "--results", folder], cwd=ROOT)
        return json.loads((pathlib.Path(folder) / f"{name}.json").read_text())["rows"]


def figure_of(rows, *words):
    return next(row["rounds"][0] for row in rows if all(word in row["what"] for word in words))


def of_belfry(benchmark, rate, latency):
    """Returns a function for figures of Belfry's own benchmarks, selected by the names of their rows."""

    def ask(first, *pace):
        if first != "latency":
            return {"rate": figure_of(belfry(benchmark), rate)}
        rows = belfry("latency", "--rate", pace[0], seconds=pace[1])
        return {name: figure_of(rows, latency, name) for name in SHARES}

    return ask


def celery(always):
    def ask(*asked):
        interpreter = python()
        with redis(always) as url:
            env = os.environ | {"BROKER": url, "ACKS_LATE": "1" if always else ""}
            worker = [interpreter, "-m", "celery", "-A", "celery_tasks", "worker", "-c", "2", "--loglevel=warning",
                      "--without-gossip", "--without-mingle", "--without-heartbeat"]
            with process(worker, PLACE / "celery.log", cwd=HERE, env=env):
                return measured([interpreter, "celery_tasks.py", *asked], cwd=HERE, env=env)

    return ask


def procrastinate(*asked):
    interpreter = python()
    with postgres() as url:
        return measured([interpreter, "procrastinate_jobs.py", *asked], cwd=HERE, env=os.environ | {"DATABASE": url})


def apscheduler(*asked):
    return measured([python(), "apscheduler_jobs.py", *asked], cwd=HERE)


def hyperqueue(*asked):
    with tempfile.TemporaryDirectory(dir=PLACE, prefix="hq-") as folder:
        stamp = [str(TARGET / "release" / "belfry-bench-stamp")] if asked[0] == "latency" else []
        return measured([python(), str(HERE / "hyperqueue_jobs.py"), *asked, *stamp], cwd=folder)


def graphile(batched):
    def ask(*asked):
        with postgres() as url:
            env = os.environ | {"DATABASE": url, "BATCHED": "1" if batched else ""}
            return measured(["node", "graphile.mjs", *asked], cwd=node(), env=env)

    return ask


def bullmq(always):
    def ask(*asked):
        with redis(always) as url:
            return measured(["node", "bullmq.mjs", *asked], cwd=node(), env=os.environ | {"BROKER": url})

    return ask


class Peer(typing.NamedTuple):
    """A scheduler to measure, with its durability and its history."""

    title: str
    work: str
    ask: typing.Callable[..., dict]
    durability: str
    history: str
    # Limit of jobs for slow peers.
    jobs_max: int = 1_000_000

    def rate(self, jobs):
        return {"rate": self.ask(str(min(jobs, self.jobs_max)))["rate"]}

    def latency(self):
        found = self.ask("latency", str(LATENCY_RATE), str(LATENCY_SECONDS))
        if "delays" not in found:
            return found
        delays = sorted(found["delays"])
        at = {name: min(int(len(delays) * share), len(delays) - 1) for name, share in SHARES.items()}
        return {name: delays[place] for name, place in at.items()}


# Jobs per second and duration of the latency measurement.
LATENCY_RATE = 50
LATENCY_SECONDS = 10
SHARES = {"p50": 0.50, "p99": 0.99}
SYNCED = "every commit synced"
NO_OP = of_belfry("noop", "whole path", f"{LATENCY_RATE} submissions/s, to the start in a worker without processes")
PROCESS = of_belfry("spawn", "through a worker", f"{LATENCY_RATE} submissions/s, to the start in a process")
BARE = of_belfry("spawn", "bare spawn", None)
PEERS = {
    "belfry": Peer("Belfry, SQLite", "no-op", NO_OP, SYNCED, "kept, with every transition"),
    "graphile-batched": Peer("graphile-worker, local queue and batched completion", "no-op", graphile(True), SYNCED, "ended jobs are deleted"),
    "graphile": Peer("graphile-worker, defaults", "no-op", graphile(False), SYNCED, "ended jobs are deleted", 10_000),
    "bullmq-always": Peer("BullMQ, Redis with appendfsync always", "no-op", bullmq(True), "every write synced", "ended jobs kept"),
    "bullmq": Peer("BullMQ, Redis with appendfsync everysec", "no-op", bullmq(False), "up to a second may be lost", "ended jobs kept"),
    "celery-always": Peer("Celery, Redis with appendfsync always, acks_late", "no-op", celery(True), "every write synced", "results kept for a day", 5_000),
    "celery": Peer("Celery, Redis with appendfsync everysec", "no-op", celery(False), "up to a second may be lost", "results kept for a day", 5_000),
    "procrastinate": Peer("procrastinate, PostgreSQL", "no-op", procrastinate, SYNCED, "kept", 3_000),
    "apscheduler": Peer("APScheduler, SQLite job store", "no-op", apscheduler, "every commit synced; a job is gone once it begins", "none", 2_000),
    "belfry-processes": Peer("Belfry, SQLite", "/bin/true", PROCESS, SYNCED, "kept, with logs and limits"),
    "hyperqueue": Peer("HyperQueue, no output files", "/bin/true", hyperqueue, "none: the state is in memory", "in memory", 3_000),
    "bare": Peer("spawn and wait, with nothing around it", "/bin/true", BARE, "", ""),
}


def commit():
    with contextlib.suppress(Exception):
        return run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT).strip()
    return "unknown"


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")), "")
    return {"cores": os.cpu_count(), "processor": model, "system": platform.release()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(PEERS), help="comma-separated names: " + ", ".join(PEERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000, help="maximum number of jobs; slow peers get fewer")
    parser.add_argument("--latency", action="store_true", help=f"measure the delay from adding a job to its start, at {LATENCY_RATE} per second, instead of throughput")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    asked = parser.parse_args()
    unknown = [name for name in asked.peers.split(",") if name not in PEERS]
    if unknown:
        parser.error(f"unknown peer: {', '.join(unknown)}")
    PLACE.mkdir(parents=True, exist_ok=True)
    found, missing = {name: [] for name in asked.peers.split(",") if not asked.latency or name != "bare"}, {}
    for number in range(asked.rounds):
        for name in found:
            if name in missing:
                continue
            try:
                peer = PEERS[name]
                figures = peer.latency() if asked.latency else peer.rate(asked.jobs)
            except Missing as why:
                missing[name] = str(why)
                say(f"{name}: {why}")
            except subprocess.CalledProcessError as error:
                missing[name] = f"{error.cmd[0]} exited with {error.returncode}: {error.stderr.strip()[-300:]}"
                say(f"{name}: {missing[name]}")
            else:
                found[name].append(figures)
                told = ", ".join(f"{what} {value:,.2f} ms" if asked.latency else f"{value:,.0f} jobs/s" for what, value in figures.items())
                say(f"round {number + 1}: {name}: {told}")
    rows = []
    for name, rounds in found.items():
        peer = PEERS[name]
        row = {"name": name, "title": peer.title, "work": peer.work, "durability": peer.durability, "history": peer.history}
        if not rounds:
            row["missing"] = missing.get(name, "not measured")
        elif asked.latency:
            row |= {what: spread([figures[what] for figures in rounds]) for what in SHARES} | {"rounds": len(rounds)}
        else:
            row |= spread([figures["rate"] for figures in rounds]) | {"rounds": len(rounds)}
        rows.append(row)
    result = {"commit": commit(), "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine(), "peers": rows}
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=2) + "\n")
    for row in rows:
        print(f"{row['title']:<55} {row['work']:<10} {shown(row)}")


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def shown(row):
    if "missing" in row:
        return row["missing"]
    if "median" in row:
        return f"{row['median']:>9,.0f} /s  ({row['min']:,.0f}–{row['max']:,.0f})"
    return ", ".join(f"{what} {row[what]['median']:,.2f} ms ({row[what]['min']:,.2f}–{row[what]['max']:,.2f})" for what in SHARES)


if __name__ == "__main__":
    main()
