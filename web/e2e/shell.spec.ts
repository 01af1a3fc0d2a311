/** G3, H1. Sign-in, navigation, languages, and outages of the server. */

import { expect, script, test, useToken } from "./fixtures";

/** Returns cells that extend beyond their list, where they are neither visible nor scrollable. */
function cutOffCells() {
  const cells = [...document.querySelectorAll('[role="columnheader"], [role="cell"]')];
  return cells.flatMap((cell) => {
    const [own, list] = [cell, cell.closest('[role="table"]')].map((part) => part?.getBoundingClientRect());
    const isCut = own && list && own.width > 0 && own.right > list.right + 1;
    return isCut ? [`${cell.textContent}: ${own.right} of ${list.right}`] : [];
  });
}

test("no column of a list is cut off at any window width", async ({ page, server }) => {
  await server.submit(script("in-a-list", "true"));
  // With several namespaces, lists have one more column.
  await server.submit(script("elsewhere", "true", { namespace: "finance" }));
  for (const view of ["/jobs", "/schedules", "/workflows", "/runs", "/queues", "/artifacts", "/events"]) {
    await page.goto(view);
    await expect(page.getByRole("heading").first()).toBeVisible();
    if (view === "/jobs") await expect(page.getByText("in-a-list").first()).toBeVisible();
    for (const width of [1920, 1440, 1366, 1321, 1301, 1280, 1141, 1081, 1024, 900, 861, 768, 400]) {
      await page.setViewportSize({ width, height: 800 });
      // Columns that no longer fit are hidden in the next frame.
      await expect.poll(() => page.evaluate(cutOffCells), { message: `${view} at ${width}` }).toEqual([]);
    }
  }
});

test("a token link signs in and leaves no token in URL, storage or cookies", async ({ page, server }) => {
  await page.context().clearCookies();
  await page.goto("/jobs");
  await expect(page.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
  await page.goto(`/jobs#token=${server.token}`);
  await expect(page.getByRole("heading", { name: "Jobs" })).toBeVisible();
  expect(page.url()).toBe(`${server.url}/jobs`);
  const stored = await page.evaluate(
    () => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie,
  );
  expect(stored).not.toContain(server.token.slice(0, 20));
  const [cookie] = await page.context().cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
  expect(cookie?.value).not.toContain(server.token);
});

test("an invalid token is refused with an error, a valid one is accepted, and sign-out works", async ({
  page,
  server,
}) => {
  await page.context().clearCookies();
  await page.goto("/");
  await useToken(page);
  await page.getByTestId("token").fill("bf_admin_wrong");
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await expect(page.getByRole("alert")).toContainText("unauthenticated");
  // The hint is for users of the page, not for API clients.
  await expect(page.getByRole("alert")).toContainText("Copy the whole token again");
  await expect(page.getByRole("alert")).not.toContainText("Authorization");
  await page.getByTestId("token").fill(server.token);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.getByTestId("user").click();
  await page.getByRole("menuitem", { name: "Log out" }).click();
  await expect(page.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
  expect(await page.context().cookies()).toEqual([]);
});

test("the palette opens pages and jobs by name using only the keyboard", async ({ page, server }) => {
  const id = await server.submit(script("find-me", "true"));
  await server.waitForStatus(id, "succeeded");
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("dialog").getByRole("combobox")).toBeFocused();
  await page.keyboard.type("queu");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Queues", level: 1 })).toBeVisible();
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("dialog").getByRole("combobox")).toBeFocused();
  await page.keyboard.type("find-me");
  await expect(page.getByRole("option").first()).toContainText("find-me");
  await expect(page.getByRole("option").first()).toContainText("Succeeded");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(id));
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await expect(page.getByRole("heading", { name: "Workers", level: 1 })).toBeVisible();
});

test("late search results do not change what Enter selects in the palette", async ({ page, server }) => {
  await server.schedule("servers-nightly", [{ every: "1h" }]);
  await server.schedule("ser-weekly", [{ every: "1h" }]);
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  await page.route(/schedules\?.*text=servers/, async (route) => {
    await held;
    await route.continue();
  });
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("ser");
  await expect(page.getByRole("option", { name: "ser-weekly" })).toBeVisible();
  await page.keyboard.type("vers");
  await expect(page.getByRole("option", { name: "ser-weekly" })).toBeHidden();
  await expect(page.getByRole("option", { selected: true })).toHaveText("Servers");
  release();
  await expect(page.getByRole("option", { name: "servers-nightly" })).toBeVisible();
  await expect(page.getByRole("option", { selected: true })).toHaveText("Servers");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/servers$/);
});

