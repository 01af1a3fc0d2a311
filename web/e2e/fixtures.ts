/** A server for all tests of a worker, and a signed-in page that fails the test on any browser error. */

import { test as base } from "@playwright/test";

import { Server } from "./server";

export { expect } from "@playwright/test";
export { script, waitFor } from "./server";

/** Performance is asserted only by `make web-scale`: a machine under other load is temporarily slow. */
export const ASSERTS_PERFORMANCE = process.env.SCALE_JOBS !== undefined;

export const test = base.extend<{ browserErrors: string[] }, { server: Server }>({
  server: [
    async ({}, use) => {
      const server = await Server.start();
      await use(server);
      await server.dispose();
    },
    { scope: "worker" },
  ],
  baseURL: async ({ server }, use) => use(server.url),
  browserErrors: [
    async ({ page }, use) => {
      const browserErrors: string[] = [];
      page.on("pageerror", (error) => browserErrors.push(error.message));
      page.on("console", (message) => {
        // Views handle failed requests themselves.
        if (message.type() === "error" && !/Failed to load resource/.test(message.text())) {
          browserErrors.push(message.text());
        }
      });
      await use(browserErrors);
      base.expect(browserErrors, "what the browser complained about").toEqual([]);
    },
    { auto: true },
  ],
  page: async ({ page, server }, use) => {
    await server.signIn(page);
    await use(page);
  },
});
