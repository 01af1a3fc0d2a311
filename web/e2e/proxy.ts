/** A proxy in front of a server: counts the open streams of a browser, and can respond in place of the server. */

import { createServer, request as sendRequest, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { Server } from "./server";

export class Proxy {
  /** Responds in place of the server; requests for which it returns false are forwarded. */
  respond: (path: string, response: ServerResponse) => boolean = () => false;
  readonly #server: Server;
  readonly #http = createServer((request, response) => this.#forward(request, response));
  readonly #streams = new Set<string>();
  #opened = 0;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(server: Server): Promise<Proxy> {
    const proxy = new Proxy(server);
    await new Promise<void>((resolve) => proxy.#http.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  async stop(): Promise<void> {
    this.#http.closeAllConnections();
    await new Promise((resolve) => this.#http.close(resolve));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#http.address() as AddressInfo).port}`;
  }

  /** Returns the number of open streams whose path contains `part`. */
  streams(part: string): number {
    return [...this.#streams].filter((path) => path.includes(part)).length;
  }

  #forward(request: IncomingMessage, response: ServerResponse): void {
    const path = request.url ?? "/";
    if (this.respond(path, response)) return;
    const { host } = new URL(this.#server.url);
    const headers = { ...request.headers, host };
    const forwarded = sendRequest(
      `${this.#server.url}${path}`,
      { method: request.method, headers },
      (serverResponse: IncomingMessage) => {
        response.writeHead(serverResponse.statusCode ?? 502, serverResponse.headers);
        response.flushHeaders();
        if (serverResponse.headers["content-type"]?.startsWith("text/event-stream")) {
          const stream = `${(this.#opened += 1)} ${path}`;
          this.#streams.add(stream);
          response.on("close", () => this.#streams.delete(stream));
        }
        serverResponse.pipe(response);
      },
    );
    forwarded.on("error", () => response.destroy());
    response.on("close", () => forwarded.destroy());
    request.pipe(forwarded);
  }
}
