/** F2, H1. Runtimes and sandboxes of jobs in the forms and on the pages of jobs and workers. */

import { createServer, type IncomingMessage, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";

import { expect, test } from "./fixtures";

interface Received {
  method: string;
  path: string;
  contentType: string;
  mark: string;
  body: string;
}

let target: HttpServer;
let url: string;
const received: Received[] = [];

test.beforeAll(async () => {
  target = createServer((request, response) => {
    void bodyOf(request).then((body) => {
      const { method = "", url: path = "", headers } = request;
      const contentType = headers["content-type"] ?? "";
      received.push({ method, path, contentType, mark: String(headers["x-mark"]), body });
      response.writeHead(path.startsWith("/broken") ? 500 : 200, { "content-type": "application/json" });
      response.end(JSON.stringify({ code: path.startsWith("/refused") ? 7 : 0 }));
    });
  });
  await new Promise<void>((resolve) => target.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(target.address() as AddressInfo).port}`;
});

test.afterAll(async () => {
  target.closeAllConnections();
  await new Promise((resolve) => target.close(resolve));
});

async function bodyOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts).toString();
}

test("an HTTP request is submitted with the form, and its page shows method, URL and response", async ({
  page,
}) => {
  await page.goto("/submit");
  await page.getByTestId("name").fill("call");
  await page.getByTestId("runtime").getByText("HTTP request").click();
  await expect(page.getByRole("textbox", { name: "Script" })).toHaveCount(0);
  await expect(page.getByTestId("submit"), "the URL is required").toBeDisabled();
  await page.getByTestId("url").fill(`${url}/orders`);
  await page.getByLabel("Headers, one per line").fill("X-Mark: a=b: c");
  await page.getByLabel("Body", { exact: true }).fill('{"job": "${BELFRY_JOB_ID}"}');
  await expect(page.getByRole("combobox", { name: "Method" }), "the default with a body").toHaveValue("POST");
  await page.getByRole("combobox", { name: "Method" }).click();
  await page.getByRole("option", { name: "PUT" }).click();
  await page.getByLabel("Success status codes").fill("200, 204");
  await page.getByLabel("Success condition").fill("body.code == 0");
  await page.getByTestId("submit").click();

  await expect(page.getByRole("heading", { name: "call" })).toBeVisible();
  await expect(page.locator("header").getByText("Succeeded")).toBeVisible();
  await expect(page.getByText(`PUT ${url}/orders`, { exact: true })).toBeVisible();
  await expect(page.getByText("HTTP request", { exact: true })).toBeVisible();
  await expect(page.getByTestId("log")).toContainText('{"code":0}');
  const id = page.url().split("/").at(-1)?.split("?")[0];
  expect(received.filter(({ path }) => path === "/orders")).toEqual([
    {
      method: "PUT",
      path: "/orders",
      contentType: "application/json",
      mark: "a=b: c",
      body: `{"job": "${id}"}`,
    },
  ]);
});

test("an unexpected response is explained, with advice and the response", async ({ page, server }) => {
  const broken = await server.submit({ name: "broken", run: { http: { url: `${url}/broken` } } });
  const http = { url: `${url}/refused`, success_if: "body.code == 0" };
  const refused = await server.submit({ name: "refused", run: { http } });
  const away = await server.submit({ name: "away", run: { http: { url: "http://127.0.0.1:9/" } } });
  for (const id of [broken, refused, away]) await server.waitForStatus(id, "failed");

  await page.goto(`/jobs/${broken}`);
  const card = page.getByRole("region", { name: "Why it failed" });
  await expect(card).toContainText("the response has status 500 Internal Server Error: expected 2xx");
  await expect(card).toContainText("Find the response in the log");
  await expect(card.getByLabel("Last lines of the log")).toContainText("< 500 Internal Server Error");
  await expect(page.getByText(`GET ${url}/broken`, { exact: true })).toBeVisible();
  await page.goto(`/jobs/${refused}`);
  await expect(card).toContainText("body.code == 0 is false");
  await page.goto(`/jobs/${away}`);
  await expect(card).toContainText("the worker can reach it");

  await page.addInitScript(() =>
    localStorage.setItem("belfry.preferences", JSON.stringify({ language: "zh-CN" })),
  );
  await page.goto(`/jobs/${broken}`);
  await expect(page.getByRole("region", { name: "失败原因" })).toContainText("响应的状态码是 500");
});

test("fields that only the file has are kept, and no field remains of another runtime", async ({
  page,
  server,
}) => {
  const poll = { url: `${url}/state`, interval: "2s" };
  const http = { url: `${url}/accepted`, outputs: { code: "body.code" }, poll };
  const id = await server.submit({ name: "kept", run: { http } });
  await server.waitForStatus(id, "succeeded");
  await page.goto(`/jobs/${id}`);
  await page.getByRole("link", { name: "Run with changes" }).click();
  await page.getByTestId("url").fill(`${url}/other`);
  await page.getByTestId("submit").click();
  await expect(page.getByText(`GET ${url}/other`, { exact: true })).toBeVisible();
  const again = page.url().split("/").at(-1)?.split("?")[0];
  const { spec } = await server.get<{ spec: { run: object } }>(`/api/v1/jobs/${again}`);
  expect(spec.run).toEqual({ http: { ...http, url: `${url}/other` } });

  await page.goto(`/submit?from=${id}`);
  await page.getByTestId("runtime").getByText("Container").click();
  await page.getByTestId("image").fill("alpine:3.20");
  await page.getByLabel("Entry point").fill("/bin/echo");
  await page.getByRole("textbox", { name: "Command" }).fill("-n 'a b'");
  const editor = page.locator(".cm-content");
  await expect(editor).toContainText('image: "alpine:3.20"');
  await expect(editor).not.toContainText("http");
  await page.getByTestId("runtime").getByText("Process").click();
  await expect(page.getByRole("textbox", { name: "Script" })).toHaveValue("echo hello\n");
  await expect(editor).not.toContainText("alpine");
});

test("the page of a container shows its image and command", async ({ page, server }) => {
  // No worker has the label, so that the test needs no container engine.
  const constraints = [{ label: "no-such-label", operator: "exists" }];
  const container = { image: "ghcr.io/team/app:1", command: ["load", "a b"], working_directory: "/data" };
  const id = await server.submit({ name: "boxed", run: { container }, constraints });
  await page.goto(`/jobs/${id}`);
  await expect(page.getByText("ghcr.io/team/app:1", { exact: true })).toBeVisible();
  await expect(page.getByText("load 'a b'", { exact: true })).toBeVisible();
  await page.getByRole("link", { name: "Run with changes" }).click();
  await page.getByRole("button", { name: "Container", exact: true }).click();
  await expect(page.getByLabel("Working directory")).toHaveValue("/data");
  await server.call("POST", `/api/v1/jobs/${id}/cancel`, {});
});

test("a sandbox is chosen in the form, is shown on the page, and leaves the rest of the job as it is", async ({
  page,
  server,
}) => {
  // No worker has the label, so that the test needs no sandbox on its machine.
  const constraints = [{ label: "no-such-label", operator: "exists" }];
  const process = { script: "ls /\n", env: { REGION: "eu" }, stdin: "x" };
  const id = await server.submit({ name: "boxed-process", run: { process }, constraints });
  await page.goto(`/submit?from=${id}`);
  const editor = page.locator(".cm-content");
  const sandbox = page.getByTestId("sandbox");
  const network = page.getByTestId("sandbox-network");
  const choose = async (field: typeof sandbox, option: string) => {
    await field.click();
    await page.getByRole("option", { name: option, exact: true }).click();
  };
  await expect(sandbox).toHaveValue("None");
  await expect(network).toHaveCount(0);
  await choose(sandbox, "Basic");
  await expect(network).toHaveValue("Default: Network of the worker");
  await expect(editor).toContainText("level: basic");
  await choose(network, "Loopback only");
  await choose(sandbox, "Strict");
  await expect(network, "a level keeps the network").toHaveValue("Loopback only");
  await expect(editor).toContainText("network: loopback");
  await choose(sandbox, "None");
  await expect(network).toHaveCount(0);
  await expect(editor).not.toContainText("sandbox");
  await choose(sandbox, "Strict");
  await expect(network).toHaveValue("Default: No network");
  await page.getByTestId("submit").click();

  await expect(page.getByRole("heading", { name: "boxed-process" })).toBeVisible();
  await expect(page).not.toHaveURL(new RegExp(id));
  const row = (name: string) =>
    page
      .locator("dl > div")
      .filter({ has: page.locator("dt", { hasText: new RegExp(`^${name}$`) }) })
      .locator("dd");
  await expect(row("Sandbox")).toHaveText("Strict");
  await expect(row("Network")).toHaveText("No network");
  const again = page.url().split("/").at(-1)?.split("?")[0];
  const { spec } = await server.get<{ spec: { run: object; constraints: object[] } }>(
    `/api/v1/jobs/${again}`,
  );
  expect(spec.run).toEqual({ process: { ...process, sandbox: { level: "strict" } } });
  expect(spec.constraints).toHaveLength(1);
  for (const job of [id, again]) await server.call("POST", `/api/v1/jobs/${job}/cancel`, {});
});

test("the forms of schedules and services have the sandbox too", async ({ page }) => {
  for (const [path, file] of [
    ["/schedules/new", "Schedule file"],
    ["/services/new", "Service file"],
  ] as const) {
    await page.goto(path);
    await page.getByTestId("sandbox").click();
    await page.getByRole("option", { name: "Basic", exact: true }).click();
    await expect(page.getByRole("textbox", { name: file }), path).toContainText("level: basic");
    await expect(page.getByTestId("sandbox-network"), path).toBeVisible();
  }
});

test("the page of a worker lists the sandboxes that it can create", async ({ page, server }) => {
  const { items } = await server.get<{
    items: Array<{ id: string; capabilities: { sandbox_levels?: string[] } }>;
  }>("/api/v1/workers");
  const levels = items[0]?.capabilities.sandbox_levels ?? [];
  const names: Record<string, string> = { basic: "Basic", strict: "Strict" };
  await page.goto(`/workers/${items[0]?.id}`);
  const row = page.locator("dl > div").filter({ has: page.getByText("Sandboxes", { exact: true }) });
  await expect(row.locator("dd")).toHaveText(levels.map((level) => names[level]).join(", ") || "None");
});
