/** A real `belfry dev`, of its own data folder, for as long as a test needs it. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Page } from "@playwright/test";

const BINARY = process.env.BELFRY ?? new URL("../../target/debug/belfry", import.meta.url).pathname;
const START_MAX_MS = 60_000;

export interface JobBody {
  name: string;
  run: { process: { command?: string[]; script?: string } };
  [member: string]: unknown;
}

export class Server {
  readonly #data = mkdtempSync(join(tmpdir(), "belfry-e2e-"));
  #process: ChildProcess | null = null;
  #address = "127.0.0.1:0";

  static async start(): Promise<Server> {
    if (!existsSync(BINARY))
      throw new Error(`there is no ${BINARY}: build it with \`make build\`, or set BELFRY`);
    const server = new Server();
    await server.run();
    return server;
  }

  /** Starts, or starts again at the same address. */
  async run(): Promise<void> {
    const process = spawn(BINARY, ["dev", "--data", this.#data, "--listen", this.#address], {
      stdio: ["ignore", "ignore", "pipe"],
      env: { PATH: globalThis.process.env.PATH, HOME: this.#data },
    });
    this.#process = process;
    let said = "";
    process.stderr.on("data", (bytes: Buffer) => (said += bytes.toString()));
    await until(START_MAX_MS, "the server to be ready", async () => {
      if (process.exitCode !== null) throw new Error(`belfry dev ended: ${said}`);
      const path = join(this.#data, "address");
      if (!existsSync(path)) return false;
      this.#address = readFileSync(path, "utf8").trim();
      // Workers are in the store before the server takes requests.
      const ready = await fetch(`${this.url}/readyz`).catch(() => null);
      if (!ready?.ok) return false;
      const workers = await this.get<{ items: Array<{ status: string }> }>("/api/v1/workers").catch(
        () => null,
      );
      return workers?.items.some((worker) => worker.status === "ready") ?? false;
    });
  }

  /** Ends it in good order; its data stays. */
  async halt(): Promise<void> {
    const process = this.#process;
    if (!process || process.exitCode !== null) return;
    const ended = new Promise((resolve) => process.once("exit", resolve));
    process.kill("SIGTERM");
    await ended;
  }

  async end(): Promise<void> {
    await this.halt();
    rmSync(this.#data, { recursive: true, force: true });
  }

  get url(): string {
    return `http://${this.#address}`;
  }

  get token(): string {
    return readFileSync(join(this.#data, "admin-token"), "utf8").trim();
  }

  /** Gives the browser of a page a session. */
  async signIn(page: Page): Promise<void> {
    const headers = { authorization: `Bearer ${this.token}` };
    const response = await page.context().request.post(`${this.url}/api/v1/session`, { headers });
    if (!response.ok()) throw new Error(await response.text());
  }

  async get<T>(path: string): Promise<T> {
    return this.call<T>("GET", path);
  }

  /** How many a list has in all. */
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

  /** Submits a job and answers with its id. */
  async submit(body: JobBody): Promise<string> {
    return (await this.call<{ id: string }>("POST", "/api/v1/jobs", body)).id;
  }

  /** Creates a schedule, or gives it another spec, and answers with its id. */
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

  async untilStatus(id: string, status: string): Promise<void> {
    await until(30_000, `${id} to be ${status}`, async () => (await this.status(id)) === status);
  }
}

/** Asks again until the answer is yes, or the time is up. */
export async function until(ms: number, what: string, ask: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + ms;
  while (!(await ask())) {
    if (Date.now() > deadline) throw new Error(`waited ${ms} ms for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A job whose script runs. */
export function script(name: string, text: string, more: object = {}): JobBody {
  return { name, run: { process: { script: text } }, ...more };
}
