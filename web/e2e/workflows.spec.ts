/** C1, C2, H1. Workflows, runs and steps in the dashboard. */

import type { Page } from "@playwright/test";

import { expect, test } from "./fixtures";
import { type Server, waitFor } from "./server";

interface Run {
  id: string;
  status: string;
  retry_of?: string;
  parameters: Record<string, unknown>;
  history: Array<{ cause: string }>;
}

interface Steps {
  steps: Array<{ name: string; status: string; decision?: { note?: string } }>;
}

const scriptJob = (text: string) => ({ run: { process: { script: text } } });

async function apply(server: Server, spec: { name: string; [member: string]: unknown }): Promise<string> {
  return (await server.call<{ id: string }>("PUT", `/api/v1/workflows/${spec.name}`, spec)).id;
}

async function start(server: Server, name: string, parameters: object = {}): Promise<string> {
  return (await server.call<Run>("POST", `/api/v1/workflows/${name}/start`, { parameters })).id;
}

async function waitForRun(server: Server, id: string, status: string): Promise<void> {
  await waitFor(30_000, `${id} to be ${status}`, async () => {
    return (await server.get<Run>(`/api/v1/runs/${id}`)).status === status;
  });
}

/** Replaces the text of an editor, or appends to it. */
async function paste(page: Page, text: string, key: "Control+a" | "Control+End"): Promise<void> {
  await page.evaluate((text) => navigator.clipboard.writeText(text), text);
  await page.keyboard.press(key);
  await page.keyboard.press("Control+v");
}

/** A step in the graph. */
const node = (page: Page, name: string) => page.getByTestId("dag").getByRole("button", { name: `${name}:` });

const ETL = {
  name: "etl",
  owner: "data-team",
  labels: { team: "data" },
  parameters: {
    day: { type: "string", description: "Which day", schema: { minLength: 10, maxLength: 10 } },
    regions: { type: "array", default: ["eu", "cn", "us"] },
    limit: { type: "integer", default: 5, schema: { minimum: 1 } },
  },
  steps: [
    { name: "extract", job: scriptJob(`echo '{"rows": 7}' > "$BELFRY_OUTPUT"; echo extracted`) },
    {
      name: "load",
      needs: ["extract"],
      for_each: { over: { list: "params.regions" }, max_failed: 1 },
      job: {
        run: {
          process: { script: 'echo "loads $REGION"; test $REGION != us', env: { REGION: "${{ item }}" } },
        },
      },
    },
    { name: "report", needs: ["load"], job: scriptJob("echo reported") },
  ],
  on_failure: [{ name: "alert", job: scriptJob("true") }],
  finally: [{ name: "clean", job: scriptJob("true") }],
};

test("a workflow is started with parameters, and its graph is updated live", async ({ page, server }) => {
  await apply(server, ETL);
  await page.goto("/workflows");
  const row = page.getByTestId("workflow-rows").getByRole("row", { name: /^etl / });
  await expect(row).toContainText("data-team");
  await expect(row).toContainText("never ran");
  await row.getByRole("button", { name: "Start etl" }).click();

  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Start", exact: true }).click();
  await expect(dialog).toContainText("the parameter has no default");
  await dialog.getByLabel("day").fill("short");
  await expect(dialog).toContainText("minLength");
  await dialog.getByLabel("day").fill("2026-11-21");
  await dialog.getByLabel("limit").fill("7");
  await dialog.getByText(/^Plan: \d+ steps?$/).click();
  await expect(dialog.getByTestId("plan")).toContainText("load ×3");
  await dialog.getByRole("button", { name: "Start", exact: true }).click();

  await expect(page.getByRole("heading", { name: "etl #1" })).toBeVisible();
  await expect(node(page, "extract")).toHaveAccessibleName("extract: Succeeded");
  await expect(node(page, "load")).toContainText("3 / 3 · 1 failed");
  await expect(node(page, "alert")).toHaveAccessibleName("alert: Skipped");
  await expect(node(page, "clean")).toHaveAccessibleName("clean: Succeeded");
  await expect(page.getByRole("main").getByText("Succeeded").first()).toBeVisible();
  await expect(page.getByText('"limit": 7')).toBeVisible();

  await node(page, "extract").click();
  await expect(page).toHaveURL(/step=extract/);
  await expect(page.getByTestId("step-panel")).toContainText('"rows": 7');
  await expect(page.getByTestId("log")).toContainText("extracted");

  await node(page, "load").click();
  const items = page.getByTestId("items").getByRole("listitem");
  await expect(items).toHaveCount(3);
  await expect(items.nth(2)).toContainText("Failed");
  await items.nth(1).getByRole("button", { name: "Log" }).click();
  await expect(page.getByTestId("log")).toContainText("loads cn");
  await page.reload();
  await expect(page.getByTestId("log")).toContainText("loads cn");
  await page.getByRole("link", { name: "Open job" }).click();
  await expect(page.getByText("Created by a workflow")).toBeVisible();
  await expect(page.getByText("2 of 3", { exact: true })).toBeVisible();
});

