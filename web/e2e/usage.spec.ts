/** H1, H6. What running executions use, on the pages of the job and of its worker. */

import { expect, script, test } from "./fixtures";

/** A loop that needs one core for about 20 seconds: a worker measures every 5 seconds. */
const BURNS_CPU =
  "end=$(( $(date +%s) + 20 )); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done";

/** CPU that is more than noise, on a machine under any load. */
const SOME_CPU = /^(?:0\.[0-9]*[1-9][0-9]*|[1-9][0-9.]*) cores?$/;

test("the page of a job shows what it uses while it runs, and statistics after its end", async ({
  page,
  server,
}) => {
  const resources = { cpu: "500m", memory: "2GiB" };
  const id = await server.submit(script("burns-cpu", BURNS_CPU, { resources }));
  await server.waitForStatus(id, "running");
  await page.goto(`/jobs/${id}`);
  const usage = page.getByRole("region", { name: "Usage", exact: true });
  await expect(usage.getByTestId("usage-cpu")).toHaveText(SOME_CPU);
  await expect(usage.getByTestId("usage-memory")).toHaveText(/^[\d.]+ [KM]iB$/);
  await expect(usage.getByRole("img", { name: /^CPU in the last 5 minutes: .+ cores? now/ })).toBeVisible();
  await expect(usage.getByRole("img", { name: /^Memory in the last 5 minutes: / })).toBeVisible();
  await expect(usage.getByText("Request 0.5 cores")).toBeVisible();

  // Without a reload.
  const statistics = usage.getByTestId("usage-statistics");
  await expect(statistics.getByRole("row", { name: /^Request/ })).toContainText("2 GiB");
  await expect(statistics.getByRole("row", { name: /^p95/ }).getByRole("cell").first()).toHaveText(SOME_CPU);
  await expect(usage.getByText(/^The job requests 2 GiB of memory\./)).toBeVisible();
});

test("the page of a worker lists its executions by use", async ({ page, server }) => {
  const id = await server.submit(script("burns-more-cpu", BURNS_CPU, { resources: { cpu: "500m" } }));
  await server.waitForStatus(id, "running");
  const { worker_id: worker } = await server.get<{ worker_id: string }>(`/api/v1/jobs/${id}`);
  await page.goto(`/workers/${worker}`);
  const usage = page.getByRole("region", { name: "Executions by use" });
  const row = usage.getByTestId("usage-rows").getByRole("row").filter({ hasText: "burns-more-cpu" });
  await expect(row).toContainText(/(?:0\.\d+|[1-9][\d.]*) \/ 0\.5/);
  await expect(row).toContainText("default");
  await expect(row.getByRole("link", { name: "burns-more-cpu" })).toHaveAttribute(
    "href",
    new RegExp(`/jobs/${id}`),
  );

  await usage.getByRole("radiogroup").getByText("Memory", { exact: true }).click();
  await expect(page).toHaveURL(/[?&]order=memory$/);
  await expect(row).toBeVisible();
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, {});
  await expect(row).toHaveCount(0);
});
