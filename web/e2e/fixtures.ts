/** A server for all tests of a file, and a page of it that is signed in and must not complain. */

import { test as base } from "@playwright/test";

import { Server } from "./server";

export { expect } from "@playwright/test";
export { script, until } from "./server";

/** Speed is judged by `make web-scale` alone: a machine that does other work is slow at moments. */
export const IS_SPEED_JUDGED = process.env.SCALE_JOBS !== undefined;

export const test = base.extend<{ complaints: string[] }, { server: Server }>({
  server: [
    async ({}, use) => {
      const server = await Server.start();
      await use(server);
      await server.end();
    },
    { scope: "worker" },
  ],
  baseURL: async ({ server }, use) => use(server.url),
  complaints: [
    async ({ page }, use) => {
      const complaints: string[] = [];
      page.on("pageerror", (error) => complaints.push(error.message));
      page.on("console", (message) => {
        // A refused or lost request is a view's own matter.
        if (message.type() === "error" && !/Failed to load resource/.test(message.text())) {
          complaints.push(message.text());
        }
      });
      await use(complaints);
      base.expect(complaints, "what the browser complained about").toEqual([]);
    },
    { auto: true },
  ],
  page: async ({ page, server }, use) => {
    await server.signIn(page);
    await use(page);
  },
});
