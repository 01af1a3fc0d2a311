/** A server for the tests of a file, and a signed-in page that fails the test on any browser error. */

import { test as base, type Page } from "@playwright/test";

import { Server } from "./server";

export { expect } from "@playwright/test";
export { script, waitFor } from "./server";

/** Performance is asserted only by `make web-scale`: a machine under other load is temporarily slow. */
export const ASSERTS_PERFORMANCE = process.env.SCALE_JOBS !== undefined;

/** Shows the form for a token on the login page. */
export async function useToken(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Log in with a token" }).click();
}

/** The server of the file whose tests this process runs. */
let current: { file: string; server: Server } | null = null;

async function serverFor(file: string): Promise<Server> {
  if (current?.file !== file) {
    await dispose();
    current = { file, server: await Server.start() };
  }
  return current.server;
}

async function dispose(): Promise<void> {
  await current?.server.dispose();
  current = null;
}

export const test = base.extend<{ browserErrors: string[]; server: Server }, { disposal: void }>({
  // A test finds only what the tests of its file have left, in whatever order the files run.
  server: async ({}, use, { file }) => use(await serverFor(file)),
  disposal: [
    async ({}, use) => {
      await use();
      await dispose();
    },
    { scope: "worker", auto: true },
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
