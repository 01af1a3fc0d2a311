/**
 * H1. Accessibility of every view, checked with axe. The check is slow, so it has its own file, the first
 * alphabetically, and its parts run at the same time.
 */

import AxeBuilder from "@axe-core/playwright";

import type { Page } from "@playwright/test";

import { expect, script, test } from "./fixtures";
import type { Server } from "./server";
import { VIEWS } from "./views";

test.describe.configure({ mode: "parallel" });

const PARTS = 3;

for (let part = 0; part < PARTS; part += 1) {
  test(`every view opens by its URL and passes the axe checks, in both themes, part ${part + 1} of ${PARTS}`, async ({
    page,
    server,
  }) => {
    // axe checks about fifteen views.
    test.setTimeout(480_000);
    const views = await allViews(server, `readable-${part}`);
    for (const view of views.filter((_, index) => index % PARTS === part)) await check(page, view);
  });
}

/** Creates what the views show. Parts may share a server, and an account is created only once on a server. */
async function allViews(server: Server, account: string): Promise<string[]> {
  const id = await server.submit(script("readable", "echo hello; exit 3"));
  await server.waitForStatus(id, "failed");
  const groups = await server.get<{ items: Array<{ id: string }> }>("/api/v1/failures?name=readable");
  const group = groups.items[0]?.id;
  await server.call("POST", `/api/v1/failures/${group}/state`, { state: "known", note: "OPS-1" });
  const other = await server.submit(script("readable", "echo changed; exit 4"));
  await server.waitForStatus(other, "failed");
  const http = await server.submit({ name: "calls", run: { http: { url: "http://127.0.0.1:9/" } } });
  const container = await server.submit({ name: "boxed", run: { container: { image: "alpine:3.20" } } });
  const process = { script: "true", sandbox: { level: "strict" } };
  const sandboxed = await server.submit({ name: "sandboxed", run: { process } });
  await server.call("PUT", "/api/v1/namespaces/guests", { sandbox: { level: "strict", network: "none" } });
  const job = { run: { process: { script: "echo one; exit 1" } } };
  const list = { over: { items: ["a", "b"] } };
  const steps = [
    { name: "mark-me", approval: { message: "Well?" } },
    { name: "over", for_each: list, job },
  ];
  await server.call("PUT", "/api/v1/workflows/readable", { name: "readable", steps });
  const started = await server.call<{ id: string }>("POST", "/api/v1/workflows/readable/start", {});
  const run = started.id;
  const { id: again } = await server.call<{ id: string }>("POST", "/api/v1/workflows/readable/start", {});
  const nightly = await server.schedule("readable", [{ cron: "30 2 * * *" }], "exit 3");
  await server.trigger(nightly);
  // Its replicas never become healthy, and its second revision differs from the first.
  for (const script of ["exec sleep 1000", "exec sleep 2000"]) {
    const health = { readiness: { tcp: { port: "http" } } };
    const job = { ports: [{ name: "http" }], health, run: { process: { script } } };
    await server.call("PUT", "/api/v1/services/readable", { name: "readable", replicas: 2, job });
  }
  await server.call("POST", "/api/v1/accounts", { name: account, kind: "user", title: "Readable" });
  await server.call("PUT", "/api/v1/bindings", { account, role: "viewer", namespace: "*" });
  await server.call("POST", "/api/v1/tokens", { account, role: "viewer" });
  return [
    ...VIEWS,
    `/access/accounts/${account}`,
    ...[`/jobs/${id}`, `/jobs/${id}?tab=timeline`, `/jobs/${id}?tab=spec`],
    ...[`/jobs/${http}`, `/submit?from=${http}`, `/jobs/${container}`, `/submit?from=${container}`],
    ...[`/jobs/${sandboxed}`, `/submit?from=${sandboxed}`],
    ...["/jobs/named/readable", "/jobs/named/unknown", `/failures/${group}`],
    ...["/compare", `/compare?a=${id}&b=${other}`, `/compare?a=${run}&b=${again}`],
    ...[`/schedules/${nightly}`, `/schedules/${nightly}?tab=backfills`, `/schedules/${nightly}/edit`],
    ...["", "?tab=grid", "?tab=days", "?tab=runs", "?step=mark-me"].map(
      (query) => `/workflows/readable${query}`,
    ),
    ...["", "?tab=revisions&revision=2", "?tab=endpoints", "?tab=jobs", "?tab=spec", "/edit"].map(
      (query) => `/services/default/readable${query}`,
    ),
    ...["?step=mark-me", "?step=over", "?tab=steps", "?tab=gantt", "?tab=history"].map(
      (query) => `/runs/${run}${query}`,
    ),
  ];
}

async function check(page: Page, view: string): Promise<void> {
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  await page.goto(view);
  await expect(page.locator("main h1").first(), view).toBeVisible();
  await expect(page.getByLabel("Loading", { exact: true })).toHaveCount(0);
  // Wait for the validation: it changes the state of a button.
  await expect(page.getByText("Checking …")).toHaveCount(0);
  // The labels of a run's steps omit their durations, which change constantly.
  const isDurationLabel = ({ id }: { id: string }) =>
    id === "label-content-name-mismatch" && view.startsWith("/runs/");
  for (const theme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: theme });
    await expect(page.locator("html")).toHaveAttribute("data-mantine-color-scheme", theme);
    // A button that is being enabled briefly has a colour between its two colours.
    await expect(async () => {
      // The other mode opens a second page for each check, to combine the results of frames. No view has frames.
      const axe = new AxeBuilder({ page }).setLegacyMode();
      // Only colours depend on the theme.
      if (theme === "dark") axe.withRules(["color-contrast"]);
      else {
        axe
          .options({ rules: { "label-content-name-mismatch": { enabled: true } } })
          .withTags(["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]);
      }
      const { violations } = await axe.analyze();
      const failures = violations
        .filter((v) => !isDurationLabel(v))
        .flatMap((v) => v.nodes.map((node) => `${v.id}: ${node.target.join(" ")} ${node.failureSummary}`));
      expect(failures, `${view}, ${theme}`).toEqual([]);
    }).toPass({ timeout: 60_000 });
  }
}
