/** H1. Pages of jobs and runs explain why they ended badly. */

import { expect, script, test, waitFor } from "./fixtures";
import type { Server } from "./server";

const scriptJob = (text: string, more: object = {}) => ({ run: { process: { script: text } }, ...more });

async function runToEnd(server: Server, spec: { name: string; [member: string]: unknown }): Promise<string> {
  await server.call("PUT", `/api/v1/workflows/${spec.name}`, spec);
  const { id } = await server.call<{ id: string }>("POST", `/api/v1/workflows/${spec.name}/start`, {});
  const isEnded = async () =>
    ["failed", "cancelled"].includes((await server.get<{ status: string }>(`/api/v1/runs/${id}`)).status);
  await waitFor(30_000, `${spec.name} to end`, isEnded);
  return id;
}

test("a failed job shows its cause, exit code, attempts, the end of its log and advice", async ({
  page,
  server,
}) => {
  const text = "for i in $(seq 1 40); do echo line $i; done; exit 3";
  const retry = { max_retries: 1, backoff: { initial: "100ms", max: "100ms" } };
  const id = await server.submit(script("imports", text, { retry }));
  await server.waitForStatus(id, "failed");
  await page.goto(`/jobs/${id}?tab=spec`);
  const card = page.getByRole("region", { name: "Why it failed" });
  await expect(card).toContainText("exited with code 3");
  await expect(card).toContainText("2 (retry limit 1)");
  await expect(card.getByLabel("Last lines of the log")).toContainText("line 40");
  await expect(card.getByLabel("Last lines of the log")).not.toContainText("line 32\n");
  await expect(card).toContainText("correct the task or its input");
  await card.getByRole("link", { name: "Go to line 40" }).click();
  await expect(page).toHaveURL(/tab=log.*line=40/);
  await expect(page.getByTestId("log")).toContainText("line 40");
});

test("the advice follows the cause: timeout, missing program, expired start", async ({ page, server }) => {
  const slow = await server.submit(script("slow", "sleep 30", { timeout: "300ms", grace: "100ms" }));
  const missing = await server.submit({
    name: "missing",
    run: { process: { command: ["no-such-program"] } },
  });
  const much = { resources: { cpu: "4000" }, start_deadline: "500ms" };
  const late = await server.submit(script("late", "true", much));
  await server.waitForStatus(slow, "failed");
  await server.waitForStatus(missing, "failed");
  await server.waitForStatus(late, "expired");

  await page.goto(`/jobs/${slow}`);
  await expect(page.getByTestId("failure")).toContainText("raise timeout");
  await expect(page.getByTestId("failure").getByRole("link", { name: "Run with changes" })).toBeVisible();
  await page.goto(`/jobs/${missing}`);
  await expect(page.getByTestId("failure")).toContainText("Install the program on the worker");
  await page.getByTestId("failure").getByRole("link", { name: "Show worker" }).click();
  await expect(page).toHaveURL(/\/workers\/wkr_/);
  await page.goto(`/jobs/${late}`);
  await expect(page.getByRole("region", { name: "Why it expired" })).toContainText("Start deadline passed");
  await page.getByTestId("failure").getByRole("link", { name: "Show queue default" }).click();
  await expect(page).toHaveURL(/\/queues\?history=default/);
});

test("a job that a user cancelled has no such card, and one that its run stopped has", async ({
  page,
  server,
}) => {
  const id = await server.submit(script("unwanted", "sleep 60"));
  await server.waitForStatus(id, "running");
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, { reason: "wrong day" });
  await server.waitForStatus(id, "cancelled");
  await page.goto(`/jobs/${id}?tab=timeline`);
  await expect(page.getByTestId("timeline")).toContainText("wrong day");
  await expect(page.getByTestId("failure")).toHaveCount(0);

  const run = await runToEnd(server, {
    name: "stops-at-once",
    failure: "fail_fast",
    steps: [
      { name: "bad", job: scriptJob("sleep 0.5; exit 3") },
      { name: "long", job: scriptJob("sleep 60", { grace: "100ms" }) },
    ],
  });
  const { steps } = await server.get<{ steps: Array<{ name: string; job_id: string }> }>(
    `/api/v1/runs/${run}/steps`,
  );
  await page.goto(`/jobs/${steps.find(({ name }) => name === "long")?.job_id}`);
  const card = page.getByRole("region", { name: "Why it was cancelled" });
  await expect(card).toContainText("The workflow run stopped the step of this job");
  await card.getByRole("link", { name: "Show run" }).click();
  await expect(page).toHaveURL(new RegExp(`/runs/${run}`));
});

