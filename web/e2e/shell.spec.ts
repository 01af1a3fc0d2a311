/** G3, H1. Signing in, finding one's way, languages, and what happens when the server goes away. */

import { expect, script, test } from "./fixtures";
import { VIEWS } from "./views";

/** Cells that reach beyond the list that they stand in, where nobody can see or scroll to them. */
function cutOff() {
  const cells = [...document.querySelectorAll('[role="columnheader"], [role="cell"]')];
  return cells.flatMap((cell) => {
    const [own, list] = [cell, cell.closest('[role="table"]')].map((part) => part?.getBoundingClientRect());
    const isCut = own && list && own.width > 0 && own.right > list.right + 1;
    return isCut ? [`${cell.textContent}: ${own.right} of ${list.right}`] : [];
  });
}

test("no column of a list is cut off, however wide the window is", async ({ page, server }) => {
  await server.submit(script("in-a-list", "true"));
  for (const view of ["/jobs", "/schedules", "/workflows", "/runs", "/queues", "/artifacts", "/events"]) {
    await page.goto(view);
    await expect(page.getByRole("heading").first()).toBeVisible();
    if (view === "/jobs") await expect(page.getByText("in-a-list").first()).toBeVisible();
    for (const width of [1920, 1440, 1366, 1321, 1301, 1280, 1141, 1081, 1024, 900, 861, 768, 400]) {
      await page.setViewportSize({ width, height: 800 });
      expect(await page.evaluate(cutOff), `${view} at ${width}`).toEqual([]);
    }
  }
});

test("a token link signs in, and leaves no token where it could be found", async ({ page, server }) => {
  await page.context().clearCookies();
  await page.goto("/jobs");
  await expect(page.getByRole("heading", { name: "Sign in to Belfry" })).toBeVisible();
  await page.goto(`/jobs#token=${server.token}`);
  await expect(page.getByRole("heading", { name: "Jobs" })).toBeVisible();
  expect(page.url()).toBe(`${server.url}/jobs`);
  const kept = await page.evaluate(
    () => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie,
  );
  expect(kept).not.toContain(server.token.slice(0, 20));
  const [cookie] = await page.context().cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
  expect(cookie?.value).not.toContain(server.token);
});

test("a wrong token is refused with a reason, the right one is taken, and one signs out", async ({
  page,
  server,
}) => {
  await page.context().clearCookies();
  await page.goto("/");
  await page.getByTestId("token").fill("bf_admin_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toContainText("unauthenticated");
  // What to do at this page, not in a program.
  await expect(page.getByRole("alert")).toContainText("Copy the whole token again");
  await expect(page.getByRole("alert")).not.toContainText("Authorization");
  await page.getByTestId("token").fill(server.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await expect(page.getByRole("heading", { name: "Sign in to Belfry" })).toBeVisible();
  expect(await page.context().cookies()).toEqual([]);
});

test("the palette leads to pages and to jobs by name, with the keyboard alone", async ({ page, server }) => {
  const id = await server.submit(script("find-me", "true"));
  await server.untilStatus(id, "succeeded");
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("combobox")).toBeFocused();
  await page.keyboard.type("queu");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Queues", level: 1 })).toBeVisible();
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("combobox")).toBeFocused();
  await page.keyboard.type("find-me");
  await expect(page.getByRole("option").first()).toContainText("find-me");
  await expect(page.getByRole("option").first()).toContainText("Succeeded");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(id));
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await expect(page.getByRole("heading", { name: "Workers", level: 1 })).toBeVisible();
});

test("the palette's Enter goes where its letters lead, whatever the server says late", async ({
  page,
  server,
}) => {
  await server.schedule("servers-nightly", [{ every: "1h" }]);
  await server.schedule("ser-weekly", [{ every: "1h" }]);
  let letGo = () => {};
  const held = new Promise<void>((resolve) => (letGo = resolve));
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
  letGo();
  await expect(page.getByRole("option", { name: "servers-nightly" })).toBeVisible();
  await expect(page.getByRole("option", { selected: true })).toHaveText("Servers");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/servers$/);
});

test("the language is switched and stays", async ({ page }) => {
  await page.goto("/settings");
  await page.getByText("中文", { exact: true }).click();
  await expect(page.getByRole("heading", { name: "设置" })).toBeVisible();
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "总览" })).toBeVisible();
  await expect(page.locator("html")).toHaveAttribute("lang", "zh-CN");
});

test("every address can be opened directly, and a wrong one says so", async ({ page }) => {
  for (const view of VIEWS) {
    await page.goto(view);
    await expect(page.locator("main h1").first(), view).toBeVisible();
  }
  await page.goto("/nowhere");
  await expect(page.getByText("This page does not exist")).toBeVisible();
});

test("on a phone nothing stands out of the page", async ({ page, server }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  const id = await server.submit(script("a-rather-long-name-for-a-phone-to-show", "true"));
  const often = await server.schedule("a-rather-long-name-of-a-schedule-that-fires-often", [{ every: "1s" }]);
  for (const view of [...VIEWS, `/jobs/${id}`, `/schedules/${often}`, `/schedules/${often}/edit`]) {
    await page.goto(view);
    await expect(page.getByLabel("Loading", { exact: true })).toHaveCount(0);
    await expect(page.locator("main h1").first()).toBeVisible();
    const over = await page.locator("main").evaluate((main) => main.scrollWidth - main.clientWidth);
    expect(over, view).toBe(0);
  }
  await page.getByRole("button", { name: "Menu" }).click();
  await server.call("DELETE", `/api/v1/schedules/${often}`);
  await page.getByRole("dialog").getByRole("link", { name: "Workers" }).click();
  await expect(page.getByRole("heading", { name: "Workers", level: 1 })).toBeVisible();
});

test("a lost server is told, and the page goes on by itself when it is back", async ({ page, server }) => {
  await page.goto("/jobs?name=after-the-restart");
  await expect(page.getByText("No job matches these filters")).toBeVisible();
  await server.halt();
  await expect(page.getByRole("alert").filter({ hasText: "cannot be reached" })).toBeVisible();
  await server.run();
  await server.submit(script("after-the-restart", "true"));
  await expect(page.getByRole("alert").filter({ hasText: "cannot be reached" })).toBeHidden({
    timeout: 20_000,
  });
  // What happened in between shows too, though the page had not seen a single event before.
  await expect(page.getByTestId("job-rows").getByRole("row").first()).toContainText("Succeeded");
});

test("while no server leads the page says so calmly, and goes on by itself", async ({ page }) => {
  const body = {
    ...{ type: "/docs/problems#loading", title: "The server is starting.", status: 503 },
    ...{
      detail: "`a`, the leader, does not answer",
      code: "loading",
      hint: "try again in a moment",
    },
  };
  let leads = false;
  // What a shared worker asks for cannot be answered here.
  await page.addInitScript(() => void Reflect.deleteProperty(globalThis, "SharedWorker"));
  // What a server answers that stands by while the leader is gone.
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

test("over HTTP by a host name, where browsers offer less, texts are copied and requests are sent", async ({
  page,
  server,
}) => {
  await page.addInitScript(() => {
    Reflect.deleteProperty(Crypto.prototype, "randomUUID");
    Reflect.deleteProperty(Navigator.prototype, "clipboard");
  });
  const id = await server.submit(script("copied", "true"));
  await server.untilStatus(id, "succeeded");
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