test("a pending approval is shown on the overview, and its note is stored", async ({ page, server }) => {
  await apply(server, {
    name: "release",
    steps: [
      { name: "build", job: scriptJob("true") },
      { name: "sign-off", needs: ["build"], approval: { message: "May it go out?" } },
      { name: "deploy", needs: ["sign-off"], job: scriptJob("true") },
    ],
  });
  const id = await start(server, "release");
  await page.goto("/");
  await page.getByText("Run release #1: step sign-off waits for approval").click();
  const panel = page.getByTestId("step-panel");
  await expect(panel).toContainText("May it go out?");
  // Also without a selected step, at the top of the run's page.
  await page.goto(`/runs/${id}`);
  const pending = page.getByRole("region", { name: "sign-off waits for approval" });
  await expect(pending).toContainText("May it go out?");
  await pending.getByRole("button", { name: "Approve" }).click();
  await expect(page.getByRole("dialog")).toContainText("May it go out?");
  await page.getByRole("dialog").getByRole("button", { name: "Back" }).click();
  await page.goto(`/runs/${id}?step=sign-off`);
  await expect(page.getByTestId("step-why")).toContainText("waits for approval");
  await panel.getByRole("button", { name: "Approve" }).click();
  await page.getByRole("dialog").getByLabel("Note").fill("looks fine");
  await page.getByRole("dialog").getByRole("button", { name: "Approve" }).click();
  await expect(panel).toContainText("looks fine");
  await expect(node(page, "deploy")).toHaveAccessibleName("deploy: Succeeded");
  await waitForRun(server, id, "succeeded");
});

test("a run waits for an event, is paused and resumed, and receives the event with its payload", async ({
  page,
  server,
}) => {
  await apply(server, {
    name: "payment",
    steps: [
      { name: "paid", wait: { event: { name: "paid" } } },
      { name: "ship", needs: ["paid"], job: scriptJob("true") },
    ],
  });
  const id = await start(server, "payment");
  await page.goto(`/runs/${id}?step=ship`);
  await expect(page.getByTestId("step-why")).toContainText("All succeeded");
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("dialog").getByLabel("Reason, visible to others").fill("stock-taking");
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await expect(page.getByText("stock-taking")).toBeVisible();
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name: "Send event" }).click();
  await expect(page.getByRole("dialog").getByLabel("Event")).toHaveValue("paid");
  await page.getByRole("dialog").getByLabel("Payload").fill("{");
  await expect(page.getByRole("dialog").getByRole("button", { name: "Send" })).toBeDisabled();
  await page.getByRole("dialog").getByLabel("Payload").fill('{"amount": 3}');
  await page.getByRole("dialog").getByRole("button", { name: "Send" }).click();
  await expect(page.getByText("1 step received paid")).toBeVisible();
  await page.getByRole("button", { name: "Resume" }).first().click();
  await expect(node(page, "ship")).toHaveAccessibleName("ship: Succeeded");
  await page.getByRole("tab", { name: "History" }).click();
  await expect(page.getByTestId("history")).toContainText("Run paused");
  await expect(page.getByTestId("history").getByRole("listitem").last()).toContainText("Succeeded");
});

