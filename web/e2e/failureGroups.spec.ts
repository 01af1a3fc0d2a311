/** G2. Failures with the same reason are one group, which a user marks as known, muted or resolved. */

import type { Page } from "@playwright/test";

import { expect, script, test } from "./fixtures";
import type { Server } from "./server";

/** Runs a job that fails with a message. */
async function fail(server: Server, name: string, message: string, more: object = {}): Promise<string> {
  const id = await server.submit(script(name, `echo "${message}" >&2; exit 1`, more));
  await server.waitForStatus(id, "failed");
  return id;
}

function attention(page: Page) {
  return page.getByRole("region", { name: "Needs attention" }).getByRole("listitem");
}

/** Sets the state of the group on the page, with an optional note. */
async function mark(page: Page, action: string, note = ""): Promise<void> {
  await page.getByRole("button", { name: action }).click();
  const dialog = page.getByRole("dialog", { name: action });
  if (note) await dialog.getByRole("textbox", { name: "Note" }).fill(note);
  await dialog.getByRole("button", { name: action }).click();
  await expect(dialog).toBeHidden();
}

test("messages that differ in numbers are one group; it can be resolved, and the next failure reopens it", async ({
  page,
  server,
}) => {
  for (const row of [17, 23, 4711]) await fail(server, "settle", `Error: row ${row} has no amount`);
  await fail(server, "settle", "Error: no connection to the bank");
  await page.goto("/");
  const rows = attention(page).filter({ hasText: "has no amount" });
  await expect(rows).toHaveCount(1);
  await expect(rows).toContainText("exited with code 1: Error: row 4711 has no amount");
  await expect(rows).toContainText("3 failures in 24 h");
  await expect(attention(page).filter({ hasText: "no connection to the bank" })).toContainText(
    "1 failure in 24 h",
  );

  await rows.getByRole("link", { name: /has no amount/ }).click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText("row 4711 has no amount");
  await expect(page.getByRole("img", { name: "3 failed jobs in 168 hours" })).toBeVisible();
  await expect(page.getByTestId("group-jobs").getByRole("link").first()).toHaveText("settle");
  await expect(page.getByRole("list", { name: "Job names" })).toContainText("settle3");
  await mark(page, "Resolve", "OPS-1234");
  await expect(page.getByText("Resolved", { exact: true })).toBeVisible();
  const state = page.getByRole("paragraph").filter({ hasText: "Resolved by admin" });
  await expect(state).toContainText("OPS-1234");

  await page.goto("/");
  await expect(attention(page).filter({ hasText: "no connection to the bank" })).toBeVisible();
  await expect(rows).toHaveCount(0);

  // Without a reload.
  await fail(server, "settle", "Error: row 5 has no amount");
  await expect(rows).toContainText("Reopened");
  await expect(rows).toContainText("row 5 has no amount");
  await rows.getByRole("link", { name: /has no amount/ }).click();
  await expect(state).toContainText("A job has failed since.");
});

test("a known or muted group is not listed on the overview, and an opened one has no note", async ({
  page,
  server,
}) => {
  const id = await fail(server, "fetch", "Error: certificate has expired");
  await page.goto(`/jobs/${id}`);
  const why = page.getByTestId("failure");
  await why.getByRole("link", { name: "1 failed job in 24 hours" }).click();
  await expect(page).toHaveURL(/\/failures\/[0-9a-f]{16}$/);
  const group = page.url();
  await mark(page, "Mark as known", "the new certificate comes on Monday");
  const state = page.getByRole("paragraph").filter({ hasText: "Marked as known by admin" });
  await expect(state).toContainText("the new certificate comes on Monday");
  await page.getByRole("button", { name: "Edit the note" }).click();
  const note = page.getByRole("textbox", { name: "Note" });
  await expect(note).toHaveValue("the new certificate comes on Monday");
  await note.fill("OPS-7");
  await page.getByRole("dialog").getByRole("button", { name: "Mark as known" }).click();
  await expect(state).toContainText("OPS-7");

  await fail(server, "other", "Error: is still listed");
  await page.goto("/");
  await expect(attention(page).filter({ hasText: "is still listed" })).toBeVisible();
  await expect(attention(page).filter({ hasText: "certificate has expired" })).toHaveCount(0);

  await page.goto(group);
  await mark(page, "Mute");
  await expect(page.getByText("Muted by admin")).toBeVisible();
  await mark(page, "Reopen");
  await expect(page.getByRole("button", { name: "Mute" })).toBeVisible();
  await expect(page.getByText("by admin")).toHaveCount(0);
  await page.goto("/");
  await expect(attention(page).filter({ hasText: "certificate has expired" })).toBeVisible();
});

test("the list is filtered by state, text, name and namespace, and its filters are in the address", async ({
  page,
  server,
}) => {
  await fail(server, "list-a", "Error: alpha is missing");
  await fail(server, "list-b", "Error: beta is missing", { namespace: "finance" });
  await fail(server, "list-c", "Error: gamma is missing");
  const { items } = await server.get<{ items: Array<{ id: string }> }>("/api/v1/failures?name=list-c");
  await server.call("POST", `/api/v1/failures/${items[0]?.id}/state`, { state: "muted" });
  await page.goto("/failures?text=is+missing");
  const rows = page.getByTestId("failure-rows").getByRole("row");
  await expect(rows).toHaveCount(2);
  await expect(page.getByRole("columnheader", { name: "Namespace" })).toBeVisible();

  await page.getByRole("button", { name: "Muted" }).click();
  await expect(page).toHaveURL(/state=open,known,muted/);
  await expect(rows).toHaveCount(3);
  await expect(rows.filter({ hasText: "gamma" })).toContainText("Muted");

  await page.getByRole("textbox", { name: "Message or job name" }).fill("ALPHA");
  await expect(rows).toHaveCount(1);
  await expect(rows).toContainText("list-a");
  await page.getByRole("textbox", { name: "Message or job name" }).fill("nowhere");
  await expect(page.getByText("No failure group matches these filters")).toBeVisible();
  await page.getByRole("link", { name: "Clear the filters" }).click();
  await expect(page).toHaveURL(/\/failures$/);

  const name = page.getByRole("textbox", { name: "Full job name" });
  await name.fill("list-b");
  await name.press("Enter");
  await expect(page).toHaveURL(/name=list-b/);
  await expect(rows).toHaveCount(1);
  await rows.getByRole("link", { name: /beta is missing/ }).click();
  await expect(page).toHaveURL(/\/failures\/[0-9a-f]{16}\?namespace=finance$/);
  await expect(page.getByRole("heading", { level: 1 })).toContainText("beta is missing");

  await page.goto("/failures?namespace=finance&since=24h&order=count");
  await expect(rows).toHaveCount(1);
  await expect(page.getByRole("radio", { name: "24 hours" })).toBeChecked();
});

test("an expired job has a group, and an unknown group has an error", async ({ page, server }) => {
  await server.call("PUT", "/api/v1/queues/held", { paused: true });
  const id = await server.submit(script("too-late", "true", { queue: "held", start_deadline: "1s" }));
  await server.waitForStatus(id, "expired");
  await page.goto(`/jobs/${id}`);
  await page.getByTestId("failure").getByRole("link", { name: "1 failed job in 24 hours" }).click();
  await expect(page.getByRole("heading", { name: "Start deadline passed", level: 1 })).toBeVisible();
  await page.goto("/failures/0000000000000000");
  await expect(page.getByRole("alert")).toContainText("has no failure group `0000000000000000`");
});