test("the selected language is kept", async ({ page }) => {
  await page.goto("/settings");
  await page.getByText("中文", { exact: true }).click();
  await expect(page.getByRole("heading", { name: "设置" })).toBeVisible();
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "总览" })).toBeVisible();
  await expect(page.locator("html")).toHaveAttribute("lang", "zh-CN");
});

/** The test of the accessibility opens every view by its URL. */
test("an unknown URL shows an error", async ({ page }) => {
  await page.goto("/nowhere");
  await expect(page.getByText("This page does not exist")).toBeVisible();
});

/** The screenshots check the other views. */
test("on a phone long names overflow no page", async ({ page, server }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  const id = await server.submit(script("a-rather-long-name-for-a-phone-to-show", "true"));
  const frequent = await server.schedule("a-rather-long-name-of-a-schedule-that-fires-often", [
    { every: "1s" },
  ]);
  for (const view of [
    "/jobs",
    "/schedules",
    `/jobs/${id}`,
    `/schedules/${frequent}`,
    `/schedules/${frequent}/edit`,
  ]) {
    await page.goto(view);
    await expect(page.getByLabel("Loading", { exact: true })).toHaveCount(0);
    await expect(page.locator("main h1").first()).toBeVisible();
    const overflow = await page.locator("main").evaluate((main) => main.scrollWidth - main.clientWidth);
    expect(overflow, view).toBe(0);
  }
  await page.getByRole("button", { name: "Menu" }).click();
  await server.call("DELETE", `/api/v1/schedules/${frequent}`);
  await page.getByRole("dialog").getByRole("link", { name: "Workers" }).click();
  await expect(page.getByRole("heading", { name: "Workers", level: 1 })).toBeVisible();
});

test("an outage is reported, and the page resumes automatically afterwards", async ({ page, server }) => {
  await page.goto("/jobs?name=after-the-restart");
  await expect(page.getByText("No job matches these filters")).toBeVisible();
  await server.stop();
  await expect(page.getByRole("alert").filter({ hasText: "reconnecting" })).toBeVisible();
  await server.run();
  await server.submit(script("after-the-restart", "true"));
  await expect(page.getByRole("alert").filter({ hasText: "reconnecting" })).toBeHidden({
    timeout: 20_000,
  });
  // Changes during the outage are shown too, although the page had received no event before.
  await expect(page.getByTestId("job-rows").getByRole("row").first()).toContainText("Succeeded");
});

test("without a leader the page reports a takeover, and resumes automatically", async ({ page }) => {
  const body = {
    ...{ type: "/docs/problems#loading", title: "The server is starting.", status: 503 },
    ...{
      detail: "cannot reach server `a`, the leader",
      code: "loading",
      hint: "try again in a moment",
    },
  };
  let leads = false;
  // Requests of a shared worker cannot be intercepted here.
  await page.addInitScript(() => void Reflect.deleteProperty(globalThis, "SharedWorker"));
  // The response of a standby while the leader is gone.
  for (const path of ["events", "workers?*", "queues?*"]) {
    await page.route(`**/api/v1/${path}`, (route) =>
      leads ? route.continue() : route.fulfill({ status: 503, json: body }),
    );
  }
  await page.goto("/workers");
  await expect(page.getByRole("alert")).toContainText("Another server is taking over");
  await expect(page.getByRole("status").filter({ hasText: "Taking over" })).toBeVisible();
  leads = true;
  await expect(page.getByRole("button", { name: /^Actions for/ })).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);
  await expect(page.getByRole("status").filter({ hasText: "Live" })).toBeVisible();
});

test("in an insecure context texts are copied and requests are sent", async ({ page, server }) => {
  await page.addInitScript(() => {
    Reflect.deleteProperty(Crypto.prototype, "randomUUID");
    Reflect.deleteProperty(Navigator.prototype, "clipboard");
  });
  const id = await server.submit(script("copied", "true"));
  await server.waitForStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  await page.evaluate(() => {
    document.addEventListener("copy", () => {
      const field = document.activeElement as HTMLTextAreaElement;
      document.body.dataset.copied = field.value;
    });
  });
  await page.getByRole("button", { name: "Copy ID" }).first().click();
  await expect(page.locator("body")).toHaveAttribute("data-copied", id);
  await page.getByRole("button", { name: "Retry", exact: true }).click();
  await expect(page).not.toHaveURL(new RegExp(id));
});