test("a failed run is shown on the overview and retried from a step", async ({ page, server }) => {
  await apply(server, {
    name: "settlement",
    steps: [
      { name: "collect", job: scriptJob("true") },
      { name: "settle", needs: ["collect"], job: scriptJob("echo 'no bank' >&2; exit 3") },
      { name: "book", needs: ["settle"], job: scriptJob("true") },
    ],
  });
  const id = await start(server, "settlement");
  await waitForRun(server, id, "failed");
  await page.goto("/");
  await page.getByText("Workflow settlement: 1 run failed in 24 hours").click();
  await expect(page).toHaveURL(/runs\?.*workflow=settlement/);
  await page.getByTestId("run-rows").getByRole("row").click();
  await expect(node(page, "book")).toHaveAccessibleName("book: Upstream failed");
  await page.getByRole("tab", { name: "Steps" }).click();
  await page.getByTestId("steps").getByRole("button", { name: "settle" }).click();
  await expect(page.getByTestId("log")).toContainText("no bank");
  await page.getByTestId("step-panel").getByRole("button", { name: "Retry from here" }).click();
  await expect(page.getByRole("dialog").getByLabel("Restart from").first()).toHaveValue("settle");
  await page.getByRole("dialog").getByRole("button", { name: "Retry" }).click();
  await expect(page.getByRole("heading", { name: "settlement #2" })).toBeVisible();
  await expect(node(page, "collect")).toHaveAccessibleName("collect: Succeeded");
  await node(page, "collect").click();
  await expect(page.getByTestId("step-panel")).toContainText("Result reused from an earlier run");
  await page.goto("/workflows/settlement?tab=grid");
  await expect(page.getByTestId("grid").getByRole("row")).toHaveCount(4);
  await expect(page.getByTestId("grid").getByLabel("#1 settle: Failed", { exact: false })).toBeVisible();
});

test("a step is marked with a note, and a run is cancelled without its finally section", async ({
  page,
  server,
}) => {
  await apply(server, {
    name: "long",
    steps: [
      { name: "first", job: scriptJob("sleep 600") },
      { name: "second", needs: ["first"], job: scriptJob("sleep 600") },
    ],
    finally: [{ name: "clean", job: scriptJob("true") }],
  });
  const id = await start(server, "long");
  await page.goto(`/runs/${id}?step=first`);
  await page.getByRole("button", { name: "Mark as …" }).click();
  await page.getByRole("menuitem", { name: "Succeeded" }).click();
  await page.getByRole("dialog").getByLabel("Note").fill("done by hand");
  await page.getByRole("dialog").getByRole("button", { name: "Mark as …" }).click();
  await expect(node(page, "first")).toHaveAccessibleName("first: Succeeded");
  await expect(node(page, "second")).toHaveAccessibleName("second: Running");
  await expect(page.getByTestId("step-panel")).toContainText("done by hand");
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByLabel("Skip on_failure and finally steps").check();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  await waitForRun(server, id, "cancelled");
  await expect(node(page, "second")).toHaveAccessibleName("second: Cancelled");
  const { steps } = await server.get<Steps>(`/api/v1/runs/${id}/steps`);
  expect(steps.find(({ name }) => name === "clean")?.status).not.toBe("succeeded");
});

test("a workflow is edited with a live graph and validation, and a concurrent change is not overwritten", async ({
  page,
  server,
  browserErrors,
}) => {
  await page.goto("/workflows/new");
  await page.getByTestId("way").getByText("File", { exact: true }).click();
  await expect(page.getByText("The workflow is valid.")).toBeVisible();
  await expect(node(page, "extract")).toBeVisible();
  const file = page.getByRole("textbox", { name: "Workflow file" });
  await file.click();
  await expect(file).toBeFocused();
  const lines = [
    ...["name: drawn", "steps:", "  - name: one", "    job: {run: {process: {command: [echo]}}}"],
    ...["  - name: two", "    needs: [nobody]", "    wait: {for: 1s}"],
  ];
  await paste(page, `${lines.join("\n")}\n`, "Control+a");
  await expect(page.locator("[data-bad]").first()).toContainText("nobody");
  await expect(page.getByTestId("save")).toBeDisabled();
  await expect(node(page, "two")).toBeVisible();
  await paste(page, `${lines.join("\n").replace("nobody", "one")}\n`, "Control+a");
  await expect(page.getByTestId("save")).toBeEnabled();
  await page.getByTestId("save").click();
  await expect(page.getByRole("heading", { name: "drawn" })).toBeVisible();
  await node(page, "two").click();
  await expect(page.getByTestId("step-definition")).toContainText("for: 1s");

  await page.getByRole("link", { name: "Edit" }).click();
  await expect(page.getByRole("textbox", { name: "Workflow file" })).toContainText("command:");
  // Server defaults are not part of the file.
  await expect(page.getByRole("textbox", { name: "Workflow file" })).not.toContainText("priority");
  await expect(page.getByTestId("save")).toBeEnabled();
  await apply(server, { name: "drawn", steps: [{ name: "other", job: scriptJob("true") }] });
  await file.click();
  await expect(file).toBeFocused();
  await paste(page, "description: mine\n", "Control+End");
  await expect(page.getByText("The workflow is valid.")).toBeVisible();
  await page.getByTestId("save").click();
  await expect(page.getByRole("alert").filter({ hasText: "version_mismatch" })).toBeVisible();

  await page.goto("/workflows/drawn");
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await expect(page.getByText("drawn deleted")).toBeVisible();
  // Chromium adds inline styles to pasted text, which the content security policy blocks.
  const unexpected = browserErrors.filter((complaint) => !complaint.startsWith("Applying inline style"));
  browserErrors.splice(0, browserErrors.length, ...unexpected);
});

