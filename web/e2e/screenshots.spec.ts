/**
 * H1, G3. Screenshots of every view: laptop and phone, light and dark, English and Chinese. They are stored in
 * `e2e/report/shots` for review; the test checks what can be checked automatically.
 */

import { expect, script, test, waitFor } from "./fixtures";
import type { Server } from "./server";

const ALL_VARIANTS = [
  { name: "phone-dark-zh", width: 390, height: 844, theme: "dark", language: "zh-CN" },
  { name: "laptop-light-en", width: 1440, height: 900, theme: "light", language: "en-US" },
  { name: "laptop-dark-zh", width: 1440, height: 900, theme: "dark", language: "zh-CN" },
  { name: "phone-light-en", width: 390, height: 844, theme: "light", language: "en-US" },
] as const;
/** The test of the accessibility visits every view on a laptop, in English. `SHOTS=all` adds the other variants. */
const VARIANTS = process.env.SHOTS === "all" ? ALL_VARIANTS : ALL_VARIANTS.slice(0, 1);

let views: Record<string, string> | undefined;

/** Creates an alert about a failed job with a channel that cannot be reached, and returns its number. */
async function seedAlert(server: Server): Promise<number> {
  const put = (path: string, body: { name: string; [member: string]: unknown }) =>
    server.call("PUT", `/api/v1/${path}/${body.name}?namespace=default`, { namespace: "default", ...body });
  await put("channels", { name: "on-call", to: { webhook: { url: "http://127.0.0.1:9/belfry" } } });
  const match = { name: "reconcile-*", labels: { team: "pay" } };
  const notify = ["on-call", "not-there"];
  const when = { job_failed: { in_a_row: 1 } };
  await put("alert-rules", { name: "payments-failed", when, match, notify, severity: "critical" });
  await put("alert-rules", { name: "slow-jobs", when: { job_slow: { after: "2h" } }, severity: "info" });
  await put("monitors", { name: "mail-fetcher", timing: { every: "15m" }, owner: "mail-team" });
  await server.call("POST", "/api/v1/monitors/mail-fetcher/ping", { exit_code: 3, message: "no connection" });
  const reason = "The mail queue is rebuilt until the evening";
  await server.call("POST", "/api/v1/silences", { subject: "mail-*", duration: "4h", reason });
  await server.submit(
    script("reconcile-payments", "echo 'no bank' >&2; exit 3", { labels: { team: "pay" } }),
  );
  let alert: number | undefined;
  await waitFor(30_000, "the alert", async () => {
    const { items } = await server.get<{ items: Array<{ id: number }> }>("/api/v1/alerts");
    alert = items[0]?.id;
    return alert !== undefined;
  });
  return alert!;
}

