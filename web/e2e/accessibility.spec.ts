/**
 * H1. Every view can be read by everybody: axe looks through each. It takes long, so it has a file of its own, which is
 * the first in the alphabet: another worker does the rest meanwhile.
 */

import AxeBuilder from "@axe-core/playwright";

import { expect, script, test } from "./fixtures";
import { VIEWS } from "./views";

test("every view can be read by everybody, in both themes", async ({ page, server }) => {
  // Each of some thirty views is looked through by axe.
  test.setTimeout(480_000);
  const id = await server.submit(script("readable", "echo hello; exit 3"));
  await server.untilStatus(id, "failed");
  const job = { run: { process: { script: "echo one; exit 1" } } };
  const list = { over: { items: ["a", "b"] } };
  const steps = [
    { name: "mark-me", approval: { message: "Well?" } },
    { name: "over", for_each: list, job },
  ];
  await server.call("PUT", "/api/v1/workflows/readable", { name: "readable", steps });
  const started = await server.call<{ id: string }>("POST", "/api/v1/workflows/readable/start", {});
  const run = started.id;
  const nightly = await server.schedule("readable", [{ cron: "30 2 * * *" }], "exit 3");
  await server.trigger(nightly);
  const views = [
    ...VIEWS,
    ...[`/jobs/${id}`, `/jobs/${id}?tab=timeline`, `/jobs/${id}?tab=spec`],
    ...[`/schedules/${nightly}`, `/schedules/${nightly}?tab=backfills`, `/schedules/${nightly}/edit`],
    ...["", "?tab=grid", "?tab=runs", "?step=mark-me"].map((query) => `/workflows/readable${query}`),
    ...["?step=mark-me", "?step=over", "?tab=steps", "?tab=gantt", "?tab=history"].map(
      (query) => `/runs/${run}${query}`,
    ),
  ];
  for (const view of views) {
    await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
    await page.goto(view);
    await expect(page.locator("main h1").first()).toBeVisible();
    await expect(page.getByLabel("Loading", { exact: true })).toHaveCount(0);
    // What is being checked must have been: its button changes then.
    await expect(page.getByText("Checking …")).toHaveCount(0);
    // The names of steps of a run leave out how long they take, which changes all the time.
    const isOfTime = ({ id }: { id: string }) =>
      id === "label-content-name-mismatch" && view.startsWith("/runs/");
    for (const theme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme: theme });
      await expect(page.locator("html")).toHaveAttribute("data-mantine-color-scheme", theme);
      // A button that is just becoming usable has, for a moment, neither of its two colours.
      await expect(async () => {
        const axe = new AxeBuilder({ page });
        // Only colours depend on the theme.
        if (theme === "dark") axe.withRules(["color-contrast"]);
        else {
          axe
            .options({ rules: { "label-content-name-mismatch": { enabled: true } } })
            .withTags(["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]);
        }
        const { violations } = await axe.analyze();
        const told = violations
          .filter((v) => !isOfTime(v))
          .flatMap((v) => v.nodes.map((node) => `${v.id}: ${node.target.join(" ")} ${node.failureSummary}`));
        expect(told, `${view}, ${theme}`).toEqual([]);
      }).toPass({ timeout: 60_000 });
    }
  }
});
