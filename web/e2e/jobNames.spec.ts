/** H6. The page of a job name: totals, history, newest jobs and sources. */

import { expect, script, test, waitFor } from "./fixtures";

const TIMEOUT = { timeout: 20_000 };

test("the page of a job name shows totals, history and newest jobs, and follows new ones", async ({
  page,
  server,
}) => {
  const ids: string[] = [];
  for (const text of ["exit 5", "true", "true"]) ids.push(await server.submit(script("report", text)));
  for (const [i, status] of ["failed", "succeeded", "succeeded"].entries()) {
    await server.waitForStatus(ids[i] ?? "", status);
  }
  const elsewhere = await server.submit(script("report", "true", { namespace: "finance" }));
  await server.waitForStatus(elsewhere, "succeeded");

  // From a job.
  await page.goto(`/jobs/${ids[0]}`);
  await page.getByRole("heading", { name: "report" }).getByRole("link").click();
  await expect(page).toHaveURL(/\/jobs\/named\/report$/);
  const totals = page.getByTestId("totals");
  await expect(totals).toContainText("Submitted3", TIMEOUT);
  await expect(totals).toContainText("66.6%");
  await expect(totals.getByRole("link", { name: "1" })).toHaveAttribute(
    "href",
    /^(?=.*[?&]after=).*[?&]status=failed(&|$)/,
  );
  const history = page.getByRole("region", { name: "History" });
  await expect(history.getByRole("img", { name: "3 jobs submitted in the last hour" })).toBeVisible();
  await expect(history.getByRole("img", { name: "3 jobs ended in the last hour" })).toBeVisible();
  await expect(history.getByRole("img", { name: /^Start delay in the last hour/ })).toBeVisible();
  await expect(history.getByRole("img", { name: /^Run time in the last hour/ })).toBeVisible();
  const rows = page.getByTestId("newest").getByRole("row");
  await expect(rows).toHaveCount(3);
  await expect(rows.last()).toContainText("exited with code 5");

  // Without a reload.
  await server.submit(script("report", "true"));
  await expect(rows).toHaveCount(4);
  await expect(totals).toContainText("Submitted4", TIMEOUT);

  await page.goto("/jobs/named/report?namespace=finance");
  await expect(rows).toHaveCount(1);
  await expect(totals).toContainText("Submitted1", TIMEOUT);
});

test("the attention list and the palette open the page of a job name", async ({ page, server }) => {
  const id = await server.submit(script("breaks-daily", "exit 17"));
  await server.waitForStatus(id, "failed");
  await page.goto("/");
  const region = page.getByRole("region", { name: "Needs attention" });
  await region.getByRole("link", { name: "breaks-daily" }).click(TIMEOUT);
  await expect(page).toHaveURL(/\/jobs\/named\/breaks-daily\?range=24h$/);
  const failures = page.getByRole("region", { name: "Failures" });
  await expect(failures.getByRole("listitem")).toHaveCount(1);
  await failures.getByRole("link", { name: "exited with code 17" }).click();
  await expect(page.getByRole("heading", { name: "exited with code 17", level: 1 })).toBeVisible();

  await page.goto("/queues");
  await expect(page.getByRole("heading", { name: "Queues", level: 1 })).toBeVisible();
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("dialog").getByRole("combobox")).toBeFocused();
  await page.keyboard.type("breaks-daily");
  await page.getByRole("option", { name: /History of the job name$/ }).click();
  await expect(page.getByRole("heading", { name: "breaks-daily" })).toBeVisible();
});

test("schedules and workflow steps that create jobs of a name are listed with it", async ({
  page,
  server,
}) => {
  const schedule = await server.schedule("sends-mail", [{ cron: "30 2 * * *" }]);
  await server.trigger(schedule);
  await waitFor(15_000, "the schedule's job", async () => {
    const { items } = await server.get<{ items: object[] }>("/api/v1/jobs?name=sends-mail&status=succeeded");
    return items.length === 1;
  });
  await page.goto("/jobs/named/sends-mail");
  const sources = page.getByRole("region", { name: "Created by" });
  await expect(sources.getByRole("link", { name: "sends-mail" })).toHaveAttribute(
    "href",
    `/schedules/${schedule}`,
  );

  const steps = [{ name: "load", job: { run: { process: { script: "true" } } } }];
  await server.call("PUT", "/api/v1/workflows/loads", { name: "loads", steps });
  const { id } = await server.call<{ id: string }>("POST", "/api/v1/workflows/loads/start", {});
  let name = "";
  await waitFor(15_000, "the job of the step", async () => {
    const { items } = await server.get<{ items: Array<{ name: string }> }>(`/api/v1/jobs?run=${id}`);
    name = items[0]?.name ?? "";
    return name !== "";
  });
  await page.goto(`/jobs/named/${name}`);
  await expect(sources.getByRole("link", { name: "loads", exact: true })).toHaveAttribute(
    "href",
    "/workflows/loads?namespace=default&step=load",
  );
  await expect(sources.getByRole("link", { name: "last run" })).toHaveAttribute(
    "href",
    `/runs/${id}?step=load`,
  );
});

test("a name without jobs says so", async ({ page }) => {
  await page.goto("/jobs/named/never-submitted");
  await expect(page.getByText("No jobs with this name")).toBeVisible();
  await expect(page.getByTestId("totals")).toContainText("Submitted0");
});
