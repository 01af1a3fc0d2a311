/** B6, D6, G2, H1. Workers, servers, queues, artifacts and events in the dashboard. */

import { expect, script, test } from "./fixtures";

test("a worker is cordoned and uncordoned", async ({ page, server }) => {
  // Without any job, the overview shows the welcome page.
  await server.submit(script("before", "true"));
  await page.goto("/workers");
  await page.getByRole("button", { name: /^Actions for/ }).click();
  await page.getByRole("menuitem", { name: "Cordon" }).click();
  await expect(page.locator("main").getByText("cordoned", { exact: true })).toBeVisible();
  await page.goto("/");
  await expect(page.getByText(/is cordoned/)).toBeVisible();
  await page.goto("/workers");
  await page.getByRole("button", { name: /^Actions for/ }).click();
  await page.getByRole("menuitem", { name: "Uncordon" }).click();
  await expect(page.locator("main").getByText("cordoned", { exact: true })).toBeHidden();
});

test("a single server is reported, and draining it is refused with a hint", async ({ page }) => {
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("dialog").getByRole("combobox")).toBeFocused();
  await page.keyboard.type("servers");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/servers$/);
  await expect(page.getByText("There is one server. It is the leader.")).toBeVisible();
  const server = page.locator("main").getByRole("listitem");
  await expect(server).toHaveCount(1);
  await expect(server).toContainText("Leader");
  await expect(server).toContainText("serves this page");
  await server.getByRole("button", { name: "Drain" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("No other server can take over the shards");
  await dialog.getByRole("button", { name: "Drain" }).click();
  await expect(dialog.getByRole("alert")).toContainText("no_other_server");
  await expect(dialog.getByRole("alert")).toContainText("Start another server on the same database first");
  await dialog.getByRole("button", { name: "Back" }).click();
  await expect(server).toContainText("Leader");
});

test("a queue is paused with a note, which its jobs show, and resumed", async ({ page, server }) => {
  await page.goto("/queues");
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("dialog").getByLabel("Reason, visible to others").fill("database upgrade");
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await expect(page.locator("main").getByText("Paused")).toBeVisible();

  const id = await server.submit(script("held", "true"));
  await page.goto(`/jobs/${id}`);
  await expect(page.getByTestId("why")).toContainText("database upgrade");
  await page.goto("/queues");
  await page.getByRole("button", { name: "Resume" }).click();
  await server.waitForStatus(id, "succeeded");
});

test("a queue is created with limits", async ({ page, server }) => {
  await page.goto("/queues");
  await page.getByRole("button", { name: "Create queue" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("reports");
  await dialog.getByLabel("Concurrency limit").fill("3");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(page.getByText("3 concurrent")).toBeVisible();
  expect(await server.get("/api/v1/queues/reports")).toMatchObject({ settings: { concurrency: 3 } });
});

test("an artifact is uploaded, listed and downloaded", async ({ page }) => {
  await page.goto("/artifacts");
  const file = { name: "table.csv", mimeType: "text/csv", buffer: Buffer.from("a,b\n1,2\n") };
  await page.locator('input[type="file"]').setInputFiles(file);
  await expect(page.getByRole("link", { name: "table.csv" })).toBeVisible();
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download table.csv" }).click();
  expect((await download).suggestedFilename()).toBe("table.csv");
});

test("the feed shows events and can be filtered", async ({ page, server }) => {
  await page.goto("/events");
  await expect(page.getByRole("status").filter({ hasText: "Live" })).toBeVisible();
  const id = await server.submit(script("eventful", "true"));
  const feed = page.getByRole("log");
  await expect(feed.getByRole("link", { name: id }).first()).toBeVisible();
  await page.getByText("Workers", { exact: true }).last().click();
  await expect(page).toHaveURL(/type=worker/);
  await expect(page.getByRole("link", { name: id })).toHaveCount(0);
});
