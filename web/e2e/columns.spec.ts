/** H1. Chosen columns of tables, and the export of lists. */

import { readFileSync } from "node:fs";

import type { Page } from "@playwright/test";

import { expect, script, test } from "./fixtures";

const header = (page: Page, name: string) => page.getByRole("columnheader", { name, exact: true });

async function toggle(page: Page, column: string): Promise<void> {
  await page.getByRole("button", { name: "Columns", exact: true }).click();
  await page.getByRole("checkbox", { name: column, exact: true }).click();
  await page.keyboard.press("Escape");
}

async function exported(page: Page, format: "CSV" | "JSON"): Promise<string> {
  await page.getByRole("button", { name: "Export", exact: true }).click();
  await expect(page.getByRole("menu")).toContainText("at most 100,000");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("menuitem", { name: `As ${format}` }).click(),
  ]);
  return readFileSync(await download.path(), "utf8");
}

test("columns of jobs are chosen, remembered, and reset", async ({ page, server }) => {
  await server.submit(script("in-columns", "true", { priority: 77, labels: { team: "pay" } }));
  await page.goto("/jobs");
  const row = page.getByTestId("job-rows").getByRole("row").filter({ hasText: "in-columns" });
  await expect(header(page, "Owner")).toBeVisible();
  await toggle(page, "Owner");
  await expect(header(page, "Owner")).toHaveCount(0);
  await toggle(page, "Priority");
  await expect(row).toContainText("77");
  await expect(row.getByText("team=pay")).toBeVisible();
  await toggle(page, "Labels");
  await expect(row.getByText("team=pay")).toBeHidden();
  await page.reload();
  await expect(header(page, "Priority")).toBeVisible();
  await expect(header(page, "Owner")).toHaveCount(0);
  await page.getByRole("button", { name: "Columns", exact: true }).click();
  await page.getByRole("button", { name: "Show the default columns" }).click();
  await page.keyboard.press("Escape");
  await expect(header(page, "Owner")).toBeVisible();
  await expect(header(page, "Priority")).toHaveCount(0);
});

test("columns of runs and workers are chosen", async ({ page, server }) => {
  const steps = [{ name: "one", job: { run: { process: { script: "true" } } } }];
  await server.call("PUT", "/api/v1/workflows/columns", { name: "columns", steps });
  await server.call("POST", "/api/v1/workflows/columns/start", {});
  await page.goto("/runs?workflow=columns");
  await expect(page.getByTestId("run-rows").getByRole("row")).toHaveCount(1);
  await toggle(page, "End time");
  await expect(header(page, "End time")).toBeVisible();
  await page.goto("/workers");
  await expect(page.getByRole("table").getByRole("meter", { name: "Memory" })).toBeVisible();
  await toggle(page, "Memory");
  await expect(page.getByRole("meter", { name: "Memory" })).toHaveCount(0);
  await toggle(page, "Version");
  await expect(header(page, "Version")).toBeVisible();
});

test("the filtered list is exported as CSV and JSON", async ({ page, server }) => {
  for (const labels of [{ team: "pay" }, {}]) {
    const id = await server.submit(script("exported", "exit 3", { owner: "=cmd()", labels }));
    await server.waitForStatus(id, "failed");
  }
  await server.submit(script("not-exported", "true"));
  await page.goto("/jobs?name=exported");
  await expect(page.getByTestId("job-rows").getByRole("row")).toHaveCount(2);
  const csv = await exported(page, "CSV");
  await expect(page.getByText("2 rows exported")).toBeVisible();
  const [head, ...rows] = csv.replace("\uFEFF", "").trimEnd().split("\r\n");
  expect(head).toMatch(/^id,name,namespace,status,/);
  expect(rows).toHaveLength(2);
  expect(rows[1]).toContain(",exported,default,failed,default,50,normal,'=cmd(),team=pay,1,");
  expect(rows[1]).toContain(",3,exit_code,exited with code 3");
  const json = JSON.parse(await exported(page, "JSON")) as Array<{ name: string; result: object }>;
  expect(json.map(({ name }) => name)).toEqual(["exported", "exported"]);

  await page.goto("/workers");
  expect(await exported(page, "CSV")).toContain("id,name,status,admission");
  await page.goto("/runs");
  expect(await exported(page, "JSON")).toContain("[");
});
