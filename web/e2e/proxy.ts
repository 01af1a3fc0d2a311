/** A proxy before a server: it counts the streams that a browser has open, and can answer in the server's place. */

import { createServer, request, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { Server } from "./server";

export class Proxy {
  /** Answers requests in the server's place; those that it answers with false go to the server. */
  instead: (path: string, response: ServerResponse) => boolean = () => false;
  readonly #server: Server;
  readonly #http = createServer((asked, response) => this.#pass(asked, response));
  readonly #streams = new Set<string>();
  #opened = 0;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async before(server: Server): Promise<Proxy> {
    const proxy = new Proxy(server);
    await new Promise<void>((resolve) => proxy.#http.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  async end(): Promise<void> {
    this.#http.closeAllConnections();
    await new Promise((resolve) => this.#http.close(resolve));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#http.address() as AddressInfo).port}`;
  }

  /** How many streams are open whose path contains this. */
  streams(part: string): number {
    return [...this.#streams].filter((path) => path.includes(part)).length;
  }

  #pass(asked: IncomingMessage, response: ServerResponse): void {
    const path = asked.url ?? "/";
    if (this.instead(path, response)) return;
    const { host } = new URL(this.#server.url);
    const headers = { ...asked.headers, host };
    const passed = request(`${this.#server.url}${path}`, { method: asked.method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      response.flushHeaders();
      if (answer.headers["content-type"]?.startsWith("text/event-stream")) {
        const stream = `${(this.#opened += 1)} ${path}`;
        this.#streams.add(stream);
        response.on("close", () => this.#streams.delete(stream));
      }
      answer.pipe(response);
    });
    passed.on("error", () => response.destroy());
    response.on("close", () => passed.destroy());
    asked.pipe(passed);
  }
}
