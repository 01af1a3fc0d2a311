/** A1, A3–A5, G2, H1. Jobs by the dashboard: submitted, watched, cancelled, retried, found. */

import { expect, script, test } from "./fixtures";

test("a job is submitted with the form and watched to its end", async ({ page }) => {
  await page.goto("/submit");
  await page.getByTestId("name").fill("from-the-form");
  await page
    .getByRole("textbox", { name: "Script" })
    .fill('echo first line; sleep 1; echo "last line" >&2\n');
  // The job file beside the form says the same.
  await expect(page.locator(".cm-content")).toContainText("from-the-form");
  await expect(page.getByText("The server would take this job.")).toBeVisible();
  await page.getByTestId("submit").click();

  await expect(page.getByRole("heading", { name: "from-the-form" })).toBeVisible();
  await expect(page.getByTestId("log")).toContainText("first line");
  await expect(page.getByTestId("log")).toContainText("last line");
  // Without a reload.
  await expect(page.locator("header").getByText("Succeeded")).toBeVisible();
});

test("a job file that is wrong is marked while it is typed, and not taken", async ({ page }) => {
  await page.goto("/submit");
  await page.getByTestId("name").fill("pay roll");
  await expect(page.getByTestId("name")).toHaveAttribute("aria-invalid", "true");
  await expect(page.getByTestId("submit")).toBeDisabled();
  await page.getByTestId("name").fill("payroll");
  await expect(page.getByTestId("submit")).toBeEnabled();

  await page.locator(".cm-content").click();
  await page.keyboard.press("Control+End");
  await page.keyboard.insertText("retry: [");
  await expect(page.getByText(/Line \d+:/)).toBeVisible();
  await expect(page.getByTestId("submit")).toBeDisabled();
});

