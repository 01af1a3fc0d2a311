/** A1, A3–A5, G2, H1. Jobs in the dashboard: submit, follow, cancel, retry, find. */

import { expect, script, test, waitFor } from "./fixtures";

test("a job is submitted with the form and followed to its end", async ({ page }) => {
  await page.goto("/submit");
  await page.getByTestId("name").fill("from-the-form");
  await page
    .getByRole("textbox", { name: "Script" })
    .fill('echo first line; sleep 1; echo "last line" >&2\n');
  // The file next to the form has the same content.
  await expect(page.locator(".cm-content")).toContainText("from-the-form");
  await expect(page.getByText("The job is valid.")).toBeVisible();
  await page.getByTestId("submit").click();

  await expect(page.getByRole("heading", { name: "from-the-form" })).toBeVisible();
  await expect(page.getByTestId("log")).toContainText("first line");
  await expect(page.getByTestId("log")).toContainText("last line");
  // Without a reload.
  await expect(page.locator("header").getByText("Succeeded")).toBeVisible();
});

test("an invalid job file is marked while typing and cannot be submitted", async ({ page }) => {
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

test("the dialog of an action that fails stays open with its error and what was typed", async ({
  page,
  server,
}) => {
  const id = await server.submit(script("to-cancel-later", "sleep 60", { grace: "100ms" }));
  await server.waitForStatus(id, "running");
  await page.goto(`/jobs/${id}`);
  const problem = { type: "about:blank", status: 429, code: "busy", detail: "too many requests" };
  const contentType = "application/problem+json";
  await page.route("**/cancel", (route) =>
    route.fulfill({ status: 429, contentType, body: JSON.stringify(problem) }),
  );
  await page.getByRole("button", { name: "Cancel" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason").fill("a long reason");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await expect(dialog.getByRole("alert")).toContainText("too many requests");
  await expect(dialog.getByLabel("Reason")).toHaveValue("a long reason");
  await expect(page.getByText("to-cancel-later cancelled")).toHaveCount(0);

  await page.unroute("**/cancel");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page.locator("header").getByText("Cancelled")).toBeVisible();
  expect(JSON.stringify(await server.get(`/api/v1/jobs/${id}/events`))).toContain("a long reason");
});

test("a job is run again with changes", async ({ page, server }) => {
  const more = { labels: { team: "pay" }, priority_class: "preemptible" };
  const id = await server.submit(script("original", "echo once", more));
  await server.waitForStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  await page.getByRole("link", { name: "Run with changes" }).click();
  await expect(page.getByTestId("name")).toHaveValue("original");
  await page.getByTestId("name").fill("changed");
  await page.getByTestId("submit").click();
  await expect(page.getByRole("heading", { name: "changed" })).toBeVisible();
  await expect(page.getByText("team=pay")).toBeVisible();
  await expect(page.getByText("Preemptible", { exact: true })).toBeVisible();
});

test("a waiting job shows its waiting reason", async ({ page, server }) => {
  const id = await server.submit(script("too-big", "true", { resources: { cpu: "999" } }));
  await page.goto(`/jobs/${id}`);
  await expect(page.getByTestId("why")).toContainText("CPU: requested 999");
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  await expect(page.getByTestId("why")).toBeHidden();

  const constraints = [{ label: "gpu", operator: "exists" }];
  const other = await server.submit(script("elsewhere", "true", { constraints }));
  await page.goto(`/jobs/${other}`);
  await expect(page.getByTestId("why")).toContainText("has no label gpu");
  await server.call("POST", `/api/v1/jobs/${other}/cancel`, {});
});

test("a job that follows another one names it until it has ended", async ({ page, server }) => {
  const upstream = await server.submit(script("upstream", "true", { resources: { cpu: "999" } }));
  const after = [{ job: upstream, condition: "any" }];
  const id = await server.submit(script("downstream", "echo follows", { after }));
  await page.goto(`/jobs/${id}`);
  await expect(page.getByTestId("why")).toContainText("must end");
  await page.getByTestId("why").getByRole("link", { name: upstream }).click();
  await expect(page.getByRole("heading", { name: "upstream" })).toBeVisible();
  await server.call("POST", `/api/v1/jobs/${upstream}/cancel`, {});
  await page.goBack();
  await expect(page.getByText("follows").first()).toBeVisible();
  await page.getByRole("tab", { name: "Timeline" }).click();
  await expect(page.getByText("Upstream jobs ended as required")).toBeVisible();
});

test("each execution has a bar and its own log", async ({ page, server }) => {
  const body = script("twice", "echo this is try $BELFRY_EXECUTION_NUMBER; exit 4", {
    retry: { max_retries: 1, backoff: { initial: "1s" } },
  });
  const id = await server.submit(body);
  await server.waitForStatus(id, "failed");
  await page.goto(`/jobs/${id}`);
  await page.getByRole("button", { name: /#1 Failed/ }).click();
  await expect(page).toHaveURL(/execution=1/);
  await expect(page.getByRole("button", { name: /#1 Failed/ })).toHaveAttribute("aria-pressed", "true");
  await expect(page.getByRole("button", { name: /#2 Failed/ })).toBeVisible();
  await expect(page.getByText("exited with code 4").first()).toBeVisible();
});

/** C4. */
test("a checkpoint is shown and can be downloaded", async ({ page, server }) => {
  const id = await server.submit(script("half-way", 'printf "page 7" > "$BELFRY_CHECKPOINT"; exit 1'));
  await server.waitForStatus(id, "failed");
  await page.goto(`/jobs/${id}`);
  const button = page.getByRole("button", { name: "Download checkpoint" });
  await expect(button).toBeVisible();
  await expect(page.getByText("6 B", { exact: true })).toBeVisible();
  const download = page.waitForEvent("download");
  await button.click();
  expect((await download).suggestedFilename()).toBe(`${id}.checkpoint-1`);
});

test("a log is searched and filtered by stream, and each line has a link", async ({ page, server }) => {
  const id = await server.submit(
    script(
      "talks",
      'for i in $(seq 1 300); do echo "line $i"; done; printf "\\033[31mred alert\\033[0m\\n" >&2',
    ),
  );
  await server.waitForStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  const log = page.getByTestId("log");
  await expect(log).toContainText("301 lines");
  await log.getByLabel("Find in log").fill("LINE 150");
  await expect(log.getByText("1 / 1")).toBeVisible();
  await expect(log.locator("mark")).toHaveText("line 150");
  await log.getByLabel("Find in log").fill("");
  await log.getByText("stderr", { exact: true }).click();
  await expect(log).toContainText("1 line");
  await expect(log.getByText("red alert")).toHaveCSS("color", "rgb(192, 38, 44)");
  await log.getByText("All", { exact: true }).click();
  await page.goto(`/jobs/${id}?line=42`);
  await expect(log.getByText("line 42", { exact: true })).toBeVisible();
});

test("a line of a long log has its correct number and is found by its link", async ({ page, server }) => {
  const id = await server.submit(script("talks-long", 'seq -f "row %.0f" 1 25000'));
  await server.waitForStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  const log = page.getByTestId("log");
  await expect(log).toContainText("Lines 15,001 to 25,000 of 25,000");
  await expect(log.getByRole("button", { name: "Link to line 25000" })).toBeVisible();
  await log.getByLabel("Find in log").fill("row 12345");
  await expect(log).toContainText("1 match, not in the lines shown");
  await log.getByRole("button", { name: "Earlier lines" }).click();
  await expect(log).toContainText("Lines 10,001 to 15,000 of 25,000");
  await expect(log.locator("mark")).toHaveText("row 12345");
  await log.getByRole("button", { name: "Newest lines" }).click();
  await expect(log).toContainText("Lines 15,001 to 25,000 of 25,000");

  await page.goto(`/jobs/${id}?line=4321`);
  await expect(log.getByText("row 4321", { exact: true })).toBeVisible();
  await expect(log.getByRole("button", { name: "Link to line 4321" })).toBeVisible();
  await page.goto(`/jobs/${id}?line=30000`);
  await expect(log).toContainText("The log has no line 30,000.");
});

test("text is found anywhere in a long log, and the search can be stopped", async ({ page, server }) => {
  // About 5.5 MB: more than one response contains.
  const id = await server.submit(
    script("talks-very-long", 'seq -f "row %.0f of a log that is longer than what is read at once" 1 100000'),
  );
  await server.waitForStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  const log = page.getByTestId("log");
  // Above the lines and below them.
  await expect(log.getByText("Lines 90,001 to 100,000 of 100,000")).toHaveCount(2);
  const find = log.getByLabel("Find in log");
  await find.fill("row 543");
  await expect(log).toContainText("111 matches, none in the lines shown");
  await find.press("Enter");
  // Rows 543, 5430 to 5439, and 54300 to 54399.
  await expect(log).toContainText("1 / 111");
  await expect(log.getByText("row 543 of a log")).toBeVisible();
  await expect(log.getByRole("button", { name: "Link to line 543", exact: true })).toBeVisible();
  await log.getByRole("button", { name: "Previous match" }).click();
  await expect(log).toContainText("111 / 111");
  await expect(log.getByText("row 54399 of a log")).toBeVisible();
  await log.getByRole("button", { name: "First lines" }).click();
  await expect(log.getByRole("button", { name: "Link to line 1", exact: true })).toBeVisible();
  await expect(log.getByText("Lines 1 to 5,000 of 100,000")).toHaveCount(2);
  await log.getByRole("button", { name: "Newest lines" }).click();
  await expect(log.getByText("Lines 90,001 to 100,000 of 100,000")).toHaveCount(2);

  // The second page is never returned.
  await page.route(/logs\/search\?.*cursor=/, () => undefined);
  await find.fill("row 54");
  await expect(log).toContainText(/[1-9]\d*% searched, 1,000 found/);
  await log.getByRole("button", { name: "Stop" }).click();
  await expect(log).toContainText(/0 \/ 1,000 up to line 54,\d{3}/);
  await find.press("Shift+Enter");
  await expect(log).toContainText(/1,000 \/ 1,000 up to line 54,\d{3}/);
  await expect(log.locator("mark[data-now]")).toHaveText("row 54");
  // Another text cancels the search.
  await find.fill("row 77777 ");
  await expect(log).toContainText("1 match, not in the lines shown");
});

test("a log is searched with a regular expression, also in text that is not displayed", async ({
  page,
  server,
}) => {
  const id = await server.submit(
    script(
      "talks-patterns",
      'echo "code 17"; echo "code x"; printf "10%%\\r50%%\\r100%%\\n"; printf "\\033[31mco\\033[0mde 4" >&2',
    ),
  );
  await server.waitForStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  const log = page.getByTestId("log");
  await expect(log).toContainText("4 lines");
  const find = log.getByLabel("Find in log");
  await find.fill("code [0-9]+");
  await expect(log).toContainText("No matches");
  await log.getByRole("button", { name: "Regular expression" }).click();
  await expect(find).toBeFocused();
  await expect(log).toContainText("1 / 2");
  await expect(log.locator("mark[data-now]")).toHaveText("code 17");
  await find.press("Enter");
  await expect(log).toContainText("2 / 2");
  // A match with two colours.
  await expect(log.locator("mark[data-now]")).toHaveText(["co", "de 4"]);
  await log.getByText("stderr", { exact: true }).click();
  await expect(log).toContainText("1 / 1");
  await log.getByText("All", { exact: true }).click();

  await find.fill("code (");
  await expect(log).toContainText("The pattern is not a regular expression: unclosed group");
  await expect(find).toHaveAttribute("aria-invalid", "true");
  await find.fill("^50%$");
  await expect(log).toContainText("1 / 1");
  await expect(log.getByTitle("This line matches, but the matching part cannot be highlighted.")).toHaveText(
    /100%/,
  );
  await find.press("Escape");
  await expect(find).toHaveValue("");
  await expect(find).not.toBeFocused();
});

test("a search includes what is added to the log", async ({ page, server }) => {
  const id = await server.submit(
    script(
      "talks-slowly",
      "trap 'echo dle; echo needles; exit' TERM; printf nee; while :; do sleep 0.1; done",
    ),
  );
  await server.waitForStatus(id, "running");
  await page.goto(`/jobs/${id}`);
  const log = page.getByTestId("log");
  await expect(log).toContainText("nee");
  await log.getByLabel("Find in log").fill("needle");
  await expect(log).toContainText("No matches");
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, {});
  await expect(log).toContainText("1 / 2");
});

test("a long log of wrapped lines is shown at its end on a phone", async ({ page, server }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  const text =
    "row %.0f of a log whose lines are so long that a phone wraps each of them; 这里有一些中文文字";
  const id = await server.submit(script("talks-wide", `seq -f "${text}" 1 9000`));
  await server.waitForStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  const log = page.getByTestId("log");
  await expect(log.getByRole("button", { name: "Link to line 9000" })).toBeInViewport();
});

test("a log with an omitted part says so, and so does its download", async ({ page, server }) => {
  const id = await server.submit(script("talks-without-end", "seq 1 1000"));
  await server.waitForStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  const log = page.getByTestId("log");
  await expect(log).toContainText("1,000 lines");
  await expect(log.getByRole("button", { name: "Download log", exact: true })).toBeVisible();
  await expect(log).not.toContainText("not kept");
  // As if the log had more than 64 MiB, of which the middle is omitted.
  await page.route(`**/jobs/${id}/executions*`, async (route) => {
    const response = await route.fetch();
    const list = (await response.json()) as { items: Array<{ usage: { log_bytes: number } }> };
    for (const { usage } of list.items) usage.log_bytes += 6 * 2 ** 20;
    await route.fulfill({ response, json: list });
  });
  await page.reload();
  await expect(log).toContainText("6 MiB of this log were not kept.");
  await expect(log.getByRole("button", { name: "Download log (6 MiB not kept)" })).toBeVisible();
});

test("failed runs of a schedule with a limit of one run are retried one after another", async ({
  page,
  server,
}) => {
  const schedule = await server.schedule("one-by-one", [], "sleep 0.5; exit 1");
  const listed = (query: string) =>
    server.get<{ items: Array<{ id: string; retry_of?: string }> }>(
      `/api/v1/jobs?schedule=${schedule}&${query}`,
    );
  for (let runs = 1; runs <= 4; runs += 1) {
    await server.trigger("one-by-one");
    await waitFor(
      15_000,
      "the run to fail",
      async () => (await listed("status=failed")).items.length === runs,
    );
  }
  const before = new Set((await listed("")).items.map(({ id }) => id));
  await page.goto(`/jobs?schedule=${schedule}&status=failed`);
  await page.getByLabel("Select all shown items").check();
  await page.getByRole("button", { name: "Retry 4" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Retry 4" }).click();
  await expect(dialog).toContainText("jobs wait until their schedule allows another run");
  await expect(page.getByText("4 jobs submitted again")).toBeVisible();
  const again = (await listed("")).items.filter(({ id }) => !before.has(id));
  // In the order of the first runs.
  expect(again.map(({ retry_of }) => retry_of).reverse()).toEqual([...before].sort());
});

test("a bulk retry that is stopped while jobs wait keeps them selected", async ({ page, server }) => {
  const schedule = await server.schedule("stopped-retry", [], "exit 1");
  for (let runs = 1; runs <= 2; runs += 1) {
    await server.trigger("stopped-retry");
    const path = `/api/v1/jobs?schedule=${schedule}&status=failed`;
    const failed = async () => (await server.get<{ items: object[] }>(path)).items.length;
    await waitFor(15_000, "the run to fail", async () => (await failed()) === runs);
  }
  // The run now active does not end.
  await server.schedule("stopped-retry", [], "sleep 60");
  await server.trigger("stopped-retry");
  await page.goto(`/jobs?schedule=${schedule}&status=failed`);
  await page.getByLabel("Select all shown items").check();
  await page.getByRole("button", { name: "Retry 2" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Retry 2" }).click();
  await expect(dialog).toContainText("2 jobs wait until their schedule allows another run");
  await dialog.getByRole("button", { name: "Stop" }).click();
  await expect(dialog).toContainText("0 done, 2 refused");
  await expect(dialog.getByTestId("refusals")).toContainText("stopped-retry");
  await dialog.getByRole("button", { name: "Close" }).last().click();
  await expect(page.getByRole("toolbar")).toContainText("2 selected");
});

test("failures of a bulk retry are grouped by error code and stay selected", async ({ page, server }) => {
  const ids = await Promise.all([1, 2, 3].map(() => server.submit(script("thrice", "exit 1"))));
  for (const id of ids) await server.waitForStatus(id, "failed");
  // As if the server refused two of the jobs.
  const [first, ...others] = ids;
  await page.route("**/api/v1/jobs/retry", (route) => {
    const refused = [{ code: "outcome_refused", detail: "the jobs are too old", jobs: others }];
    return route.fulfill({ json: { changed: [{ id: first }], refused } });
  });
  await page.goto("/jobs?name=thrice&status=failed");
  await page.getByLabel("Select all shown items").check();
  await page.getByRole("button", { name: "Retry 3" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Retry 3" }).click();
  await expect(dialog).toContainText("1 done, 2 refused");
  await expect(dialog.getByTestId("refusals").getByRole("listitem")).toHaveCount(1);
  await expect(dialog.getByTestId("refusals")).toContainText("the jobs are too old");
  await dialog.getByRole("button", { name: "Close" }).last().click();
  await expect(page.getByRole("toolbar")).toContainText("2 selected");
});

test("filters are part of the URL and survive a reload", async ({ page, server }) => {
  const id = await server.submit(script("bad-one", "exit 1", { labels: { team: "filters" } }));
  await server.submit(script("good-one", "true", { labels: { team: "filters" } }));
  await server.waitForStatus(id, "failed");
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

test("all jobs of a filter are cancelled, also those that the list has not loaded", async ({
  page,
  server,
}) => {
  const later = new Date(Date.now() + 3_600_000).toISOString();
  await server.submitAll(Array.from({ length: 130 }, () => script("very-many", "true", { run_at: later })));
  await page.goto("/jobs");
  await page.getByLabel("Filter", { exact: true }).fill("VERY");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/text=VERY/);
  // Without the suggestions of the filter, which cover the list.
  await page.reload();
  await page.getByLabel("Select all shown items").check();
  await page.getByRole("button", { name: "Select all matches" }).click();
  await page.getByRole("toolbar").getByRole("button", { name: "Cancel" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("130 jobs will be cancelled");
  await dialog.getByRole("button", { name: "Cancel 130" }).click();
  await expect(page.getByText("130 jobs cancelled")).toBeVisible();
  const ready = await server.get<{ items: object[] }>("/api/v1/jobs?text=very&status=ready");
  expect(ready.items).toEqual([]);
});

test("a bulk cancellation shows the number of jobs first", async ({ page, server }) => {
  for (let i = 0; i < 5; i += 1) {
    await server.submit(script("many", "true", { run_at: new Date(Date.now() + 3_600_000).toISOString() }));
  }
  await page.goto("/jobs?name=many&status=ready");
  await page.getByLabel("Select all shown items").check();
  await page.getByRole("button", { name: "Cancel 5" }).click();
  await expect(page.getByRole("dialog")).toContainText("5 jobs will be cancelled");
  await page.getByRole("dialog").getByRole("button", { name: "Cancel 5" }).click();
  await expect(page.getByText("5 jobs cancelled")).toBeVisible();
  await expect(page.getByText("No job matches these filters")).toBeVisible();
});

test("labels and the reason of a failure can be read in the list of jobs", async ({ page, server }) => {
  await server.submit({ ...script("labelled", "exit 2"), labels: { env: "staging", team: "data" } });
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto("/jobs?status=failed");
  const row = page.getByRole("row").filter({ hasText: "labelled" });
  await expect(row).toContainText("exited with code 2");
  const isCut = (element: HTMLElement) => element.scrollWidth > element.clientWidth;
  for (const label of ["env=staging", "team=data"]) {
    expect(await row.getByRole("button", { name: label }).evaluate(isCut), label).toBe(false);
  }
  await page.setViewportSize({ width: 390, height: 800 });
  await expect(row.getByText("exited with code 2")).toBeVisible();
});
