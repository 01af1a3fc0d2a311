// Benchmark of graphile-worker: no-op jobs, added in batches, run in this process. With `latency RATE SECONDS`: jobs
// are added one by one, and the delay until each one starts is measured.
import { makeWorkerUtils, run } from "graphile-worker";

import { paced, since } from "./pace.mjs";

const latency = process.argv[2] === "latency";
const [rate, time] = process.argv.slice(3).map(Number);
const jobs = latency ? rate * time : Number(process.argv[2]);
const delays = [];
const connectionString = process.env.DATABASE;
const batched = Boolean(process.env.BATCHED);
const utils = await makeWorkerUtils({ connectionString });
await utils.migrate();

let done = 0;
let finish;
const finished = new Promise((resolve) => (finish = resolve));
const preset = {
  worker: {
    connectionString,
    concurrentJobs: batched ? 24 : 2,
    maxPoolSize: 25,
    ...(batched && {
      localQueue: { size: 500, ttl: 300_000, refetchDelay: { durationMs: 10 } },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    }),
  },
};
const begun = performance.now();
const size = 1_000;
for (let first = 0; !latency && first < jobs; first += size) {
  const count = Math.min(size, jobs - first);
  await utils.addJobs(Array.from({ length: count }, () => ({ identifier: "nothing", payload: {} })));
}
const runner = await run({
  preset,
  taskList: {
    nothing: async (payload) => {
      if (latency) delays.push(since(payload.at));
      done += 1;
      if (done === jobs) finish();
    },
  },
});
if (latency) await paced(rate, time, (at) => utils.addJob("nothing", { at }));
await finished;
await runner.stop();
const seconds = (performance.now() - begun) / 1000;
await utils.release();
console.log(JSON.stringify(latency ? { delays } : { rate: jobs / seconds }));
process.exit(0);
