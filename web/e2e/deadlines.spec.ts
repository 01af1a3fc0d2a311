/** H1. Completion deadlines, lost executions and guarantees in the dashboard. */

import { expect, script, test } from "./fixtures";

interface Job {
  spec: { finish_by: object; retry: { max_lost: number; backoff: { delays: string[] } } };
}

test("a job is submitted with a completion deadline, and fails when it passes", async ({ page, server }) => {
  await page.goto("/submit");
  await page.getByTestId("name").fill("too-slow");
  await page.getByRole("textbox", { name: "Script" }).fill("sleep 60\n");
  await page.getByRole("button", { name: "Start time and deadlines" }).click();
  await page.getByTestId("finish-after").fill("soon");
  await expect(page.getByTestId("finish-after")).toHaveAttribute("aria-invalid", "true");
  await page.getByTestId("finish-after").fill("3s");
  await page.getByTestId("delays").fill("1m, 5m");
  await page.getByTestId("max-lost").fill("2");
  await expect(page.locator(".cm-content")).toContainText("finish_by");
  await expect(page.getByText("The job is valid.")).toBeVisible();
  await page.getByTestId("submit").click();

  const failure = page.getByRole("region", { name: "Why it failed" });
  await expect(page.getByTestId("finish-by")).toBeVisible();
  await expect(failure).toContainText("Completion deadline passed");
  await expect(failure).toContainText("extend finish_by");
  await expect(failure.getByRole("link", { name: "Run with changes" })).toBeVisible();
  await expect(page.getByTestId("finish-by")).toContainText("passed");
  await expect(page.locator("header").getByTestId("overdue")).toHaveText("Overdue");
  const id = new URL(page.url()).pathname.split("/").at(-1) ?? "";
  const { spec } = await server.get<Job>(`/api/v1/jobs/${id}`);
  expect(spec.finish_by).toEqual({ after: "3s", action: "fail" });
  expect([spec.retry.max_lost, spec.retry.backoff.delays]).toEqual([2, ["1m", "5m"]]);
  await expect(page.getByText("1m, 5m")).toBeVisible();
  await failure.getByRole("link", { name: "Show timeline" }).click();
  await expect(page.getByTestId("timeline")).toContainText("Completion deadline passed");
});

test("errors of deadlines and retries are at their fields", async ({ page }) => {
  await page.goto("/submit");
  await page.getByTestId("delays").fill("1m, later");
  await expect(page.getByTestId("delays")).toHaveAttribute("aria-invalid", "true");
  await page.getByTestId("max-lost").fill("5000");
  await expect(page.getByTestId("max-lost")).toHaveAttribute("aria-invalid", "true");
  await page.getByRole("button", { name: "Start time and deadlines" }).click();
  await expect(page.getByTestId("finish-action")).toBeDisabled();
  await page.getByTestId("finish-after").fill("1h");
  await page.getByTestId("finish-action").click();
  await page.getByRole("option", { name: "Report only" }).click();
  await expect(page.locator(".cm-content")).toContainText("action: report");
  // Without a deadline there is no action.
  await page.getByTestId("finish-after").fill("");
  await expect(page.locator(".cm-content")).not.toContainText("finish_by");
});

test("a waiting job shows its deadlines, and a running job that is overdue has a mark", async ({
  page,
  server,
}) => {
  const waiting = await server.submit(
    script("waits", "true", {
      resources: { cpu: "999" },
      start_deadline: "1h",
      finish_by: { after: "2h", action: "cancel" },
    }),
  );
  await page.goto(`/jobs/${waiting}`);
  await expect(page.getByTestId("why")).toContainText(/Start deadline: .* The job then expires\./);
  await expect(page.getByTestId("why")).toContainText(/Completion deadline: .* The job is then cancelled\./);
  await server.call("POST", `/api/v1/jobs/${waiting}/cancel`, {});

  await page.goto("/jobs");
  const id = await server.submit(
    script("continues", "sleep 60", { grace: "100ms", finish_by: { after: "2s", action: "report" } }),
  );
  const row = page.getByRole("row").filter({ hasText: "continues" });
  // Without a reload.
  await expect(row.getByRole("img", { name: /Completion deadline passed/ })).toBeVisible();
  await expect(row).toContainText("Running");
  await row.getByRole("link", { name: "continues" }).click();
  await expect(page.locator("header").getByTestId("overdue")).toBeVisible();
  await expect(page.getByTestId("failure")).toHaveCount(0);
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, {});
});

