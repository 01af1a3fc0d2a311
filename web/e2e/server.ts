/** A real `belfry dev` server with its own data folder. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Page } from "@playwright/test";

export const BINARY = process.env.BELFRY ?? new URL("../../target/debug/belfry", import.meta.url).pathname;
const START_MAX_MS = 60_000;

export interface JobBody {
  name: string;
  run: { process: { command?: string[]; script?: string } } | { container: object } | { http: object };
  [member: string]: unknown;
}

export class Server {
  readonly #data = mkdtempSync(join(tmpdir(), "belfry-e2e-"));
  #process: ChildProcess | null = null;
  #address = "127.0.0.1:0";
  /** Settings of the server, as environment variables. */
  #variables: Record<string, string> = {};

  /** Starts a server, at an address and with the settings that `settings` returns for its data folder. */
  static async start(
    address = "127.0.0.1:0",
    settings: (folder: string) => Record<string, string> = () => ({}),
  ): Promise<Server> {
    if (!existsSync(BINARY))
      throw new Error(`${BINARY} does not exist: build it with \`make build\`, or set BELFRY`);
    const server = new Server();
    server.#address = address;
    server.#variables = settings(server.#data);
    await server.run();
    return server;
  }

  /** Starts the server, or restarts it at the same address. */
  async run(): Promise<void> {
    const process = spawn(BINARY, ["dev", "--data", this.#data, "--listen", this.#address], {
      stdio: ["ignore", "ignore", "pipe"],
      env: { PATH: globalThis.process.env.PATH, HOME: this.#data, ...this.#variables },
    });
    this.#process = process;
    let stderr = "";
    process.stderr.on("data", (bytes: Buffer) => (stderr += bytes.toString()));
    await waitFor(START_MAX_MS, "the server to be ready", async () => {
      if (process.exitCode !== null) throw new Error(`belfry dev ended: ${stderr}`);
      const path = join(this.#data, "address");
      if (!existsSync(path)) return false;
      this.#address = readFileSync(path, "utf8").trim();
      // Workers are in the store before the server accepts requests.
      const ready = await fetch(`${this.url}/readyz`).catch(() => null);
      if (!ready?.ok) return false;
      const workers = await this.get<{ items: Array<{ status: string }> }>("/api/v1/workers").catch(
        () => null,
      );
      return workers?.items.some((worker) => worker.status === "ready") ?? false;
    });
  }

  /** Stops the server gracefully; its data is kept. */
  async stop(): Promise<void> {
    const process = this.#process;
    if (!process || process.exitCode !== null) return;
    const ended = new Promise((resolve) => process.once("exit", resolve));
    process.kill("SIGTERM");
    await ended;
  }

  async dispose(): Promise<void> {
    await this.stop();
    rmSync(this.#data, { recursive: true, force: true });
  }

  get url(): string {
    return `http://${this.#address}`;
  }

  get token(): string {
    return readFileSync(join(this.#data, "admin-token"), "utf8").trim();
  }

  /** Signs in the browser of a page. */
  async signIn(page: Page): Promise<void> {
    const headers = { authorization: `Bearer ${this.token}` };
    const response = await page.context().request.post(`${this.url}/api/v1/session`, { headers });
    if (!response.ok()) throw new Error(await response.text());
  }

  async get<T>(path: string): Promise<T> {
    return this.call<T>("GET", path);
  }

  /** Returns the total number of rows of a list. */
  async count(list: string): Promise<number> {
    const headers = { authorization: `Bearer ${this.token}` };
    const response = await fetch(`${this.url}${list}&count=true&limit=1`, { headers });
    return Number(response.headers.get("x-total-count"));
  }

  async call<T>(method: string, path: string, body?: object): Promise<T> {
    const response = await fetch(this.url + path, {
      method,
      headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
      body: body && JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return (text === "" ? null : JSON.parse(text)) as T;
  }

  /** Submits a job and returns its id. */
  async submit(body: JobBody): Promise<string> {
    return (await this.call<{ id: string }>("POST", "/api/v1/jobs", body)).id;
  }

  /** Submits several jobs with one request. */
  async submitAll(jobs: readonly JobBody[]): Promise<void> {
    await this.call("POST", "/api/v1/jobs", { jobs });
  }

  /** Creates or replaces a schedule and returns its id. */
  async schedule(name: string, rules: object[], text = "true", more: object = {}): Promise<string> {
    const spec = { name, timing: { rules }, job: { run: { process: { script: text } } }, ...more };
    return (await this.call<{ id: string }>("PUT", `/api/v1/schedules/${name}`, spec)).id;
  }

  async trigger(schedule: string): Promise<void> {
    await this.call("POST", `/api/v1/schedules/${schedule}/trigger`, {});
  }

  async status(id: string): Promise<string> {
    return (await this.get<{ status: string }>(`/api/v1/jobs/${id}`)).status;
  }

  async waitForStatus(id: string, status: string): Promise<void> {
    await waitFor(30_000, `${id} to be ${status}`, async () => (await this.status(id)) === status);
  }
}

/** Polls a condition until it is true; throws after `ms`. */
export async function waitFor(ms: number, what: string, condition: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + ms;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`timeout after ${ms} ms: waited for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Returns a job that runs a script. */
export function script(name: string, text: string, more: object = {}): JobBody {
  return { name, run: { process: { script: text } }, ...more };
}
