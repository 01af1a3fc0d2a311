/** G2. Pages and editors whose code is not there yet, while the server is away or after it was upgraded. */

import type { Page } from "@playwright/test";

import { expect, test } from "./fixtures";

const ASSET = /\/assets\/QueuesPage-.*\.js$/;
const EDITOR = /\/assets\/Editor-.*\.js$/;

/** Fetches nothing ahead: the code of a page is asked for when the page is opened. */
async function neverIdle(page: Page): Promise<void> {
  await page.addInitScript(() => void Object.assign(globalThis, { requestIdleCallback: () => 0 }));
}

function openQueues(page: Page): Promise<void> {
  // Without a pointer over it first, which would have it loaded ahead.
  return page.getByRole("link", { name: "Queues", exact: true }).first().dispatchEvent("click");
}

test("a page that is opened in an outage says so inside the frame, and shows by itself afterwards", async ({
  page,
  server,
}) => {
  await neverIdle(page);
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await server.halt();
  await expect(page.getByRole("alert").filter({ hasText: "cannot be reached" })).toBeVisible();
  await openQueues(page);
  await expect(page.getByRole("heading", { name: "This page could not be loaded" })).toBeVisible();
  await expect(page.getByRole("navigation", { name: "Main" })).toBeVisible();
  await expect(page.getByRole("alert").filter({ hasText: "reconnecting" })).toBeVisible();
  await server.run();
  await expect(page.getByRole("heading", { name: "Queues", level: 1 })).toBeVisible({ timeout: 20_000 });
});

test("in an outage every page opens that was fetched while the browser was idle", async ({
  page,
  server,
}) => {
  const ahead = page.waitForResponse(ASSET);
  await page.goto("/");
  await ahead;
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await server.halt();
  await openQueues(page);
  await expect(page.getByRole("heading", { name: "Queues", level: 1 })).toBeVisible();
  await server.run();
});

test("after an upgrade the dashboard reloads once, and the page is there", async ({ page }) => {
  await neverIdle(page);
  let loads = 0;
  page.on("load", () => (loads += 1));
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  // The new build has other names for its files; the page that is reloaded knows them.
  await page.route(ASSET, (route) => (loads < 2 ? route.fulfill({ status: 404 }) : route.continue()));
  await openQueues(page);
  await expect(page.getByRole("heading", { name: "Queues", level: 1 })).toBeVisible();
  expect(loads).toBe(2);
});

test("a page whose code is never there says so, and does not reload for ever", async ({ page }) => {
  await neverIdle(page);
  let loads = 0;
  page.on("load", () => (loads += 1));
  await page.route(ASSET, (route) => route.fulfill({ status: 404 }));
  await page.goto("/queues");
  await expect(page.getByRole("heading", { name: "This page could not be loaded" })).toBeVisible();
  await expect.poll(() => loads).toBe(2);
  await expect(page.getByRole("heading", { name: "This page could not be loaded" })).toBeVisible();
  await page.getByRole("link", { name: "Overview" }).first().click();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  expect(loads).toBe(2);
});

test("after an upgrade the dashboard reloads once, and the editor of a form is there", async ({ page }) => {
  await neverIdle(page);
  let loads = 0;
  page.on("load", () => (loads += 1));
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.route(EDITOR, (route) => (loads < 2 ? route.fulfill({ status: 404 }) : route.continue()));
  await page.locator("a[href='/submit']").first().dispatchEvent("click");
  await expect(page.locator(".cm-content")).toContainText("hello");
  expect(loads).toBe(2);
});

test("an editor whose code is not there says so in its place, and the form beside it works", async ({
  page,
}) => {
  await neverIdle(page);
  let loads = 0;
  let isThere = false;
  page.on("load", () => (loads += 1));
  await page.route(EDITOR, (route) => (isThere ? route.continue() : route.fulfill({ status: 404 })));
  await page.goto("/submit");
  const problem = page.getByRole("alert").filter({ hasText: "could not be downloaded" });
  await expect(problem).toBeVisible();
  await expect.poll(() => loads).toBe(2);
  await expect(problem).toBeVisible();
  await page.getByTestId("name").fill("without-an-editor");
  await expect(page.getByRole("status").filter({ hasText: "The job is valid" })).toBeVisible();
  expect(loads).toBe(2);
  isThere = true;
  await page.getByRole("button", { name: "Reload the dashboard" }).click();
  await expect(page.locator(".cm-content")).toContainText("hello");
  expect(loads).toBe(3);
});

test("the code of the editor is fetched while the browser is idle", async ({ page }) => {
  const ahead = page.waitForResponse(EDITOR);
  await page.goto("/");
  await ahead;
});
