/** H1. Actions of the command palette: the same as those of the buttons, with the same confirmations. */

import type { Page } from "@playwright/test";

import { expect, script, test } from "./fixtures";

/** Opens the palette, types a text, and selects an option with the keyboard. */
async function command(page: Page, text: string, option: string | RegExp): Promise<void> {
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /^(Page, object|页面)/ }).fill(text);
  const found = page.getByRole("option", { name: option });
  await expect(found).toBeVisible();
  for (let i = 0; i < 30 && (await found.getAttribute("aria-selected")) !== "true"; i += 1) {
    await page.keyboard.press("ArrowDown");
  }
  await page.keyboard.press("Enter");
}

const confirm = (page: Page, name: string) =>
  page.getByRole("dialog").getByRole("button", { name, exact: true }).click();

test("queues and schedules are paused, resumed and triggered from any page", async ({ page, server }) => {
  await server.call("PUT", "/api/v1/queues/reports", { concurrency: 2 });
  const id = await server.schedule("hourly", [{ cron: "0 3 * * *" }]);
  await page.goto("/events");
  await expect(page.getByRole("heading", { name: "Events" })).toBeVisible();
  await command(page, "pause rep", /^Pause reports/);
  await page.getByRole("dialog").getByRole("textbox").fill("month end");
  await confirm(page, "Pause");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  const queue = () => server.get<{ settings: { paused: boolean; note: string } }>("/api/v1/queues/reports");
  expect((await queue()).settings).toMatchObject({ paused: true, note: "month end" });
  await command(page, "resume", /^Resume reports/);
  await expect.poll(async () => (await queue()).settings.paused).toBe(false);

  const status = async () => (await server.get<{ status: string }>(`/api/v1/schedules/${id}`)).status;
  await command(page, "pause hour", /^Pause hourly/);
  await confirm(page, "Pause");
  await expect.poll(status).toBe("paused");
  await command(page, "resume hourly", /^Resume hourly/);
  await expect.poll(status).toBe("active");
  await command(page, "trigger", /^Trigger hourly/);
  await confirm(page, "Trigger now");
  const succeeded = async () => {
    const { items } = await server.get<{ items: object[] }>(`/api/v1/jobs?schedule=${id}&status=succeeded`);
    return items.length;
  };
  await expect.poll(succeeded).toBe(1);
});

test("the job, run and worker of the current page are acted on without their name", async ({
  page,
  server,
}) => {
  const id = await server.submit(script("long-one", "sleep 60", { grace: "100ms" }));
  await server.waitForStatus(id, "running");
  await page.goto(`/jobs/${id}`);
  await expect(page.getByRole("heading", { name: "long-one" })).toBeVisible();
  await command(page, "", /^Cancel long-one/);
  await expect(page.getByRole("dialog", { name: "Cancel long-one?" })).toContainText("SIGTERM");
  await confirm(page, "Cancel job");
  await server.waitForStatus(id, "cancelled");
  await expect(page.getByRole("button", { name: "Retry" })).toBeVisible();
  await command(page, "ret", /^Retry long-one/);
  await expect(page).not.toHaveURL(new RegExp(id));

  const steps = [{ name: "gate", approval: {} }];
  await server.call("PUT", "/api/v1/workflows/asks", { name: "asks", steps });
  await page.goto("/workflows");
  await expect(page.getByTestId("workflow-rows")).toContainText("asks");
  await command(page, "start as", /^Start asks/);
  await confirm(page, "Start");
  await expect(page.getByRole("heading", { name: "asks #1" })).toBeVisible();
  await command(page, "cancel", /^Cancel asks #1/);
  await confirm(page, "Cancel run");
  await expect(page.getByRole("main").getByText("Cancelled", { exact: true }).first()).toBeVisible();

  await page.goto("/workers");
  await expect(page.getByRole("meter").first()).toBeVisible();
  await command(page, "cordon", /^Cordon /);
  await expect(page.locator("main").getByText("cordoned", { exact: true })).toBeVisible();
  await command(page, "uncor", /^Uncordon /);
  await expect(page.locator("main").getByText("cordoned", { exact: true })).toBeHidden();
  await command(page, "drain", /^Drain /);
  await expect(page.getByRole("dialog")).toContainText("accepts no new jobs");
  await confirm(page, "Back");
});

test("actions are found in Chinese, and language and theme are switched", async ({ page, server }) => {
  await server.schedule("quarterly", [{ cron: "0 3 * * *" }]);
  await page.goto("/schedules");
  await expect(page.getByTestId("schedule-rows")).toContainText("quarterly");
  await command(page, "语言", "切换到中文");
  await command(page, "触发quarter", /^触发 quarterly/);
  await expect(page.getByRole("dialog")).toContainText("quarterly");
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await command(page, "主题", "切换深浅主题");
  await expect(page.locator("html")).toHaveAttribute("data-mantine-color-scheme", "dark");
});
