/** Servers of a Raft cluster, each with its own data folder. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Page } from "@playwright/test";

import { BINARY, waitFor } from "./server";

const START_MAX_MS = 60_000;

interface Member {
  name: string;
  address: string;
  process: ChildProcess;
}

export class Cluster {
  readonly #folder = mkdtempSync(join(tmpdir(), "belfry-e2e-cluster-"));
  readonly #members: Member[] = [];

  /** Starts the servers with these names. The first one creates the cluster and leads. */
  static async start(names: readonly string[]): Promise<Cluster> {
    const cluster = new Cluster();
    try {
      for (const name of names) await cluster.#add(name);
    } catch (error) {
      await cluster.dispose();
      throw error;
    }
    return cluster;
  }

  async #add(name: string): Promise<void> {
    const address = `127.0.0.1:${await freePort()}`;
    const first = this.#members[0];
    const token = join(this.#folder, first?.name ?? name, "join-token");
    const membership = first ? ["--join", first.address, "--join-token-file", token] : ["--bootstrap"];
    const data = join(this.#folder, name);
    const flags = ["--store", "raft", "--name", name, "--data", data, "--listen", address, ...membership];
    const process = spawn(BINARY, ["server", ...flags], {
      stdio: ["ignore", "ignore", "pipe"],
      env: {
        PATH: globalThis.process.env.PATH,
        HOME: this.#folder,
        BELFRY_SERVER__OBJECTS_DIR: join(this.#folder, "objects"),
      },
    });
    let stderr = "";
    process.stderr.on("data", (bytes: Buffer) => (stderr += bytes.toString()));
    this.#members.push({ name, address, process });
    await waitFor(START_MAX_MS, `server ${name} to be a voter`, async () => {
      if (process.exitCode !== null) throw new Error(`server ${name} ended: ${stderr}`);
      const ready = await fetch(`${this.url}/readyz`).catch(() => null);
      return ready?.ok ? (await this.#voters()) === this.#members.length : false;
    });
  }

  async #voters(): Promise<number> {
    const headers = { authorization: `Bearer ${this.token}` };
    const response = await fetch(`${this.url}/api/v1/cluster/members`, { headers });
    const members = (await response.json()) as { items: Array<{ role: string }> };
    return members.items.filter((member) => member.role !== "learner").length;
  }

  /** URL of the first server. */
  get url(): string {
    return `http://${this.#members[0]?.address}`;
  }

  get token(): string {
    return readFileSync(join(this.#folder, this.#members[0]?.name ?? "", "admin-token"), "utf8").trim();
  }

  /** Signs in the browser of a page at the first server. */
  async signIn(page: Page): Promise<void> {
    const headers = { authorization: `Bearer ${this.token}` };
    const response = await page.context().request.post(`${this.url}/api/v1/session`, { headers });
    if (!response.ok()) throw new Error(await response.text());
  }

  /** Ends the process of a server without a warning. */
  async kill(name: string): Promise<void> {
    await end(this.#members.find((member) => member.name === name)?.process, "SIGKILL");
  }

  async dispose(): Promise<void> {
    for (const member of this.#members.toReversed()) await end(member.process, "SIGKILL");
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

async function end(process: ChildProcess | undefined, signal: NodeJS.Signals): Promise<void> {
  if (!process || process.exitCode !== null || process.signalCode !== null) return;
  const ended = new Promise((resolve) => process.once("exit", resolve));
  process.kill(signal);
  await ended;
}

async function freePort(): Promise<number> {
  const listener = createServer();
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const address = listener.address();
  await new Promise((resolve) => listener.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
