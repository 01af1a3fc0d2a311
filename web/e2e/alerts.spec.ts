/**
 * Alerts: from a channel and a rule to the inbox, the notification, and the end of an alert.
 *
 * The server must be allowed to send notifications to 127.0.0.1.
 */

import { createServer, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";

import type { Browser, Page } from "@playwright/test";

import { expect, script, test, waitFor, useToken } from "./fixtures";
import type { Server } from "./server";

/** A CloudEvent that a webhook receives. */
interface Received {
  type: string;
  headers: Record<string, string | string[] | undefined>;
  data: {
    rule: string;
    severity: string;
    is_test: boolean;
    items: Array<{ alert: number; kind: string; subject: string; resolved: boolean; detail: string | null }>;
  };
}

/** An HTTP server that records the requests of a channel. */
class Webhook {
  readonly received: Received[] = [];
  readonly #server: HttpServer;
  /** Status of the responses. */
  status = 204;

  private constructor() {
    this.#server = createServer((request, response) => {
      let body = "";
      request.setEncoding("utf8");
      request.on("data", (text: string) => (body += text));
      request.on("end", () => {
        const event = JSON.parse(body) as Omit<Received, "headers">;
        this.received.push({ ...event, headers: request.headers });
        response.writeHead(this.status).end();
      });
    });
  }

  static async start(): Promise<Webhook> {
    const webhook = new Webhook();
    await new Promise<void>((resolve) => webhook.#server.listen(0, "127.0.0.1", resolve));
    return webhook;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/belfry`;
  }

  /** Waits for an event of a type about an object. */
  async wait(ms: number, type: string, subject?: string): Promise<Received> {
    const find = () =>
      this.received.find(
        (event) =>
          event.type === type &&
          (subject === undefined || event.data.items.some((item) => item.subject === subject)),
      );
    await waitFor(ms, `the webhook to receive ${type}`, () => Promise.resolve(find() !== undefined));
    return find()!;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

interface AlertBody {
  id: number;
  status: string;
  subject: { name: string };
}

async function alertAbout(server: Server, subject: string): Promise<AlertBody> {
  const query = `subject=${subject}&status=firing,acknowledged,resolved`;
  let found: AlertBody | undefined;
  await waitFor(30_000, `an alert about ${subject}`, async () => {
    const { items } = await server.get<{ items: AlertBody[] }>(`/api/v1/alerts?${query}`);
    found = items[0];
    return found !== undefined;
  });
  return found!;
}

/** Creates a rule about failed jobs of a name. */
async function ruleFor(server: Server, name: string, more: object = {}): Promise<void> {
  const rule = { name, namespace: "default", when: { job_failed: {} }, match: { name }, ...more };
  await server.call("PUT", `/api/v1/alert-rules/${name}?namespace=default`, rule);
}

/** Opens the dashboard in another browser context, and signs in with a token of a new account. */
async function signInAs(browser: Browser, server: Server, name: string, role: string): Promise<Page> {
  await server.call("POST", "/api/v1/accounts", { name, kind: "user" });
  await server.call("PUT", "/api/v1/bindings", { account: name, role, namespace: "default" });
  const { secret } = await server.call<{ secret: string }>("POST", "/api/v1/tokens", { account: name });
  const context = await browser.newContext({ baseURL: server.url, reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.goto("/");
  await useToken(page);
  await page.getByTestId("token").fill(secret);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await expect(page.getByRole("navigation", { name: "Main" })).toBeVisible();
  return page;
}

let webhook: Webhook;
test.beforeEach(async () => {
  webhook = await Webhook.start();
});
test.afterEach(() => webhook.stop());

test("a failing job opens an alert, which is notified, acknowledged, silenced and resolved", async ({
  page,
  server,
}) => {
  // Further notifications of a rule are sent a minute after the first one.
  test.setTimeout(300_000);
  const dialog = page.getByRole("dialog");

  await page.goto("/alerts");
  await expect(page.getByText("No alert rules yet")).toBeVisible();
  await expect(page.getByText("belfry apply -f alerts.yaml")).toBeVisible();

  // A channel to a webhook, with a signature and a header.
  await page.getByRole("navigation", { name: "Alerts" }).getByRole("link", { name: "Channels" }).click();
  await page.getByRole("button", { name: "New channel" }).click();
  await dialog.getByRole("textbox", { name: "Name", exact: true }).fill("ops");
  await dialog.getByRole("textbox", { name: "URL" }).fill(webhook.url);
  await dialog.getByLabel("Signing key").fill("0123456789abcdef0123456789abcdef");
  await dialog.getByRole("button", { name: "Add a header" }).click();
  await dialog.getByRole("textbox", { name: "Header name 1" }).fill("X-Team");
  await dialog.getByLabel("Header value 1").fill("payroll");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  const channel = page.getByTestId("channel-rows").getByRole("row").filter({ hasText: "ops" });
  await expect(channel).toContainText("Webhook");

  await channel.getByRole("button", { name: "Send a test notification to ops" }).click();
  await expect(channel.getByText("Test delivered")).toBeVisible();
  const tested = await webhook.wait(10_000, "belfry.alert.test");
  expect(tested.data.is_test).toBe(true);
  expect(tested.headers["x-team"]).toBe("payroll");
  expect(tested.headers["webhook-signature"]).toMatch(/^v1,/);

  // A refused test shows the error.
  webhook.status = 410;
  await channel.getByRole("button", { name: "Send a test notification to ops" }).click();
  await expect(channel.getByText("Test failed")).toBeVisible();
  webhook.status = 204;

  // Stored secrets are hidden, and stay when something else changes.
  await channel.getByRole("button", { name: "Edit channel ops" }).click();
  await expect(dialog.getByLabel("Signing key")).toHaveValue("******");
  await dialog.getByRole("textbox", { name: "Description" }).fill("Night shift");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  await expect(channel).toContainText("Night shift");

  // A rule about failed jobs.
  await page.getByRole("navigation", { name: "Alerts" }).getByRole("link", { name: "Rules" }).click();
  await page.getByRole("link", { name: "Create a rule" }).click();
  await dialog.getByRole("textbox", { name: "Name", exact: true }).fill("payroll-failed");
  await dialog.getByRole("textbox", { name: "Job name" }).fill("payroll*");
  await dialog.getByText("Critical", { exact: true }).click();
  await dialog.getByRole("combobox", { name: "Channels" }).click();
  await page.getByRole("option", { name: "ops" }).click();
  await page.keyboard.press("Tab");
  await dialog.getByRole("textbox", { name: "URL of the runbook" }).fill("https://wiki.example.com/payroll");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  const rule = page.getByTestId("rule-rows").getByRole("row").filter({ hasText: "payroll-failed" });
  await expect(rule).toContainText("A job fails");
  await expect(rule).toContainText("payroll*");
  await expect(rule).toContainText("Critical");
  await expect(rule).toContainText("ops");

  // A failing job.
  const failing = await server.submit(script("payroll", "echo 'no bank' >&2; exit 3"));
  await server.waitForStatus(failing, "failed");
  await expect(page.getByTestId("firing")).toHaveText("1");
  await expect(page).toHaveTitle(/^\(1\) ⚠/);
  await page
    .getByRole("navigation", { name: "Main" })
    .getByRole("link", { name: /^Alerts/ })
    .click();
  const row = page.getByTestId("alert-rows").getByRole("row").filter({ hasText: "payroll" });
  await expect(row).toContainText("1 job failed");
  await expect(row).toContainText("Critical");
  await expect(row).toContainText("Firing");
  const notified = await webhook.wait(30_000, "belfry.alert.firing", "payroll");
  expect(notified.data).toMatchObject({ rule: "payroll-failed", severity: "critical", is_test: false });
  expect(notified.data.items[0]).toMatchObject({ kind: "job", subject: "payroll", resolved: false });

  // Acknowledge with a comment.
  await row.getByRole("button", { name: "Acknowledge the alert about payroll" }).click();
  await dialog.getByRole("textbox", { name: "Comment" }).fill("The bank is closed");
  await dialog.getByRole("button", { name: "Acknowledge" }).click();
  await expect(row).toContainText("Acknowledged by");
  await expect(row).toContainText("The bank is closed");
  await expect(page.getByTestId("firing")).toHaveCount(0);
  await expect(row.getByRole("button", { name: /^Acknowledge/ })).toHaveCount(0);

  // Silence, prefilled with the rule and the object.
  await row.getByRole("button", { name: "Silence alerts about payroll" }).click();
  await expect(dialog.getByRole("textbox", { name: "Rule" })).toHaveValue("payroll-failed");
  await expect(dialog.getByRole("textbox", { name: "Object" })).toHaveValue("payroll");
  await expect(dialog.getByRole("button", { name: "Silence" }), "a reason is required").toBeDisabled();
  await dialog.getByText("4 hours").click();
  await dialog.getByRole("textbox", { name: "Reason" }).fill("Bank holiday");
  await dialog.getByRole("button", { name: "Silence" }).click();
  await expect(row).toContainText("Silenced");

  // The page of the alert has its job and its notification.
  await row.getByRole("link", { name: "1 job failed" }).click();
  await expect(page).toHaveURL(/\/alerts\/\d+$/);
  await expect(page.getByRole("heading", { name: "payroll", level: 1 })).toBeVisible();
  await expect(page.getByTestId("alert-jobs").getByRole("link", { name: "payroll" })).toHaveAttribute(
    "href",
    `/jobs/${failing}`,
  );
  await expect(page.getByTestId("notification-rows")).toContainText("Delivered");
  await expect(page.getByRole("link", { name: "Runbook" })).toHaveAttribute(
    "href",
    "https://wiki.example.com/payroll",
  );

  // End the silence.
  await page.goto("/alerts/silences");
  const silence = page.getByTestId("silence-rows").getByRole("row").filter({ hasText: "Bank holiday" });
  await expect(silence).toContainText("payroll-failed");
  await silence.getByRole("button", { name: /^End silence/ }).click();
  await dialog.getByRole("button", { name: "End" }).click();
  await expect(page.getByText("No silences")).toBeVisible();

  // A success of the same name resolves the alert.
  await page.goto("/alerts");
  await expect(row).toContainText("Acknowledged");
  const succeeding = await server.submit(script("payroll", "true"));
  await server.waitForStatus(succeeding, "succeeded");
  await expect(page.getByText("No open alerts")).toBeVisible();
  await page.getByRole("button", { name: "Resolved" }).click();
  await expect(page).toHaveURL(/status=firing,acknowledged,resolved/);
  await expect(row).toContainText("Resolved");
  await expect(row.getByRole("button")).toHaveCount(0);
  const resolved = await webhook.wait(120_000, "belfry.alert.resolved", "payroll");
  expect(resolved.data.items[0]?.resolved).toBe(true);

  await page.getByRole("navigation", { name: "Alerts" }).getByRole("link", { name: "Notifications" }).click();
  await expect(
    page.getByTestId("notification-rows").getByRole("row").filter({ hasText: "payroll-failed" }),
  ).toHaveCount(2);

  // A channel in use is not deleted; a rule is.
  await page.goto("/alerts/channels");
  await channel.getByRole("button", { name: "Delete channel ops" }).click();
  await expect(dialog).toContainText("1 rule notifies this channel");
  await expect(dialog.getByRole("button", { name: "Delete" })).toBeDisabled();
  await page.keyboard.press("Escape");
  await page.goto("/alerts/rules");
  await rule.getByRole("button", { name: "Delete rule payroll-failed" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(rule).toHaveCount(0);
  await page.goto("/alerts/channels");
  await channel.getByRole("button", { name: "Delete channel ops" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(channel).toHaveCount(0);
});

test("the inbox is filtered by status, severity, rule and object, and the address has the filters", async ({
  page,
  server,
}) => {
  await ruleFor(server, "filter-a", { severity: "critical" });
  await ruleFor(server, "filter-b", { severity: "info", notify: ["not-there"] });
  for (const name of ["filter-a", "filter-b"]) await server.submit(script(name, "exit 1"));
  const first = await alertAbout(server, "filter-a");
  await alertAbout(server, "filter-b");
  await server.call("POST", `/api/v1/alerts/${first.id}/resolve`, { comment: "by hand" });

  await page.goto("/alerts");
  const rows = page.getByTestId("alert-rows").getByRole("row");
  await expect(rows.filter({ hasText: "filter-b" })).toHaveCount(1);
  await expect(rows.filter({ hasText: "filter-a" })).toHaveCount(0);
  await page.getByRole("button", { name: "Resolved" }).click();
  await expect(rows.filter({ hasText: "filter-a" })).toContainText("by hand");
  await page.getByRole("button", { name: "Info" }).click();
  await expect(page).toHaveURL(/severity=info/);
  await expect(rows).toHaveCount(1);
  await page.getByRole("button", { name: "Info" }).click();
  await page.getByRole("textbox", { name: "Object" }).fill("filter-a");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/subject=filter-a/);
  await expect(rows).toHaveCount(1);
  await page.getByRole("textbox", { name: "Rule" }).fill("nothing");
  await page.keyboard.press("Enter");
  await expect(page.getByText("No alert matches these filters")).toBeVisible();
  await page.getByRole("link", { name: "Clear the filters" }).click();
  await expect(page).toHaveURL(/\/alerts$/);
  await expect(rows.filter({ hasText: "filter-b" })).toHaveCount(1);

  await page.goto("/alerts/rules");
  const rule = page.getByTestId("rule-rows").getByRole("row").filter({ hasText: "filter-b" });
  await expect(rule).toContainText("not-there: the channel does not exist");
  await expect(rule.getByRole("link")).toContainText("1");
});

test("a new rule has the fields of its condition, and the server's errors are shown", async ({
  page,
  server,
}) => {
  await ruleFor(server, "taken");
  await page.goto("/alerts/rules?edit=%2B");
  const dialog = page.getByRole("dialog");
  const name = dialog.getByRole("textbox", { name: "Name", exact: true });
  const save = dialog.getByRole("button", { name: "Save" });
  await name.fill("taken");
  await expect(dialog.getByText("A rule with this name already exists")).toBeVisible();
  await expect(save).toBeDisabled();
  await name.fill("stale-reports");
  await dialog.getByRole("combobox", { name: "Condition" }).click();
  await page.getByRole("option", { name: "No success for some time" }).click();
  await dialog.getByRole("textbox", { name: "Period" }).fill("soon");
  await dialog.getByRole("textbox", { name: "Job name" }).fill("report");
  await save.click();
  await expect(dialog.getByRole("alert")).toContainText("soon");
  await dialog.getByRole("textbox", { name: "Period" }).fill("2d");
  await save.click();
  await expect(dialog).toHaveCount(0);
  const row = page.getByTestId("rule-rows").getByRole("row").filter({ hasText: "stale-reports" });
  await expect(row).toContainText("No job succeeds for 2d");
  await row.getByRole("button", { name: "Edit rule stale-reports" }).click();
  await expect(dialog.getByRole("textbox", { name: "Period" })).toHaveValue("2d");
  await dialog.getByRole("combobox", { name: "Condition" }).click();
  await page.getByRole("option", { name: "Worker lost" }).click();
  await expect(dialog.getByRole("textbox", { name: "Owner" }), "only that of the rule").toHaveCount(1);
  await dialog.getByRole("switch", { name: "Rule enabled" }).click();
  await save.click();
  await expect(row).toContainText("A worker is lost");
  await expect(row).toContainText("Disabled");
});

test("a viewer sees alerts without actions, an operator acts on them, and neither changes rules", async ({
  server,
  browser,
}) => {
  await ruleFor(server, "seen");
  await server.submit(script("seen", "exit 1"));
  await alertAbout(server, "seen");
  for (const role of ["viewer", "operator"]) {
    const page = await signInAs(browser, server, `of-${role}`, role);
    const may = role === "operator" ? 1 : 0;
    await page.goto("/alerts");
    const row = page.getByTestId("alert-rows").getByRole("row").filter({ hasText: "seen" });
    await expect(row).toContainText("1 job failed");
    await expect(row.getByRole("button", { name: /^Acknowledge/ })).toHaveCount(may);
    await page.goto("/alerts/silences");
    await expect(page.getByRole("button", { name: "New silence" })).toHaveCount(may);
    await page.goto("/alerts/rules");
    await expect(page.getByTestId("rule-rows")).toContainText("seen");
    await expect(page.getByRole("button", { name: "New rule" })).toHaveCount(0);
    await expect(page.getByRole("button", { name: /^Edit rule/ })).toHaveCount(0);
    await expect(page.getByRole("button", { name: /^Delete rule/ })).toHaveCount(0);
    await page.goto("/alerts/channels");
    await expect(page.getByText("No channels")).toBeVisible();
    await expect(page.getByRole("button", { name: "New channel" })).toHaveCount(0);
    await page.context().close();
  }
});

test("an escalation and quiet hours are set up", async ({ page, server }) => {
  for (const name of ["first-line", "second-line"]) {
    const channel = { name, namespace: "default", to: { webhook: { url: webhook.url } } };
    await server.call("PUT", `/api/v1/channels/${name}?namespace=default`, channel);
  }
  const dialog = page.getByRole("dialog");
  await page.goto("/alerts/rules?edit=%2B");
  await dialog.getByRole("textbox", { name: "Name", exact: true }).fill("escalates");
  await expect(dialog.getByRole("combobox", { name: "Escalate to" })).toHaveCount(0);
  await dialog.getByRole("combobox", { name: "Channels" }).click();
  await page.getByRole("option", { name: "first-line" }).click();
  await page.keyboard.press("Escape");
  await dialog.getByRole("combobox", { name: "Escalate to" }).click();
  await expect(page.getByRole("option", { name: "first-line" })).toHaveCount(0);
  await page.getByRole("option", { name: "second-line" }).click();
  await dialog.getByRole("textbox", { name: "Escalate after" }).fill("15m");
  await page.screenshot({ path: "e2e/report/shots/rule-escalation.png" });
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  const rule = await server.get<{ escalate: object }>("/api/v1/alert-rules/escalates");
  expect(rule.escalate).toEqual({ after: "15m", notify: ["second-line"] });
  await server.call("DELETE", "/api/v1/alert-rules/escalates?namespace=default");

  await page.goto("/alerts/silences");
  await page.getByRole("button", { name: "New silence" }).click();
  await dialog.getByRole("textbox", { name: "Rule" }).fill("night-*");
  await dialog.getByText("Recurring", { exact: true }).click();
  await dialog.getByRole("textbox", { name: "Start times (cron expression)" }).fill("* * * * *");
  await dialog.getByRole("textbox", { name: "Time zone" }).fill("Europe/Berlin");
  await dialog.getByRole("textbox", { name: "Reason" }).fill("Night");
  await dialog.getByRole("button", { name: "Silence" }).click();
  await expect(dialog).toHaveCount(0);
  const row = page.getByTestId("silence-rows").getByRole("row").filter({ hasText: "Night" });
  await expect(row).toContainText("* * * * * (Europe/Berlin), for 9h");
  await expect(row).toContainText("Silenced");
  await page.screenshot({ path: "e2e/report/shots/quiet-hours.png" });
  await row.getByRole("button", { name: /^End silence/ }).click();
  await dialog.getByRole("button", { name: "End" }).click();
  await expect(row).toHaveCount(0);
});

test("the inbox is in Chinese on a phone, and does not scroll sideways", async ({ page, server }) => {
  await ruleFor(server, "phone", { severity: "critical" });
  await server.submit(script("phone", "exit 1"));
  await alertAbout(server, "phone");
  await page.setViewportSize({ width: 390, height: 844 });
  await page.addInitScript(() =>
    localStorage.setItem("belfry.preferences", JSON.stringify({ language: "zh-CN" })),
  );
  for (const path of ["/alerts", "/alerts/rules", "/alerts/channels", "/alerts/notifications"]) {
    await page.goto(path);
    await expect(page.getByRole("heading", { name: "告警", level: 1 })).toBeVisible();
    const content = page.locator("#content");
    expect(await content.evaluate((each) => each.scrollWidth - each.clientWidth), path).toBe(0);
  }
  await page.goto("/alerts");
  const row = page.getByTestId("alert-rows").getByRole("row").filter({ hasText: "phone" });
  await expect(row).toContainText("1 个任务失败");
  await expect(row).toContainText("严重");
  await row.getByRole("button", { name: "确认关于 phone 的告警" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "确认" }).click();
  await expect(row).toContainText("已确认");
});