test("the form edits the same definition as the file, with a live graph", async ({ page, server }) => {
  await page.goto("/workflows/new");
  const form = page.getByTestId("workflow-form");
  await form.getByTestId("name").first().fill("by-form");
  await form.getByTestId("add-steps").click();
  await expect(node(page, "step-4")).toBeVisible();
  // Collapsed steps have hidden fields.
  const added = form.getByTestId("step-name").filter({ visible: true });
  const outputs = form.getByTestId("step-outputs").filter({ visible: true });
  await outputs.fill("rows: numbers");
  await outputs.press("Enter");
  await expect(form.getByText("unknown variant `numbers`")).toBeVisible();
  await added.fill("publish");
  await expect(node(page, "publish")).toBeVisible();
  await form.getByText("Approval", { exact: true }).filter({ visible: true }).click();
  await form.getByLabel("Approval message").fill("publish it?");
  await page.getByTestId("way").getByText("File", { exact: true }).click();
  await expect(page.getByRole("textbox", { name: "Workflow file" })).toContainText("publish it?");
  await page.getByTestId("way").getByText("Form", { exact: true }).click();
  await expect(page.getByTestId("save")).toBeEnabled();
  await page.getByTestId("save").click();
  await expect(page.getByRole("heading", { name: "by-form" })).toBeVisible();
  const saved = await server.get<{ spec: { steps: Array<{ name: string; needs?: string[] }> } }>(
    "/api/v1/workflows/by-form",
  );
  expect(saved.spec.steps.map(({ name }) => name)).toEqual(["extract", "report", "publish"]);
  expect(saved.spec.steps[2]?.needs).toEqual(["report"]);
});

test("a mapped step over added elements works in the form, in the graph, and while it runs", async ({
  page,
  server,
}) => {
  await page.goto("/workflows/new");
  const form = page.getByTestId("workflow-form");
  await form.getByTestId("name").first().fill("growing");
  await form.getByTestId("add-steps").click();
  await form.getByTestId("step-name").filter({ visible: true }).fill("work");
  await form.getByTestId("step-each").filter({ visible: true }).click();
  await page.getByRole("option", { name: "Elements that other steps add" }).click();
  const dashed = page.getByTestId("dag").locator("path[data-adds]");
  await expect(dashed).toHaveCount(0);
  await expect(page.getByTestId("save")).toBeDisabled();
  await form.getByTestId("step-adders").click();
  await page.getByRole("option", { name: "extract" }).click();
  await page.keyboard.press("Escape");
  await expect(dashed).toHaveCount(1);
  await expect(page.getByTestId("save")).toBeEnabled();
  await page.getByTestId("save").click();
  await expect(page.getByRole("heading", { name: "growing" })).toBeVisible();
  await expect(dashed).toHaveCount(1);
  const saved = await server.get<{ spec: { steps: Array<{ name: string; for_each?: object }> } }>(
    "/api/v1/workflows/growing",
  );
  const work = saved.spec.steps.find(({ name }) => name === "work");
  expect(work?.for_each).toMatchObject({ over: { added_by: ["extract"] } });

  await apply(server, {
    name: "grows",
    steps: [
      { name: "split", job: scriptJob("sleep 60") },
      { name: "work", for_each: { over: { added_by: ["split"] } }, job: scriptJob("true") },
    ],
  });
  const id = await start(server, "grows");
  await page.goto(`/runs/${id}?step=work`);
  await expect(page.getByTestId("step-panel")).toContainText("These steps may add more elements: split.");
  await expect(dashed).toHaveCount(1);
  await server.call("POST", `/api/v1/runs/${id}/cancel`);
});

