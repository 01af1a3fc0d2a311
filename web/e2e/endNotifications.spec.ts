/** H1. Notifications at the end of a job or run. */

import type { Page } from "@playwright/test";

import { expect, script, test } from "./fixtures";

/** Replaces the notifications of the browser by a list. */
async function recordNotifications(page: Page, permission: NotificationPermission): Promise<void> {
  await page.addInitScript((permission) => {
    const shown: string[] = [];
    class Recorded {
      static permission: NotificationPermission = "default";
      static requests = 0;
      static requestPermission() {
        Recorded.requests += 1;
        Recorded.permission = permission;
        return Promise.resolve(permission);
      }
      onclick: (() => void) | null = null;
      constructor(title: string) {
        shown.push(title);
        (globalThis as { clickNotification?: () => void }).clickNotification = () => this.onclick?.();
      }
      close() {}
    }
    Object.assign(globalThis, { Notification: Recorded, shownNotifications: shown });
  }, permission);
}

const shown = (page: Page) =>
  page.evaluate(() => (globalThis as unknown as { shownNotifications: string[] }).shownNotifications);
const requests = (page: Page) =>
  page.evaluate(() => (Notification as unknown as { requests: number }).requests);

/** Hides or shows the page, as the switch to another tab does. */
async function setHidden(page: Page, isHidden: boolean): Promise<void> {
  await page.evaluate((isHidden) => {
    Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, isHidden);
}

test("the browser asks only on a click, and notifies at the end, also after a reload", async ({
  page,
  server,
}) => {
  await recordNotifications(page, "granted");
  const id = await server.submit(script("watched", "while [ ! -e go ]; do sleep 0.1; done", { grace: "1s" }));
  await server.waitForStatus(id, "running");
  await page.goto(`/jobs/${id}`);
  const button = page.getByRole("button", { name: "Notify me when it ends" });
  await expect(button).toHaveAttribute("aria-pressed", "false");
  expect(await requests(page)).toBe(0);
  await button.click();
  await expect(button).toHaveAttribute("aria-pressed", "true");
  expect(await requests(page)).toBe(1);
  await page.goto("/queues");
  await page.reload();
  await expect(page.getByRole("heading", { name: "Queues" })).toBeVisible();
  await page.evaluate(() => Notification.requestPermission());
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, {});
  await expect.poll(() => shown(page)).toEqual(["watched: Cancelled"]);
  await page.evaluate(() => (globalThis as unknown as { clickNotification: () => void }).clickNotification());
  await expect(page).toHaveURL(new RegExp(`/jobs/${id}`));
  await expect(button).toHaveCount(0);
});

test("without the permission the title of a hidden tab flashes until the user returns", async ({
  page,
  server,
}) => {
  await recordNotifications(page, "denied");
  const steps = [{ name: "gate", approval: {} }];
  await server.call("PUT", "/api/v1/workflows/watched", { name: "watched", steps });
  const { id } = await server.call<{ id: string }>("POST", "/api/v1/workflows/watched/start", {});
  await page.goto(`/runs/${id}`);
  await page.getByRole("button", { name: "Notify me when it ends" }).click();
  await expect(page.getByText("the title of this tab will flash")).toBeVisible();
  await setHidden(page, true);
  await server.call("POST", `/api/v1/runs/${id}/steps/gate/approve`, {});
  await expect.poll(() => page.title()).toBe("watched #1: Succeeded");
  await expect.poll(() => page.title()).toBe("watched #1 · Belfry");
  await setHidden(page, false);
  await expect(page).toHaveTitle("watched #1 · Belfry");
  expect(await shown(page)).toEqual([]);
});

test("a notification can be switched off, in Chinese too", async ({ page, server }) => {
  await recordNotifications(page, "granted");
  await page.addInitScript(() =>
    localStorage.setItem("belfry.preferences", JSON.stringify({ language: "zh-CN" })),
  );
  const id = await server.submit(script("unwatched", "sleep 60", { grace: "100ms" }));
  await server.waitForStatus(id, "running");
  await page.goto(`/jobs/${id}`);
  const button = page.getByRole("button", { name: "结束时通知我" });
  await button.click();
  await expect(button).toHaveAttribute("aria-pressed", "true");
  await button.click();
  await expect(button).toHaveAttribute("aria-pressed", "false");
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, {});
  await expect(page.getByRole("button", { name: "重试" })).toBeVisible();
  expect(await shown(page)).toEqual([]);
});
