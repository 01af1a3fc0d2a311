/** B1, B5, B6, H1. Schedules and calendars in the dashboard. */

import { expect, test } from "./fixtures";
import { waitFor } from "./server";

interface Schedule {
  status: string;
  version: number;
  fired: number;
  pause?: { note?: string };
  spec: { timing: { rules: object[] } };
}

test("a schedule that fires every second is created, and its runs appear live in the ledger", async ({
  page,
  server,
}) => {
  await page.goto("/schedules");
  await page.getByRole("link", { name: "New schedule" }).click();
  await expect(page.getByTestId("words").first()).toContainText("At 09:00");
  await page.getByTestId("name").fill("each-second");
  await page.getByText("Every", { exact: true }).click();
  await page.getByTestId("every").fill("1s");
  await expect(page.getByTestId("words")).toContainText("Every second");
  await page.getByRole("textbox", { name: "Script", exact: true }).fill("echo beat");
  await expect(page.getByText("The schedule is valid.")).toBeVisible();
  await page.getByTestId("save").click();

  await expect(page.getByRole("heading", { name: "each-second" })).toBeVisible();
  const ledger = page.getByTestId("ledger").getByRole("listitem");
  await expect(ledger.first()).toContainText("Fired");
  await expect(ledger.first()).toContainText("Succeeded");
  await expect(ledger.nth(2)).toContainText("Succeeded");
  await ledger.nth(2).getByRole("link", { name: /^Run / }).click();
  await expect(page.getByText("Created by a schedule")).toBeVisible();
  await expect(page.getByTestId("log")).toContainText("beat");
  await page.getByRole("complementary").getByRole("link", { name: "each-second" }).click();

  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("dialog").getByLabel("Reason, visible to others").fill("too loud");
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await expect(page.getByText("too loud", { exact: true })).toBeVisible();
  const { status, pause } = await server.get<Schedule>("/api/v1/schedules/each-second");
  expect([status, pause?.note]).toEqual(["paused", "too loud"]);

  await page.getByRole("button", { name: "Trigger now" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("once more");
  await page.getByRole("dialog").getByRole("button", { name: "Trigger now" }).click();
  await expect(ledger.filter({ hasText: "Manual" })).toContainText("once more");

  await page.getByRole("button", { name: "Resume" }).first().click();
  await expect(page.getByText("too loud", { exact: true })).toBeHidden();
  await server.call("DELETE", "/api/v1/schedules/each-second");
  await expect(page.getByRole("alert").first()).toContainText("schedule_not_found");
});

test("a trigger that is confirmed again after an unknown outcome triggers once", async ({ page, server }) => {
  const id = await server.schedule("triggered-once", []);
  await page.goto(`/schedules/${id}`);
  // The server processes the request, but its response is lost.
  await page.route("**/trigger", async (route) => {
    await route.fetch();
    await route.abort();
  });
  await page.getByRole("button", { name: "Trigger now" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason").fill("once");
  await dialog.getByRole("button", { name: "Trigger now" }).click();
  await expect(dialog.getByRole("alert")).toBeVisible();
  await page.unroute("**/trigger");
  await dialog.getByRole("button", { name: "Trigger now" }).click();
  await expect(dialog).toHaveCount(0);
  const { items } = await server.get<{ items: object[] }>("/api/v1/jobs?name=triggered-once");
  expect(items.length).toBe(1);
});

test("an invalid rule is marked while typing and cannot be saved", async ({ page }) => {
  await page.goto("/schedules/new");
  await page.getByTestId("cron").fill("61 * * * *");
  await expect(page.locator("[data-bad]")).toContainText("timing.rules[0]");
  await expect(page.getByTestId("save")).toBeDisabled();
  await page.getByTestId("cron").fill("30 2 * * *");
  await expect(page.getByTestId("save")).toBeEnabled();
  await expect(page.getByRole("textbox", { name: "Schedule file" })).toContainText("cron: 30 2 * * *");
});

test("a schedule is edited without defaults, and a concurrent change is not overwritten", async ({
  page,
  server,
}) => {
  const id = await server.schedule("edited", [{ every: "1h" }]);
  await page.goto(`/schedules/${id}`);
  await page.getByRole("link", { name: "Edit" }).click();
  const file = page.getByRole("textbox", { name: "Schedule file" });
  await expect(file).toContainText("every: 1h");
  await expect(file).not.toContainText("threshold");
  await page.getByTestId("every").fill("2h");
  await expect(page.getByTestId("save")).toBeEnabled();
  await server.schedule("edited", [{ every: "3h" }]);
  await page.getByTestId("save").click();
  await expect(page.getByRole("alert")).toContainText("version_mismatch");
  await page.reload();
  await page.getByTestId("every").fill("2h");
  await expect(page.getByText("The schedule is valid.")).toBeVisible();
  await page.getByTestId("save").click();
  await expect(page.getByTestId("words")).toContainText("Every 2 hours");
  // The displayed words may still be those of the form.
  const rules = async () => (await server.get<Schedule>(`/api/v1/schedules/${id}`)).spec.timing.rules;
  await expect.poll(rules).toEqual([{ every: "2h" }]);
});

test("a backfill shows its plan first, then its progress", async ({ page, server }) => {
  const id = await server.schedule("hourly", [{ cron: "0 * * * *" }]);
  await page.goto(`/schedules/${id}`);
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name: "Backfill" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("From").fill("2026-01-05T00:00");
  await dialog.getByLabel("Until").fill("2026-01-05T04:30");
  await expect(dialog.getByTestId("plan")).toContainText("5 runs will be started");
  expect(await server.get("/api/v1/backfills")).toMatchObject({ items: [] });
  await dialog.getByRole("button", { name: "Start 5 runs" }).click();
  await expect(page.getByTestId("backfills")).toContainText("Completed");
  await expect(page.getByTestId("backfills")).toContainText("5 of 5 ended");
  await page.getByRole("tab", { name: "Ledger" }).click();
  await page.getByRole("combobox", { name: "Cause" }).click();
  await page.getByRole("option", { name: "Backfill" }).click();
  await expect(page).toHaveURL(/cause=backfill/);
  await expect(page.getByTestId("ledger").getByRole("listitem")).toHaveCount(5);
});

test("all times of a schedule's page are in the schedule's zone, or in the zone that the user chose", async ({
  page,
  server,
}) => {
  const timing = { rules: [{ cron: "30 2 1 1 *" }], zone: "Asia/Shanghai" };
  const id = await server.schedule("far-away", [], "true", { timing });
  await server.trigger("far-away");
  await page.goto(`/schedules/${id}`);
  const next = page.getByTestId("firings").getByRole("listitem").first();
  const fired = page.getByTestId("ledger").getByRole("listitem").first().locator("time");
  const zone = page.getByRole("button", { name: /^Time zone/ });
  await expect(next).toContainText("02:30");
  await expect(fired).toContainText("GMT+8");
  await expect(zone).toHaveText("Time zone Asia/ShanghaiGMT+8");
  await expect(page.getByText("in the time zone Asia/Shanghai")).toBeVisible();
  // The browser's own zone, on hover.
  await expect(fired).toHaveAttribute("title", /UTC/);

  await zone.click();
  await page.getByRole("combobox", { name: "Time zone" }).fill("Tokyo");
  await page.getByRole("option", { name: "Asia/Tokyo" }).click();
  await expect(next).toContainText("03:30");
  await expect(fired).toContainText("GMT+9");
  await expect(fired).toHaveAttribute("title", /GMT\+8/);
  await expect(page.getByText("in the time zone Asia/Tokyo")).toBeVisible();
  // Remembered, on all pages.
  await page.goto("/settings");
  await expect(zone).toHaveText("Time zone Asia/TokyoGMT+9");
  await expect(page.locator("main").getByRole("combobox", { name: "Time zone" })).toHaveValue("Asia/Tokyo");
  await expect(page.locator("main")).toContainText("GMT+9");
});

test("outside of the pages of a schedule, times are in the browser's zone", async ({ page, server }) => {
  const timing = { rules: [{ cron: "30 2 1 1 *" }], zone: "Asia/Shanghai" };
  const id = await server.schedule("left-again", [], "true", { timing });
  await page.goto(`/schedules/${id}`);
  const zone = page.getByRole("button", { name: /^Time zone/ });
  await expect(zone).toContainText("Asia/Shanghai");
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Jobs" }).click();
  await expect(page.getByRole("heading", { name: "Jobs", level: 1 })).toBeVisible();
  await expect(zone).toHaveText("Time zone UTC");
});

test("the next firings mark days with clock changes", async ({ page, server }) => {
  const timing = { rules: [{ cron: "30 2 28 3 *" }], zone: "Europe/Berlin" };
  const id = await server.schedule("in-the-gap", [], "true", { timing });
  await page.goto(`/schedules/${id}`);
  await expect(page.getByTestId("firings")).toContainText("clocks change");
  await page.goto("/settings");
  await page.getByText("中文", { exact: true }).click();
  await page.goto(`/schedules/${id}`);
  await expect(page.getByTestId("firings")).toContainText("当天调整时钟");
  await expect(page.getByTestId("words")).toContainText("3 月");
  await expect(page.getByRole("button", { name: "立即触发" })).toBeVisible();
});

test("the list is filtered by its URL and has row actions", async ({ page, server }) => {
  const id = await server.schedule("row-one", [{ every: "1h" }], "true", { labels: { team: "rows" } });
  await server.schedule("row-two", [{ every: "1h" }], "true", { labels: { team: "rows" } });
  await page.goto("/schedules?label=team%3Drows");
  const rows = page.getByTestId("schedule-rows");
  await expect(rows.getByRole("row")).toHaveCount(2);
  await page.getByLabel("Find by name").fill("one");
  await expect(page).toHaveURL(/text=one/);
  await expect(rows.getByRole("row")).toHaveCount(1);
  await page.reload();
  await expect(rows.getByRole("row")).toHaveCount(1);
  await page.getByRole("button", { name: "Trigger row-one now" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Trigger now" }).click();
  await expect(rows.getByRole("row")).toContainText("Succeeded");
  await page.getByRole("button", { name: "Pause row-one" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await expect(rows.getByRole("row")).toContainText("Paused");
  await page.getByRole("button", { name: "Resume row-one" }).click();
  await waitFor(15_000, "row-one to be active", async () => {
    return (await server.get<Schedule>(`/api/v1/schedules/${id}`)).status === "active";
  });
  await page.goto(`/jobs?schedule=${id}`);
  await expect(page.getByTestId("job-rows").getByRole("row")).toHaveCount(1);
});

test("the timetable shows rare firings next to frequent ones", async ({ page, server }) => {
  await server.schedule("at-noon", [{ cron: "0 12 * * *" }]);
  await server.schedule("all-the-time", [{ every: "5s" }]);
  await page.goto("/schedules/timetable?span=7d");
  const lanes = page.getByTestId("lanes").getByRole("listitem");
  await expect(lanes.filter({ hasText: "at-noon" })).toContainText("7×");
  await expect(lanes.filter({ hasText: "all-the-time" })).toContainText("every 5s");
  await lanes.filter({ hasText: "at-noon" }).getByRole("link").click();
  await expect(page.getByRole("heading", { name: "at-noon" })).toBeVisible();
  await server.call("DELETE", "/api/v1/schedules/all-the-time");
});

test("a late run is shown on the overview and on its schedule", async ({ page, server }) => {
  const job = { queue: "closed", run: { process: { script: "true" } } };
  await server.call("PUT", "/api/v1/queues/closed", { paused: true });
  const id = await server.schedule("late", [], "", { job, expect: { start_within: "1s" } });
  await server.trigger(id);
  await page.goto("/");
  await expect(page.getByText("Schedule late: 1 run has not started in time")).toBeVisible({
    timeout: 30_000,
  });
  await page.getByText("Schedule late: 1 run has not started in time").click();
  await expect(page.getByText("1 late", { exact: true })).toBeVisible();
  await server.call("PUT", "/api/v1/queues/closed", {});
});

test("a calendar is created and shown as a year, and an .ics file is imported for review", async ({
  page,
}) => {
  await page.goto("/calendars");
  await page.getByRole("link", { name: "New calendar" }).click();
  await expect(page.getByTestId("save")).toBeEnabled();
  await page.getByTestId("save").click();
  await expect(page.getByRole("heading", { name: "our-workdays" })).toBeVisible();
  await page.goto("/calendars/our-workdays?namespace=default&year=2026");
  const year = page.getByTestId("year");
  await expect(year.getByTitle("2026-12-23 is in the calendar")).toBeVisible();
  await expect(year.getByTitle("2026-12-25", { exact: true })).toBeVisible();

  await page.goto("/calendars");
  await page.getByRole("button", { name: "Import .ics" }).click();
  const lines = [
    ...["BEGIN:VCALENDAR", "BEGIN:VEVENT", "SUMMARY:New Year", "DTSTART;VALUE=DATE:20270101"],
    ...["RRULE:FREQ=YEARLY", "END:VEVENT", "END:VCALENDAR", ""],
  ];
  const file = {
    name: "holidays 2027.ics",
    mimeType: "text/calendar",
    buffer: Buffer.from(lines.join("\r\n")),
  };
  await page.locator('input[type="file"]').setInputFiles(file);
  await page.getByRole("button", { name: "Review and save" }).click();
  await expect(page.getByLabel("Calendar file").last()).toContainText("name: holidays-2027");
  await page.getByTestId("save").click();
  await expect(page.getByRole("heading", { name: "holidays-2027" })).toBeVisible();
});

test("the palette and a shortcut lead to schedules", async ({ page, server }) => {
  await server.schedule("find-this-schedule", [{ every: "1h" }]);
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("find-this");
  await expect(page.getByRole("option").first()).toContainText("find-this-schedule");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "find-this-schedule" })).toBeVisible();
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await expect(page.getByRole("heading", { name: "Schedules", level: 1 })).toBeVisible();
});

test("bulk pause and resume show the number of schedules first", async ({ page, server }) => {
  for (let i = 0; i < 5; i += 1) {
    await server.schedule(`many-${i}`, [{ every: "1h" }], "true", { labels: { team: "many" } });
  }
  await page.goto("/schedules?label=team%3Dmany");
  const rows = page.getByTestId("schedule-rows").getByRole("row");
  await expect(rows).toHaveCount(5);
  await page.getByLabel("Select many-1").check();
  await page.getByLabel("Select many-3").click({ modifiers: ["Shift"] });
  await expect(page.getByRole("toolbar")).toContainText("3 selected");
  await page.getByLabel("Select all shown items").check();
  await page.getByRole("button", { name: "Pause 5" }).click();
  await expect(page.getByRole("dialog")).toContainText("5 schedules will be paused");
  await page.getByRole("dialog").getByLabel("Reason, visible to others").fill("moving house");
  await page.getByRole("dialog").getByRole("button", { name: "Pause 5" }).click();
  await expect(page.getByText("5 schedules paused")).toBeVisible();
  await expect(rows.filter({ hasText: "Paused" })).toHaveCount(5);
  const { pause } = await server.get<Schedule>("/api/v1/schedules/many-0");
  expect(pause?.note).toBe("moving house");

  await page.getByLabel("Select all shown items").check();
  await expect(page.getByRole("button", { name: "Pause 0" })).toBeDisabled();
  await page.getByRole("button", { name: "Resume 5" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resume 5" }).click();
  await expect(rows.filter({ hasText: "Paused" })).toHaveCount(0);
});

test("a view of schedules is saved under a name", async ({ page }) => {
  await page.goto("/schedules?text=many&sort=name");
  await page.getByRole("button", { name: "Save this view" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("the many");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.goto("/schedules");
  await page.getByRole("button", { name: "the many" }).click();
  await expect(page).toHaveURL(/text=many/);
  await page.getByRole("button", { name: "Delete the view the many" }).click();
  await expect(page.getByRole("button", { name: "the many", exact: true })).toBeHidden();
});

test("details of a list of schedules are requested together, not per row", async ({ page, server }) => {
  for (let i = 0; i < 20; i += 1) await server.schedule(`asked-${i}`, [{ every: "1h" }]);
  // Distinct requests only: changes may cause repeated ones.
  const requests = new Set<string>();
  page.on("request", (request) => {
    const { pathname, search } = new URL(request.url());
    if (/^\/api\/v1\/schedules/.test(pathname) || /schedule=/.test(search)) requests.add(pathname + search);
  });
  const details = page.waitForResponse((response) => /schedules\?id=.*runs=/.test(response.url()));
  await page.goto("/schedules?text=asked");
  await details;
  await expect(page.getByTestId("schedule-rows").getByRole("row").first()).toBeVisible();
  expect(requests.size, [...requests].join("\n")).toBeLessThan(4);
});