test("a schedule of a workflow shows its runs, and a run shows the elements in progress", async ({
  page,
  server,
}) => {
  const each = { over: { items: ["Beijing", "Shanghai"] } };
  await apply(server, {
    name: "slow",
    parameters: { city: { type: "string" }, limit: { type: "integer", default: 5 } },
    steps: [{ name: "load", for_each: each, job: scriptJob("sleep 60") }],
  });
  await page.goto("/schedules/new");
  await page.getByTestId("name").fill("starts-slow");
  await page.getByText("Workflow", { exact: true }).click();
  await page.getByTestId("workflow").fill("slow");
  const parameters = page.getByTestId("schedule-parameters");
  await parameters.getByLabel("city").fill("${{ firing.schedule }}");
  await parameters.getByLabel("limit").fill("7");
  await expect(page.getByText("The schedule is valid.")).toBeVisible();
  await page.getByTestId("save").click();
  await expect(page.getByRole("heading", { name: "starts-slow" })).toBeVisible();
  const { run_id: id } = await server.call<{ run_id: string }>(
    "POST",
    "/api/v1/schedules/starts-slow/trigger",
  );
  const started = await server.get<Run>(`/api/v1/runs/${id}`);
  expect(started.parameters).toEqual({ city: "starts-slow", limit: 7 });

  await page.getByRole("link", { name: id }).click();
  await expect(page).toHaveURL(new RegExp(`/runs/${id}`));
  await node(page, "load").click();
  const live = page.getByTestId("live-items").getByRole("listitem");
  await expect(live).toHaveCount(2);
  await expect(live.first()).toContainText("Beijing");
  await expect(live.first().getByRole("link")).toHaveAttribute("href", /workers/);
  await server.call("POST", `/api/v1/runs/${id}/cancel`);
  await waitForRun(server, id, "cancelled");
  // Other tests have created more schedules than the page shows at once.
  await page.goto("/schedules?text=starts-slow");
  const row = page.getByTestId("schedule-rows").getByRole("row", { name: /starts-slow/ });
  await expect(row).toContainText("Cancelled");
  await row.getByRole("link", { name: "starts-slow" }).click();
  const bars = page.getByRole("navigation", { name: "Recent runs" });
  await expect(bars.getByRole("link")).toHaveCount(1);
  await bars.getByRole("link").click();
  await expect(page).toHaveURL(new RegExp(`/runs/${id}`));
});

test("shortcuts, the palette and URLs open workflows and runs, in both languages", async ({
  page,
  server,
}) => {
  await apply(server, { ...ETL, name: "find-this-workflow" });
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.keyboard.press("g");
  await page.keyboard.press("f");
  await expect(page.getByRole("heading", { name: "Workflows", level: 1 })).toBeVisible();
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await expect(page.getByRole("heading", { name: "Runs", level: 1 })).toBeVisible();
  await page.getByRole("button", { name: "Failed", exact: true }).last().click();
  await expect(page).toHaveURL(/status=failed/);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("find-this-work");
  await expect(page.getByRole("option").first()).toContainText("find-this-workflow");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "find-this-workflow" })).toBeVisible();

  const picture = page.getByRole("group", { name: "Graph" });
  // Arrow keys work once the steps are laid out.
  await expect(node(page, "load")).toBeVisible();
  await picture.focus();
  await page.keyboard.press("ArrowRight");
  await expect(page).toHaveURL(/step=extract/);
  await expect(page.getByTestId("step-definition")).toContainText("extract");
  await page.keyboard.press("ArrowRight");
  await expect(page).toHaveURL(/step=load/);
  await page.keyboard.press("Escape");
  await expect(page).not.toHaveURL(/step=/);
  await page.goto("/settings");
  await page.getByText("中文", { exact: true }).click();
  await page.goto("/workflows/find-this-workflow?step=load");
  await expect(page.getByRole("button", { name: "启动" })).toBeVisible();
  await expect(page.getByTestId("dag")).toContainText("收尾步骤");
});

