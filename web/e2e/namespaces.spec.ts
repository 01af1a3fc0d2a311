/** H1. The namespace switcher, the column of namespaces in lists, and the settings of namespaces. */

import { expect, script, test } from "./fixtures";

test("the switcher filters lists, is remembered, and is part of the address of lists", async ({
  page,
  server,
}) => {
  const invoices = await server.submit(script("invoices", "true", { namespace: "switched" }));
  await server.submit(script("backup", "true"));
  await server.waitForStatus(invoices, "succeeded");
  await page.goto("/jobs");
  const rows = page.getByTestId("job-rows");
  const jobs = page.getByRole("table", { name: "Jobs" });
  await expect(jobs.getByRole("columnheader", { name: "Namespace" })).toBeVisible();
  await expect(rows.getByRole("row").filter({ hasText: "invoices" })).toContainText("switched");

  const switcher = page.getByRole("combobox", { name: "Namespace of the lists" });
  await switcher.click();
  await page.getByRole("option", { name: "switched" }).click();
  await expect(page).toHaveURL(/\/jobs\?namespace=switched/);
  await expect(rows).toContainText("invoices");
  await expect(rows).not.toContainText("backup");
  await expect(jobs.getByRole("columnheader", { name: "Namespace" })).toHaveCount(0);
  await expect(
    page.getByRole("button", { name: /^Succeeded/ }),
    "the views count the jobs of the namespace",
  ).toContainText("1");

  await page.getByRole("link", { name: "Queues", exact: true }).click();
  await expect(page).toHaveURL(/\/queues$/);
  await expect(switcher).toHaveValue("switched");
  await page.reload();
  await page.getByRole("link", { name: "Schedules", exact: true }).click();
  await expect(page).toHaveURL(/\/schedules\?namespace=switched/);
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await expect(page).toHaveURL(/\/runs\?namespace=switched/);

  await switcher.focus();
  await switcher.fill("All");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/runs$/);
});

test("an address without a namespace shows all, whatever is remembered", async ({ page, server }) => {
  await server.submit(script("payroll", "true", { namespace: "people" }));
  await server.submit(script("mirror", "true"));
  await page.addInitScript(() =>
    localStorage.setItem("belfry.preferences", JSON.stringify({ namespace: "people", language: "zh-CN" })),
  );
  await page.goto("/jobs?name=mirror");
  await expect(page.getByTestId("job-rows")).toContainText("mirror");
  await expect(page.getByRole("combobox", { name: "列表的命名空间" })).toHaveValue("全部命名空间");
});

test("runs, schedules and workflows have a column of namespaces", async ({ page, server }) => {
  await server.submit(script("any", "true", { namespace: "finance" }));
  await server.submit(script("any", "true"));
  const steps = [{ name: "one", job: { run: { process: { script: "true" } } } }];
  const spec = { name: "closing", namespace: "finance", steps };
  await server.call("PUT", "/api/v1/workflows/closing?namespace=finance", spec);
  await server.call("POST", "/api/v1/workflows/closing/start?namespace=finance", {});
  const timing = { rules: [{ every: "1h" }] };
  await server.call("PUT", "/api/v1/schedules/ledger?namespace=finance", {
    ...{ name: "ledger", namespace: "finance", timing },
    job: { run: { process: { script: "true" } } },
  });
  for (const [list, name] of [
    ["runs", "closing"],
    ["workflows", "closing"],
    ["schedules", "ledger"],
  ]) {
    await page.goto(`/${list}`);
    await expect(page.getByRole("columnheader", { name: "Namespace" })).toBeVisible();
    const row = page.getByRole("row").filter({ hasText: name });
    await expect(row.getByRole("cell", { name: "finance", exact: true })).toBeVisible();
    await page.goto(`/${list}?namespace=finance`);
    await expect(row).toBeVisible();
    await expect(page.getByRole("columnheader", { name: "Namespace" })).toHaveCount(0);
  }
});

test("the minimum sandbox of a namespace is set beside its quotas, which are kept", async ({
  page,
  server,
}) => {
  const quota = { running: 8, custom: { gpu: 2 } };
  await server.call("PUT", "/api/v1/namespaces/guests", { quota, note: "free plan" });
  await page.goto("/namespaces");
  const row = page.getByRole("row").filter({ hasText: "guests" });
  await expect(row).toContainText("free plan");
  await expect(row).not.toContainText("Minimum sandbox");
  const open = () => page.getByRole("button", { name: "Settings of namespace guests", exact: true }).click();
  const dialog = page.getByRole("dialog");
  const choose = async (field: string, option: string) => {
    await dialog.getByRole("combobox", { name: field }).click();
    await page.getByRole("option", { name: option, exact: true }).click();
  };
  const settings = async () => (await server.get<{ settings: object }>("/api/v1/namespaces/guests")).settings;

  await open();
  await expect(
    dialog.getByText("Each new process in the namespace has at least this sandbox."),
  ).toBeVisible();
  await expect(dialog.getByRole("combobox", { name: "Most open network" })).toHaveCount(0);
  await choose("Minimum sandbox", "Strict");
  await choose("Most open network", "No network");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(row).toContainText("Minimum sandbox: Strict");
  await expect(row).toContainText("Most open network: No network");
  const sandbox = { level: "strict", network: "none" };
  expect(await settings()).toMatchObject({ quota, note: "free plan", sandbox });

  await open();
  await dialog.getByRole("textbox", { name: "Running jobs" }).fill("9");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(row).toContainText("of 9");
  expect(await settings(), "a change of a quota keeps the sandbox").toMatchObject({ sandbox });

  await open();
  await choose("Minimum sandbox", "None");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(row).not.toContainText("Minimum sandbox");
  expect(await settings()).not.toHaveProperty("sandbox");
});