test("a failed run names its failed steps and explains the first one", async ({ page, server }) => {
  const names = Array.from({ length: 20 }, (_, i) => `step-${i}`);
  const id = await runToEnd(server, {
    name: "long-chain",
    steps: [
      ...names.map((name, i) => ({
        name,
        needs: i > 0 ? [names[i - 1]] : undefined,
        job: scriptJob(i === 11 ? "echo 'no bank' >&2; exit 3" : "true"),
      })),
    ],
  });
  await page.goto(`/runs/${id}`);
  const card = page.getByRole("region", { name: "Why it failed" });
  await expect(card).toContainText("step-11");
  await expect(card).toContainText("exited with code 3");
  await expect(card.getByLabel("Last lines of the log")).toContainText("no bank");
  await expect(
    page.getByTestId("dag").getByRole("button", { name: "step-11: Failed" }),
    "the graph shows the failed step",
  ).toBeInViewport();
  await page.getByRole("tab", { name: "Steps" }).click();
  await expect(page.getByTestId("steps").getByRole("row").first()).toContainText("step-11");
  await card.getByRole("button", { name: "step-11" }).click();
  await expect(page.getByTestId("step-panel")).toContainText("step-11");
  await expect(page.getByTestId("log")).toContainText("no bank");
});

test("a failed mapped step is explained by its first failed element, a rejection by the user", async ({
  page,
  server,
}) => {
  const mapped = await runToEnd(server, {
    name: "mapped",
    steps: [
      {
        name: "load",
        for_each: { over: { items: ["eu", "us"] } },
        job: {
          run: { process: { script: 'echo "loads $R"; test $R = eu', env: { R: "${{ item }}" } } },
        },
      },
    ],
  });
  await page.goto(`/runs/${mapped}`);
  const card = page.getByTestId("failure");
  await expect(card).toContainText("element 1 (us)");
  await expect(card).toContainText("loads us");
  await card.getByRole("button", { name: "Show log" }).click();
  await expect(page.getByTestId("log")).toContainText("loads us");

  await server.call("PUT", "/api/v1/workflows/asks-twice", {
    name: "asks-twice",
    steps: [{ name: "gate", approval: {} }],
  });
  const { id } = await server.call<{ id: string }>("POST", "/api/v1/workflows/asks-twice/start", {});
  await page.goto(`/runs/${id}`);
  await expect(page.getByRole("main").getByText("Waiting for approval", { exact: true })).toBeVisible();
  await server.call("POST", `/api/v1/runs/${id}/steps/gate/reject`, { note: "not on a Friday" });
  await expect(card).toContainText("not on a Friday");
  await expect(card).toContainText("Ask the approver for the reason");
});

test("the card is in Chinese, and a run that timed out is explained without a step", async ({
  page,
  server,
}) => {
  const id = await runToEnd(server, {
    name: "too-slow",
    timeout: "500ms",
    steps: [{ name: "long", job: scriptJob("sleep 60", { grace: "100ms" }) }],
  });
  await page.addInitScript(() =>
    localStorage.setItem("belfry.preferences", JSON.stringify({ language: "zh-CN" })),
  );
  await page.goto(`/runs/${id}`);
  const card = page.getByRole("region", { name: "失败原因" });
  await expect(card).toContainText("运行实例超时");
  await expect(card).toContainText("请调大工作流的 timeout");
});