test("a missing workflow shows an error", async ({ page }) => {
  await page.goto("/workflows/nobody");
  await expect(page.getByRole("alert")).toContainText("workflow_not_found");
  await page.goto("/runs/run_00000000000000000000000000");
  await expect(page.getByRole("alert")).toContainText("run_not_found");
});

/** A thousand steps in 40 ranks, each with two upstream steps in the previous rank. */
function thousandSteps(): object[] {
  const width = 25;
  const name = (i: number) => `step-${String(i).padStart(4, "0")}`;
  return Array.from({ length: 1_000 }, (_, i) => {
    const before = (Math.floor(i / width) - 1) * width;
    const needs = i < width ? [] : [before + ((i * 7) % width), before + ((i * 11 + 3) % width)];
    return { name: name(i), needs: [...new Set(needs.map(name))], job: scriptJob("true") };
  });
}

test("a graph of a thousand steps appears quickly, and pans and zooms smoothly", async ({ page, server }) => {
  const id = await apply(server, { name: "thousand", steps: thousandSteps() });
  await page.addInitScript(() => {
    const long: number[] = [];
    new PerformanceObserver((list) => long.push(...list.getEntries().map((entry) => entry.duration))).observe(
      {
        entryTypes: ["longtask"],
      },
    );
    Object.assign(globalThis, { long });
  });
  await page.goto(`/workflows/${id}`);
  const picture = page.getByTestId("dag-shown");
  await expect(picture).toHaveAttribute("data-steps", "1000");
  const first = await page.evaluate(() => performance.now());
  await expect(picture).toHaveAttribute("data-busy", "false", { timeout: 45_000 });
  const careful = await page.evaluate(() => performance.now());
  // The whole graph is drawn as a few paths, not a thousand elements.
  await expect(picture).toHaveAttribute("data-far", "true");
  await expect(page.getByTestId("dag").locator("button")).toHaveCount(3);

  const box = page.getByRole("group", { name: "Graph" });
  await box.focus();
  const { x, y, width, height } = (await box.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
  await page.mouse.move(x + width / 2, y + height / 2);
  await page.evaluate(() => {
    const frames: number[] = [];
    let before = performance.now();
    const tick = (now: number) => {
      frames.push(now - before);
      before = now;
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
    const { long } = globalThis as unknown as { long: number[] };
    long.length = 0;
    Object.assign(globalThis, { frames });
  });
  for (let i = 0; i < 30; i += 1) await page.mouse.wheel(0, -60);
  await page.mouse.down();
  for (let i = 1; i <= 30; i += 1) await page.mouse.move(x + width / 2 - i * 8, y + height / 2 + i * 4);
  await page.mouse.up();
  await expect(picture).toHaveAttribute("data-far", "false");
  const near = await page.getByTestId("dag").locator("button").count();
  for (let i = 0; i < 30; i += 1) await page.mouse.wheel(0, 60);
  const { frames, long } = await page.evaluate(() => {
    const { frames, long } = globalThis as unknown as { frames: number[]; long: number[] };
    return { frames, long };
  });
  const sorted = [...frames].sort((a, b) => a - b);
  const at = (part: number) => (sorted[Math.floor((sorted.length - 1) * part)] ?? 0).toFixed(0);
  // eslint-disable-next-line no-console -- a measurement for the test output
  console.log(
    `a thousand steps: first picture after ${first.toFixed(0)} ms, careful one after ${careful.toFixed(0)} ms; ` +
      `${frames.length} frames, p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, longest ${at(1)} ms; ` +
      `long tasks: ${long.map((ms) => ms.toFixed(0)).join(", ") || "none"}`,
  );
  // Only visible steps are DOM elements.
  expect(near).toBeLessThan(200);

  await page.getByLabel("Find a step").fill("step-0777");
  await page.getByLabel("Find a step").press("Enter");
  await expect(node(page, "step-0777")).toBeInViewport();
  await expect(page.getByTestId("step-definition")).toContainText("step-0777");
});

test("a failed run shows its next attempt, and continues automatically", async ({ page, server }) => {
  const flag = '"/tmp/belfry-e2e-$BELFRY_RUN"';
  const flaky = `if [ -e ${flag} ]; then rm ${flag}; echo "second time"; else touch ${flag}; exit 3; fi`;
  await apply(server, {
    name: "flaky",
    retry: { max_retries: 2, backoff: { initial: "10s", jitter: 0 } },
    steps: [
      { name: "fetch", job: scriptJob("true") },
      { name: "load", needs: ["fetch"], job: scriptJob(flaky) },
    ],
    on_failure: [{ name: "alert", job: scriptJob("true") }],
  });
  const id = await start(server, "flaky");
  await waitForRun(server, id, "retrying");
  await page.goto(`/runs/${id}?step=load`);
  await expect(page.getByTestId("retrying")).toContainText("2 of 3");
  await expect(page.getByTestId("retrying")).toContainText("step load");
  await expect(page.getByTestId("step-why")).toContainText("waits for attempt 2 of 3");
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await expect(page.getByTestId("step-why")).toContainText("once the run is resumed");
  await page.getByRole("button", { name: "Resume" }).first().click();
  await waitForRun(server, id, "succeeded");
  await expect(page.getByTestId("log")).toContainText("second time");
  await page.getByRole("tab", { name: "History" }).click();
  await expect(page.getByTestId("history")).toContainText("A step failed · step load");
  await page.getByRole("tab", { name: "Graph" }).click();
  await expect(node(page, "alert")).toHaveAccessibleName("alert: Skipped");
});

test("server messages about runs are translated into Chinese", async ({ page, server }) => {
  await apply(server, {
    name: "chinese",
    retry: { max_retries: 1, backoff: { initial: "5m" } },
    steps: [
      { name: "many", for_each: { over: { shards: 2 } }, job: scriptJob('test "$BELFRY_INDEX" = 0') },
      { name: "after", needs: ["many"], job: scriptJob("true") },
    ],
    on_failure: [{ name: "alert", job: scriptJob("true") }],
  });
  const id = await start(server, "chinese");
  await waitForRun(server, id, "retrying");
  await page.addInitScript(() => localStorage.setItem("belfry.preferences", '{"language": "zh-CN"}'));
  await page.goto(`/runs/${id}?tab=steps&step=many`);
  await expect(page.getByTestId("retrying")).toContainText("第 2 次，共 2 次");
  await expect(page.getByTestId("retrying")).toContainText("步骤 many：2 个元素中成功 1 个，失败 1 个");
  await expect(page.getByTestId("step-why")).toContainText("等待第 2 次执行");
  await expect(page.getByTestId("steps")).toContainText("2 个元素中成功 1 个，失败 1 个");
  await page.getByRole("button", { name: "取消" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "取消" }).last().click();
  await waitForRun(server, id, "cancelled");
  await expect(page.getByTestId("steps")).toContainText("运行实例被取消");
});

test("the list of runs shows the failed step and pending approvals", async ({ page, server }) => {
  await apply(server, { name: "listed-breaks", steps: [{ name: "load", job: scriptJob("exit 3") }] });
  await waitForRun(server, await start(server, "listed-breaks"), "failed");
  await apply(server, { name: "listed-asks", steps: [{ name: "gate", approval: {} }] });
  const asks = await start(server, "listed-asks");
  await page.goto("/runs");
  const row = (name: string) => page.getByTestId("run-rows").getByRole("row").filter({ hasText: name });
  await expect(row("listed-breaks")).toContainText("step load: exited with code 3");
  await expect(row("listed-asks")).toContainText("Waiting for approval");
  await server.call("POST", `/api/v1/runs/${asks}/steps/gate/approve`, {});
  await expect(row("listed-asks")).toContainText("Succeeded");
});

test("a workflow shows its triggers and schedules, and a triggered run shows its source", async ({
  page,
  server,
}) => {
  const steps = [{ name: "one", job: scriptJob("true") }];
  await apply(server, { name: "upstream", steps });
  await apply(server, {
    name: "triggered",
    steps,
    triggers: [
      { workflow: "upstream", within: "6h" },
      {
        all: [
          { job: "rates", labels: { region: "eu" } },
          { workflow: "ledger", on: "any" },
        ],
        window: "12h",
      },
      { job: "ignored", paused: true },
    ],
  });
  await server.call("PUT", "/api/v1/schedules/starts-triggered", {
    name: "starts-triggered",
    timing: { rules: [{ cron: "0 3 * * *" }] },
    workflow: { name: "triggered" },
  });
  const upstream = await start(server, "upstream");
  await waitForRun(server, upstream, "succeeded");
  await server.waitForStatus(
    await server.submit({ name: "rates", ...scriptJob("true"), labels: { region: "eu" } }),
    "succeeded",
  );

  await page.goto("/workflows/triggered");
  const triggers = page.getByTestId("triggers").locator("> li");
  await expect(triggers).toHaveCount(3);
  await expect(triggers.nth(0)).toContainText("Workflow upstream succeeds");
  await expect(triggers.nth(0)).toContainText(/at most 6h after its scheduled time.*Last run.*#1.*Runs1/);
  await expect(triggers.nth(1)).toContainText(/Job rates succeeds.*region=eu.*Job rates.*Succeeded/);
  await expect(triggers.nth(1)).toContainText("Workflow ledger endshas not ended yet");
  await expect(triggers.nth(1)).toContainText("All sources must end within 12h.");
  await expect(triggers.nth(1)).toContainText("Waits for1 more source");
  await expect(triggers.nth(2)).toContainText("Paused");
  await expect(page.getByTestId("schedules")).toContainText("starts-triggered0 3 * * *");

  // Live, also for ends that start no run.
  await server.submit({ name: "ignored", ...scriptJob("exit 0") });
  await expect(triggers.nth(2)).toContainText("Not triggered1 time, last:Job ignored");
  await expect(triggers.nth(2)).toContainText("The trigger is paused.");
  await apply(server, { name: "ledger", steps: [{ name: "one", job: scriptJob("exit 1") }] });
  await waitForRun(server, await start(server, "ledger"), "failed");
  await expect(triggers.nth(1)).toContainText("#2");
  await expect(triggers.nth(1)).not.toContainText("Waits for");

  await triggers.nth(0).getByRole("link", { name: "#1" }).click();
  await expect(page.getByRole("heading", { name: "triggered #1" })).toBeVisible();
  await expect(page.getByRole("region", { name: "Started by a trigger" })).toContainText("Workflow upstream");
  await page.getByTestId("trigger").getByRole("link", { name: "upstream" }).click();
  await expect(page).toHaveURL(new RegExp(`/runs/${upstream}`));
  await expect(page.getByText("Triggered runs")).toBeVisible();

  await page.addInitScript(() => localStorage.setItem("belfry.preferences", '{"language": "zh-CN"}'));
  await page.goto("/workflows/triggered");
  await expect(triggers.nth(0)).toContainText("工作流 upstream 成功时");
  await expect(triggers.nth(2)).toContainText("触发器已暂停。");
  await page.goto("/runs?workflow=triggered");
  await expect(page.getByTestId("run-rows")).toContainText("任务 rates；工作流 ledger");
});

test("on a phone a workflow's description has its own lines beside long labels", async ({ page, server }) => {
  const labels = { "app.kubernetes.io/component": "settlement-reconciler", "cost-center": "finance-2026" };
  const description = "Loads the settlement entries of each region and compares them with the ledger.";
  const steps = [{ name: "one", job: scriptJob("true") }];
  await apply(server, {
    name: "described-with-a-name-that-is-longer-than-a-phone-is-wide",
    labels,
    description,
    steps,
  });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto("/workflows");
  const row = page.getByTestId("workflow-rows").getByRole("row", { name: /^described/ });
  const text = await row.getByText(description).boundingBox();
  const label = await row.getByText("cost-center=finance-2026").boundingBox();
  expect(text?.width).toBeGreaterThan(240);
  expect(text?.y).toBeGreaterThan((label?.y ?? 0) + 10);
  const link = row.getByRole("link", { name: /^described/ });
  // It wraps instead of being cut.
  expect((await link.boundingBox())?.height).toBeGreaterThan(30);
});

test("on a phone the tabs of a run stay in one line", async ({ page, server }) => {
  await apply(server, { name: "narrow", steps: [{ name: "one", job: scriptJob("true") }] });
  const id = await start(server, "narrow");
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto(`/runs/${id}`);
  const tabs = page.getByRole("tab");
  await expect(tabs).toHaveCount(5);
  const tops = await tabs.evaluateAll((all) => all.map((tab) => Math.round(tab.getBoundingClientRect().top)));
  expect(new Set(tops).size).toBe(1);
});
