/** G2. Failures are counted exactly, and only the newest jobs of shown names are read. */

import { expect, test } from "vitest";

import type { Job, StatisticsTotal } from "../api/schema";
import { findFailures, isRecovered, type NamedTotal } from "./failures";

const total = (job: string | null, failed: number, expired = 0) =>
  ({
    subject: { namespace: "default", ...(job === null ? { other_jobs: true } : { job }) },
    failed,
    expired,
  }) as StatisticsTotal;

/** Finds the failures, and the names whose newest jobs were read. */
async function found(totals: StatisticsTotal[], newest: Record<string, Partial<Job> | "error"> = {}) {
  const read: string[] = [];
  const failures = await findFailures(totals, ({ name }: NamedTotal) => {
    read.push(name);
    const known = newest[name];
    if (known === "error") return Promise.reject(new Error("timeout"));
    return Promise.resolve({ id: name, status: "failed", ...known } as Job);
  });
  return { failures, names: failures.map(({ name }) => name ?? "…"), read };
}
const succeeded = { status: "succeeded" } as const;

test("a million failures of one name cost one look-up", async () => {
  const { failures, read } = await found([total("a", 1_000_000, 7), total("fine", 0)]);
  const newest = { id: "a", status: "failed" };
  expect(failures).toEqual([{ namespace: "default", name: "a", failed: 1_000_000, expired: 7, newest }]);
  expect(read).toEqual(["a"]);
});

test("all names are listed by count, the newest jobs of eight are read", async () => {
  const { failures, read } = await found(Array.from({ length: 100 }, (_, i) => total(`j${i}`, 100, i)));
  expect(failures).toHaveLength(100);
  expect(read).toEqual(["j99", "j98", "j97", "j96", "j95", "j94", "j93", "j92"]);
  expect(failures.filter(({ newest }) => newest)).toHaveLength(8);
});

test("recovered names are listed below, and the newest jobs of the names that move up are read", async () => {
  const totals = Array.from({ length: 10 }, (_, i) => total(`j${i}`, 20 - i));
  const { failures, names, read } = await found(totals, { j0: succeeded, j3: succeeded });
  expect(names).toEqual(["j1", "j2", "j4", "j5", "j6", "j7", "j8", "j9", "j0", "j3"]);
  expect(failures.filter(isRecovered)).toHaveLength(2);
  expect(read).toHaveLength(10);
});

test("failures of step jobs are left out: they are listed with their run", async () => {
  const step = { step: { run: "r", name: "load" } } as Partial<Job>;
  const totals = Array.from({ length: 9 }, (_, i) => total(`j${i}`, 20 - i));
  const { names, read } = await found(totals, { j0: step, j1: step });
  expect(names).toEqual(["j2", "j3", "j4", "j5", "j6", "j7", "j8"]);
  expect(read).toHaveLength(9);
});

test("the number of look-ups is limited", async () => {
  const totals = Array.from({ length: 100 }, (_, i) => total(`j${i}`, 200 - i));
  const all = Object.fromEntries(totals.map(({ subject }) => [subject.job ?? "", succeeded]));
  expect((await found(totals, all)).read.length).toBeLessThanOrEqual(16);
});

test("names without statistics of their own are counted together and have no newest job", async () => {
  const { names, failures, read } = await found([total("a", 3), total(null, 12)]);
  expect(names).toEqual(["…", "a"]);
  expect([failures[0]?.failed, failures[0]?.newest]).toEqual([12, null]);
  expect(read).toEqual(["a"]);
});

test("a failed look-up does not hide the count", async () => {
  const { failures } = await found([total("a", 3)], { a: "error" });
  expect(failures).toMatchObject([{ name: "a", failed: 3, newest: null }]);
});