test("a running job is cancelled with a reason, and retried as a new one", async ({ page, server }) => {
  const id = await server.submit(script("to-cancel", "sleep 60"));
  await page.goto(`/jobs/${id}`);
  await expect(page.locator("header").getByText("Running")).toBeVisible();
  await page.getByRole("button", { name: "Cancel" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason").fill("not needed");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await expect(page.locator("header").getByText("Cancelled")).toBeVisible();

  await page.getByRole("tab", { name: "Timeline" }).click();
  await expect(page.getByTestId("timeline")).toContainText("not needed");

  await page.getByRole("button", { name: "Retry" }).click();
  await expect(page).not.toHaveURL(new RegExp(id));
  const again = new URL(page.url()).pathname.split("/").at(-1) ?? "";
  expect(await server.get(`/api/v1/jobs/${again}`)).toMatchObject({ retry_of: id });
});

test("a job is run again with changes", async ({ page, server }) => {
  const id = await server.submit(script("original", "echo once", { labels: { team: "pay" } }));
  await server.untilStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  await page.getByRole("link", { name: "Run with changes" }).click();
  await expect(page.getByTestId("name")).toHaveValue("original");
  await page.getByTestId("name").fill("changed");
  await page.getByTestId("submit").click();
  await expect(page.getByRole("heading", { name: "changed" })).toBeVisible();
  await expect(page.getByText("team=pay")).toBeVisible();
});

test("a waiting job says why it waits", async ({ page, server }) => {
  const id = await server.submit(script("too-big", "true", { resources: { cpu: "999" } }));
  await page.goto(`/jobs/${id}`);
  await expect(page.getByTestId("why")).toContainText("CPU: needs 999");
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  await expect(page.getByTestId("why")).toBeHidden();

  const constraints = [{ label: "gpu", operator: "exists" }];
  const other = await server.submit(script("elsewhere", "true", { constraints }));
  await page.goto(`/jobs/${other}`);
  await expect(page.getByTestId("why")).toContainText("it has no label gpu");
  await server.call("POST", `/api/v1/jobs/${other}/cancel`, {});
});

test("each try has a bar, and its own log", async ({ page, server }) => {
  const body = script("twice", "echo this is try $BELFRY_EXECUTION_NUMBER; exit 4", {
    retry: { max_retries: 1, backoff: { initial: "1s" } },
  });
  const id = await server.submit(body);
  await server.untilStatus(id, "failed");
  await page.goto(`/jobs/${id}`);
  await page.getByRole("button", { name: /#1 Failed/ }).click();
  await expect(page).toHaveURL(/execution=1/);
  await expect(page.getByRole("button", { name: /#1 Failed/ })).toHaveAttribute("aria-pressed", "true");
  await expect(page.getByRole("button", { name: /#2 Failed/ })).toBeVisible();
  await expect(page.getByText("exited with code 4").first()).toBeVisible();
});

/** C4. */
test("what a task saved for its next try is shown, and can be fetched", async ({ page, server }) => {
  const id = await server.submit(script("half-way", 'printf "page 7" > "$BELFRY_CHECKPOINT"; exit 1'));
  await server.untilStatus(id, "failed");
  await page.goto(`/jobs/${id}`);
  const button = page.getByRole("button", { name: "Download the checkpoint" });
  await expect(button).toBeVisible();
  await expect(page.getByText("6 B", { exact: true })).toBeVisible();
  const download = page.waitForEvent("download");
  await button.click();
  expect((await download).suggestedFilename()).toBe(`${id}.checkpoint-1`);
});

test("a log is searched, its streams are told apart, and a line has an address", async ({ page, server }) => {
  const id = await server.submit(
    script(
      "talks",
      'for i in $(seq 1 300); do echo "line $i"; done; printf "\\033[31mred alert\\033[0m\\n" >&2',
    ),
  );
  await server.untilStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  const log = page.getByTestId("log");
  await expect(log).toContainText("301 lines");
  await log.getByLabel("Find in the log").fill("LINE 150");
  await expect(log.getByText("1 / 1")).toBeVisible();
  await expect(log.locator("mark")).toHaveText("line 150");
  await log.getByLabel("Find in the log").fill("");
  await log.getByText("stderr", { exact: true }).click();
  await expect(log).toContainText("1 line");
  await expect(log.getByText("red alert")).toHaveCSS("color", "rgb(192, 38, 44)");
  await log.getByText("All", { exact: true }).click();
  await page.goto(`/jobs/${id}?line=42`);
  await expect(log.getByText("line 42", { exact: true })).toBeVisible();
});

test("filters stand in the address and survive a reload", async ({ page, server }) => {
  const id = await server.submit(script("bad-one", "exit 1", { labels: { team: "filters" } }));
  await server.submit(script("good-one", "true", { labels: { team: "filters" } }));
  await server.untilStatus(id, "failed");
  await page.goto("/jobs");
  await expect(page.getByLabel("Filter", { exact: true })).toBeVisible();
  await page.keyboard.press("/");
  await page.keyboard.type("team=filters");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/label=team%3Dfilters/);
  await page.keyboard.type("status:failed");
  await page.keyboard.press("Enter");
  const rows = page.getByTestId("job-rows");
  await expect(rows.getByRole("link")).toHaveText(["bad-one"]);
  await page.reload();
  await expect(rows.getByRole("link")).toHaveText(["bad-one"]);
  await page.getByRole("button", { name: "Remove the filter Failed" }).click();
  await expect(rows.getByRole("link")).toHaveCount(2);
});

test("a view is saved under a name", async ({ page }) => {
  await page.goto("/jobs?status=failed&queue=default");
  await page.getByRole("button", { name: "Save this view" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("my failures");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.goto("/jobs");
  await page.getByRole("button", { name: "my failures" }).click();
  await expect(page).toHaveURL(/status=failed/);
});

test("a list shows new jobs and their ends as they happen", async ({ page, server }) => {
  await page.goto("/jobs?name=live-one");
  await expect(page.getByText("No job matches these filters")).toBeVisible();
  await server.submit(script("live-one", "sleep 4"));
  const row = page.getByTestId("job-rows").getByRole("row").first();
  await expect(row).toContainText("Running");
  await expect(row).toContainText("Succeeded");
});

test("many jobs are cancelled at once, after their count was told", async ({ page, server }) => {
  for (let i = 0; i < 5; i += 1) {
    await server.submit(script("many", "true", { run_at: new Date(Date.now() + 3_600_000).toISOString() }));
  }
  await page.goto("/jobs?name=many&status=ready");
  await page.getByLabel("Select all that are shown").check();
  await page.getByRole("button", { name: "Cancel 5" }).click();
  await expect(page.getByRole("dialog")).toContainText("5 jobs will be cancelled");
  await page.getByRole("dialog").getByRole("button", { name: "Cancel 5" }).click();
  await expect(page.getByText("5 jobs cancelled")).toBeVisible();
  await expect(page.getByText("No job matches these filters")).toBeVisible();
});