test("a job that a completion deadline cancelled is explained", async ({ page, server }) => {
  const finish_by = { after: "300ms", action: "cancel" };
  const id = await server.submit(script("stopped", "sleep 60", { grace: "100ms", finish_by }));
  await server.waitForStatus(id, "cancelled");
  await page.goto(`/jobs/${id}`);
  const card = page.getByRole("region", { name: "Why it was cancelled" });
  await expect(card).toContainText("Completion deadline passed");
});

test("a job that lost too many workers names the limit and its advice", async ({ page, server }) => {
  const id = await server.submit(script("lost-often", "exit 1", { retry: { max_lost: 2 } }));
  await server.waitForStatus(id, "failed");
  // One server has one worker, which cannot be lost.
  await page.route(`**/api/v1/jobs/${id}`, async (route) => {
    const response = await route.fetch();
    const message =
      "3 executions were lost, and `retry.max_lost` is 2: the worker sent no heartbeat within its lease";
    const result = { error: "worker_lost", message };
    const job = (await response.json()) as object;
    await route.fulfill({ response, json: { ...job, executions: 3, losses: 3, result } });
  });
  await page.goto(`/jobs/${id}`);
  const failure = page.getByRole("region", { name: "Why it failed" });
  await expect(failure).toContainText("3 executions were lost or interrupted");
  await expect(failure).toContainText("3 (limit 2)");
  await expect(failure).toContainText("raise retry.max_lost");
  await expect(page.getByText("3 (3 lost)")).toBeVisible();
});

test("a guarantee sets the policies of a schedule, and contradictions are shown", async ({
  page,
  server,
}) => {
  await page.goto("/schedules/new");
  await page.getByTestId("name").fill("guaranteed");
  const overlap = page.getByRole("combobox", { name: "Overlap policy" });
  await expect(overlap).toHaveValue("Skip the new run");
  await page.getByTestId("guarantee").click();
  await page.getByRole("option", { name: "Exactly once" }).click();
  await expect(page.getByText("Two executions of a job never overlap.")).toBeVisible();
  await expect(page.getByTestId("guarantee-sets")).toContainText("Buffer all runs");
  await expect(overlap).toHaveValue("Buffer all runs");
  await expect(page.getByRole("combobox", { name: "Missed firings" })).toHaveValue("Run all");
  await expect(page.getByText("The schedule is valid.")).toBeVisible();
  await expect(page.getByTestId("contradictions")).toHaveCount(0);

  await overlap.click();
  await expect(page.getByRole("option", { name: "Skip the new run" })).toHaveAttribute(
    "data-combobox-disabled",
    "true",
  );
  await page.getByRole("option", { name: "Cancel the old run" }).click();
  await expect(page.getByTestId("contradictions")).toContainText(
    "The overlap policy contradicts the guarantee “Exactly once”",
  );
  await page.getByRole("button", { name: "Completion deadline" }).click();
  await page.getByTestId("finish-after").fill("6h");
  await expect(page.getByTestId("save")).toBeEnabled();
  await page.getByTestId("save").click();

  const policies = page.getByRole("complementary");
  await expect(policies.getByText("Exactly once", { exact: true })).toBeVisible();
  await expect(policies.getByText("Cancel the old run", { exact: true })).toBeVisible();
  // Whole text, because the next firing can be “in 16h”.
  await expect(policies.getByText(/^6h ·/)).toBeVisible();
  const { spec } = await server.get<{ spec: object }>("/api/v1/schedules/guaranteed");
  expect(spec).toMatchObject({ guarantee: "exactly_once", missed: { policy: "fire_all" } });

  // The policies of the guarantee are defaults: the file omits them, and another guarantee replaces them.
  await page.getByRole("link", { name: "Edit" }).click();
  const file = page.getByRole("textbox", { name: "Schedule file" });
  await expect(file).toContainText("guarantee: exactly_once");
  await expect(file).toContainText("policy: cancel_other");
  await expect(file).not.toContainText("fire_all");
  await expect(file).not.toContainText("delivery");
});
