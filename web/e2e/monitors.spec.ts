/** Monitors: from a new monitor and its ping URL to an alert about it, and its recovery. */

import { expect, test, waitFor } from "./fixtures";

interface MonitorBody {
  status: string;
  ping_url: string;
}

test("a monitor is created, pinged by its URL, goes down with an alert, and recovers", async ({
  page,
  server,
}) => {
  const dialog = page.getByRole("dialog");
  await page.goto("/alerts/monitors");
  await expect(page.getByText("No monitors")).toBeVisible();
  await page.getByRole("button", { name: "New monitor" }).click();
  await dialog.getByRole("textbox", { name: "Name", exact: true }).fill("backup");
  await dialog.getByText("Cron expression", { exact: true }).click();
  await dialog.getByRole("textbox", { name: "Cron expression" }).fill("61 * * * *");
  await dialog.getByRole("textbox", { name: "Owner" }).fill("ops");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog.getByRole("alert"), "the server checks the expression").toBeVisible();
  await dialog.getByRole("textbox", { name: "Cron expression" }).fill("30 2 * * *");
  await dialog.getByRole("textbox", { name: "Time zone" }).fill("Europe/Berlin");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  const row = page.getByTestId("monitor-rows").getByRole("row").filter({ hasText: "backup" });
  await expect(row).toContainText("New");
  await expect(row).toContainText("30 2 * * * (Europe/Berlin)");

  // No user is notified without a rule.
  await expect(page.getByText("No alert rule notifies you if a monitor is down.")).toBeVisible();
  await page.getByRole("link", { name: "Create a rule" }).click();
  await dialog.getByRole("textbox", { name: "Name", exact: true }).fill("monitor-down");
  await dialog.getByRole("combobox", { name: "Condition" }).click();
  await page.getByRole("option", { name: "Monitor down" }).click();
  await expect(dialog.getByRole("textbox", { name: "Queue" }), "a monitor has no queue").toHaveCount(0);
  await dialog.getByRole("textbox", { name: "Monitor name" }).fill("back*");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page.getByTestId("rule-rows")).toContainText("A monitor is down");

  // The job pings the URL that the page shows.
  await page.goto("/alerts/monitors");
  await expect(page.getByText("No alert rule notifies you")).toHaveCount(0);
  await row.getByRole("link", { name: "backup" }).click();
  await expect(page).toHaveURL(/\/alerts\/monitors\/default\/backup$/);
  const { ping_url: path } = await server.get<MonitorBody>("/api/v1/monitors/backup");
  const url = `${server.url}${path}`;
  await expect(page.getByText(url, { exact: true })).toBeVisible();
  await expect(page.getByText(`curl -fsS -m 10 --retry 5 ${url}/$?`)).toBeVisible();
  await expect(page.getByText("No pings yet")).toBeVisible();
  expect(await (await fetch(url)).text()).toBe("OK\n");
  await expect(page.getByTestId("pings")).toContainText("The job succeeded");
  await expect(page.getByText("Up", { exact: true })).toBeVisible();

  // A failure with a text, as from a script.
  await fetch(`${url}/start`, { method: "HEAD" });
  await fetch(`${url}/3`, { method: "POST", body: "no space left on /backup" });
  await expect(page.getByText("The job ended with exit code 3: no space left on /backup")).toBeVisible();
  await expect(page.getByTestId("pings").getByRole("listitem")).toHaveCount(3);
  await page.screenshot({ path: "e2e/report/shots/monitor-down.png" });
  await page.goto("/alerts");
  const alert = page.getByTestId("alert-rows").getByRole("row").filter({ hasText: "backup" });
  await expect(alert).toContainText("The monitor is down");
  await alert.getByRole("link", { name: "The monitor is down" }).click();
  await expect(page.getByText("The job ended with exit code 3: no space left on /backup")).toBeVisible();
  await page.getByRole("link", { name: "backup" }).first().click();
  await expect(page).toHaveURL(/\/alerts\/monitors\/default\/backup$/);

  // A success by hand ends it.
  await page.getByRole("button", { name: "Report a success" }).click();
  await dialog.getByRole("button", { name: "Report a success" }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page.getByText("Up", { exact: true })).toBeVisible();
  await waitFor(10_000, "the end of the alert", async () => {
    return (await server.get<{ open: number }>("/api/v1/alerts")).open === 0;
  });

  // Paused, then deleted.
  await page.getByRole("button", { name: "Edit" }).click();
  await dialog.getByRole("switch", { name: "Monitor enabled" }).click();
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(page.getByText("Paused", { exact: true })).toBeVisible();
  await page.goto("/alerts/monitors");
  await expect(row).toContainText("Paused");
  await page.screenshot({ path: "e2e/report/shots/monitors.png" });
  await row.getByRole("button", { name: "Delete monitor backup" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(page.getByText("No monitors")).toBeVisible();
  expect((await fetch(url)).status).toBe(404);
});

test("monitors are in Chinese on a phone, and do not scroll sideways", async ({ page, server }) => {
  const spec = { name: "backup", namespace: "default", timing: { every: "1d" }, owner: "运维组" };
  await server.call("PUT", "/api/v1/monitors/backup?namespace=default", spec);
  await server.call("POST", "/api/v1/monitors/backup/ping?namespace=default", { exit_code: 3 });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.addInitScript(() =>
    localStorage.setItem("belfry.preferences", JSON.stringify({ language: "zh-CN" })),
  );
  for (const path of ["/alerts/monitors", "/alerts/monitors/default/backup"]) {
    await page.goto(path);
    await expect(page.getByText("异常").first()).toBeVisible();
    const content = page.locator("#content");
    expect(await content.evaluate((each) => each.scrollWidth - each.clientWidth), path).toBe(0);
  }
  await expect(page.getByText("任务结束，退出码 3").first()).toBeVisible();
  await page.screenshot({ path: "e2e/report/shots/monitor-phone-zh.png" });
});