/** Creates jobs, schedules and runs of all kinds once, so that no view is empty. */
async function seed(server: Server): Promise<Record<string, string>> {
  const alert = await seedAlert(server);
  const text = 'for i in 1 2 3; do printf "\\033[32mstep $i\\033[0m of 3\\n"; done; echo oops >&2; exit 3';
  const failed = await server.submit(script("import-orders", text, { labels: { team: "pay" } }));
  const thumbnails = await server.submit(script("thumbnails", "echo done", { owner: "media" }));
  await server.submit(script("waits-for-much", "true", { resources: { cpu: "4000" } }));
  const later = { run_at: new Date(Date.now() + 7_200_000).toISOString() };
  await server.submit(script("monthly-report", "true", later));
  await server.waitForStatus(failed, "failed");
  const rules = [{ cron: "30 2 * * mon-fri" }];
  const timing = { rules, zone: "Europe/Berlin", only: [{ calendar: "belfry.cn-workdays" }] };
  const nightly = await server.schedule("nightly-settlement", rules, "sleep 0.1", { timing });
  for (let i = 0; i < 4; i += 1) await server.trigger(nightly);
  await server.schedule("every-quarter", [{ every: "15m" }], "true", { labels: { team: "media" } });
  const never = await server.schedule("never", [{ cron: "0 0 30 2 *" }]);
  await server.schedule("paused-one", [{ every: "1h" }]);
  await server.call("POST", "/api/v1/schedules/paused-one/pause", { note: "until the audit is over" });
  await server.call("PUT", "/api/v1/queues/slow", { concurrency: 2, paused: true });
  const workflow = (name: string, more: object) =>
    server.call("PUT", `/api/v1/workflows/${name}`, { name, ...more });
  const job = (script: string) => ({ run: { process: { script } } });
  await workflow("nightly-etl", {
    owner: "data-team",
    labels: { team: "data" },
    description: "Loads the orders of each region and reports on them.",
    parameters: { regions: { type: "array", default: ["eu", "cn", "us", "br"] } },
    steps: [
      { name: "extract", job: job("echo extracted") },
      { name: "check", needs: ["extract"], job: job("true") },
      {
        name: "load",
        needs: ["check"],
        for_each: { over: { list: "params.regions" } },
        job: job("true"),
      },
      { name: "report", needs: ["load"], job: job("echo 'no figures' >&2; exit 3") },
      { name: "publish", needs: ["report"], job: job("true") },
      { name: "sign-off", needs: ["check"], approval: { message: "May it be published?" } },
    ],
    on_failure: [{ name: "alert", job: job("true") }],
    finally: [{ name: "clean", job: job("true") }],
  });
  const started = () => server.call<{ id: string }>("POST", "/api/v1/workflows/nightly-etl/start", {});
  const [run, rerun] = [await started(), await started()];
  await waitFor(30_000, "the report to have failed", async () => {
    const { steps } = await server.get<{ steps: { failed?: number } }>(`/api/v1/runs/${run.id}`);
    return (steps.failed ?? 0) > 0;
  });
  await server.call("PUT", "/api/v1/services/shop", {
    name: "shop",
    owner: "web-team",
    labels: { team: "shop" },
    description: "Serves the pages of the shop.",
    replicas: 3,
    job: { ports: [{ name: "http" }], ...job("exec sleep 1000") },
  });
  const account = { name: "ann@example.com", kind: "user", title: "Ann 安" };
  await server.call("POST", "/api/v1/accounts", account);
  for (const [role, namespace] of [
    ["viewer", "*"],
    ["developer", "finance"],
  ]) {
    await server.call("PUT", "/api/v1/bindings", { account: account.name, role, namespace });
  }
  await server.call("POST", "/api/v1/tokens", { account: account.name, description: "laptop" });
  return {
    overview: "/",
    jobs: "/jobs",
    job: `/jobs/${failed}`,
    "job-timeline": `/jobs/${failed}?tab=timeline`,
    "job-name": "/jobs/named/nightly-settlement",
    compare: `/compare?a=${failed}&b=${thumbnails}`,
    "compare-runs": `/compare?a=${run.id}&b=${rerun.id}`,
    submit: "/submit",
    schedules: "/schedules",
    schedule: `/schedules/${nightly}`,
    "schedule-that-never-fires": `/schedules/${never}`,
    "schedule-edit": `/schedules/${nightly}/edit`,
    timetable: "/schedules/timetable?span=7d",
    calendars: "/calendars",
    calendar: "/calendars/belfry.cn-workdays",
    workflows: "/workflows",
    workflow: "/workflows/nightly-etl",
    "workflow-grid": "/workflows/nightly-etl?tab=grid",
    "workflow-days": "/workflows/nightly-etl?tab=days",
    "workflow-edit": "/workflows/nightly-etl/edit",
    runs: "/runs",
    run: `/runs/${run.id}?step=report`,
    "run-approval": `/runs/${run.id}?step=sign-off`,
    "run-steps": `/runs/${run.id}?tab=steps`,
    "run-gantt": `/runs/${run.id}?tab=gantt`,
    services: "/services",
    service: "/services/default/shop",
    "service-revisions": "/services/default/shop?tab=revisions&revision=1",
    "service-edit": "/services/default/shop/edit",
    workers: "/workers",
    servers: "/servers",
    queues: "/queues",
    artifacts: "/artifacts",
    events: "/events",
    alerts: "/alerts",
    alert: `/alerts/${alert}`,
    "alert-rules": "/alerts/rules",
    "alert-rule-new": "/alerts/rules?edit=%2B",
    channels: "/alerts/channels",
    monitors: "/alerts/monitors",
    monitor: "/alerts/monitors/default/mail-fetcher",
    silences: "/alerts/silences",
    notifications: "/alerts/notifications",
    accounts: "/access",
    account: "/access/accounts/ann@example.com",
    roles: "/access/roles",
    role: "/access/roles/operator",
    "role-new": "/access/roles/new",
    "all-tokens": "/access/tokens",
    "audit-log": "/access/audit",
    tokens: "/tokens",
    settings: "/settings",
  };
}

for (const { name, width, height, theme, language } of VARIANTS) {
  test.describe(name, () => {
    test.use({ viewport: { width, height }, locale: language, colorScheme: theme });

    test(`every view, ${name}`, async ({ page, server }) => {
      test.setTimeout(180_000);
      views ??= await seed(server);
      for (const [view, address] of Object.entries(views)) {
        await page.goto(address);
        await expect(page.locator("main h1").first(), view).toBeVisible();
        await expect(page.getByLabel(/^(Loading|加载中)$/), view).toHaveCount(0);
        await expect(page.locator(".mantine-Skeleton-root"), view).toHaveCount(0);
        if ((await page.getByTestId("dag").count()) > 0) {
          await expect(page.getByTestId("dag-shown"), view).toHaveAttribute("data-busy", "false");
        }
        await page.evaluate(() => document.fonts.ready);
        await page.screenshot({ path: `e2e/report/shots/${name}/${view}.png` });
        await expect(page.locator("html"), view).toHaveAttribute(
          "lang",
          language === "zh-CN" ? "zh-CN" : "en",
        );
        const over = await page.locator("main").evaluate((main) => main.scrollWidth - main.clientWidth);
        expect(over, `what stands out of ${view}`).toBe(0);
      }
    });
  });
}
