// No-op jobs of BullMQ: added in bulk, run by two workers of 50 each in this process.
import { Queue, Worker } from "bullmq";

const jobs = Number(process.argv[2]);
const { hostname: host, port } = new URL(process.env.BROKER);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const queue = new Queue("bench", { connection });
let done = 0;
let finish;
const finished = new Promise((resolve) => (finish = resolve));
const workers = [0, 1].map(
  () =>
    new Worker("bench", async () => {}, { connection, concurrency: 50 }).on("completed", () => {
      done += 1;
      if (done === jobs) finish();
    }),
);
await Promise.all(workers.map((worker) => worker.waitUntilReady()));
const begun = performance.now();
const size = 500;
for (let first = 0; first < jobs; first += size) {
  const count = Math.min(size, jobs - first);
  await queue.addBulk(Array.from({ length: count }, () => ({ name: "nothing", data: {} })));
}
await finished;
const seconds = (performance.now() - begun) / 1000;
console.log(JSON.stringify({ rate: jobs / seconds }));
process.exit(0);
