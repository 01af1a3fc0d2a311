// No-op jobs of graphile-worker: added in batches, run in this process.
import { makeWorkerUtils, run } from "graphile-worker";

const jobs = Number(process.argv[2]);
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
for (let first = 0; first < jobs; first += size) {
  const count = Math.min(size, jobs - first);
  await utils.addJobs(Array.from({ length: count }, () => ({ identifier: "nothing", payload: {} })));
}
const runner = await run({
  preset,
  taskList: {
    nothing: async () => {
      done += 1;
      if (done === jobs) finish();
    },
  },
});
await finished;
await runner.stop();
const seconds = (performance.now() - begun) / 1000;
await utils.release();
console.log(JSON.stringify({ rate: jobs / seconds }));
process.exit(0);
