// Benchmark of BullMQ: no-op jobs, added in bulk, run by two workers with a concurrency of 50 in this process. With
// `latency RATE SECONDS`: jobs are added one by one, and the delay until each one starts is measured.
import { Queue, Worker } from "bullmq";

import { paced, since } from "./pace.mjs";

const latency = process.argv[2] === "latency";
const [rate, time] = process.argv.slice(3).map(Number);
const jobs = latency ? rate * time : Number(process.argv[2]);
const delays = [];
const { hostname: host, port } = new URL(process.env.BROKER);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const queue = new Queue("bench", { connection });
let done = 0;
let finish;
const finished = new Promise((resolve) => (finish = resolve));
const workers = [0, 1].map(
  () =>
    new Worker("bench", async ({ data }) => void (latency && delays.push(since(data.at))), { connection, concurrency: 50 }).on("completed", () => {
      done += 1;
      if (done === jobs) finish();
    }),
);
await Promise.all(workers.map((worker) => worker.waitUntilReady()));
if (latency) {
  await paced(rate, time, (at) => queue.add("nothing", { at }));
  await finished;
  console.log(JSON.stringify({ delays }));
  process.exit(0);
}
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
