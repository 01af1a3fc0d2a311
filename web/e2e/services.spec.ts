/** Services in the dashboard: replicas, rollouts, revisions and endpoints. */

import type { Page } from "@playwright/test";

import { expect, test, useToken } from "./fixtures";
import { type Server, waitFor } from "./server";

interface Service {
  id: string;
  replicas: number;
  counts: { live: number; available: number };
  rollout: { revision: number; status: string };
}

const PORT_SERVER = `exec python3 -m http.server "$BELFRY_PORT_HTTP" --bind 127.0.0.1`;

/** Returns the spec of a service whose replicas are available as soon as they are healthy. */
function spec(name: string, script: string, more: object = {}, job: object = {}) {
  return { name, min_healthy: "0s", job: { run: { process: { script } }, ...job }, ...more };
}

async function apply(server: Server, body: { name: string }): Promise<void> {
  await server.call("PUT", `/api/v1/services/${body.name}`, body);
}

async function waitForAvailable(server: Server, name: string, count: number): Promise<void> {
  await waitFor(60_000, `${name} to have ${count} available replicas`, async () => {
    const { counts } = await server.get<Service>(`/api/v1/services/${name}`);
    return counts.available === count;
  });
}

const availability = (page: Page) => page.getByRole("main").getByTestId("availability").first();
const replicaRows = (page: Page) => page.getByTestId("replica-rows").getByRole("row");

test("a service is created by the form, scaled, updated, rolled back and deleted", async ({
  page,
  server,
}) => {
  await page.goto("/services");
  await expect(page.getByText("belfry apply -f service.yaml")).toBeVisible();
  await page.getByRole("link", { name: "New service" }).click();
  await page.getByTestId("name").fill("idle");
  await page.getByTestId("replicas").fill("2");
  await page.getByRole("textbox", { name: "Script", exact: true }).fill("exec sleep 1000");
  await page.getByTestId("min-healthy").fill("0s");
  await expect(page.getByTestId("effect")).toHaveText("The service idle is created.");
  await page.getByTestId("save").click();

  await expect(page).toHaveURL(/\/services\/default\/idle$/);
  await expect(availability(page)).toHaveText("2/2Available");
  await expect(replicaRows(page)).toHaveCount(2);
  await expect(replicaRows(page).first()).toContainText("Healthy");
  await expect(page.getByTestId("rollout")).toContainText("2 of 2 available");

  await page.getByRole("button", { name: "Scale" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "Replicas" }).fill("3");
  await dialog.getByRole("button", { name: "Scale" }).click();
  await expect(availability(page)).toHaveText("3/3Available");
  await expect(replicaRows(page)).toHaveCount(3);

  await page.getByRole("link", { name: "Edit" }).click();
  // The edit keeps the current number of replicas.
  await expect(page.getByTestId("replicas")).toHaveValue("3");
  await expect(page.getByTestId("effect")).toContainText("no replica is restarted");
  await page.getByRole("textbox", { name: "Script", exact: true }).fill("exec sleep 2000");
  await expect(page.getByTestId("effect")).toContainText("Revision 2 is created");
  await page.getByTestId("save").click();
  await expect(page).toHaveURL(/\/services\/default\/idle$/);
  await waitFor(60_000, "the rollout of revision 2", async () => {
    const { rollout } = await server.get<Service>("/api/v1/services/idle");
    return rollout.revision === 2 && rollout.status === "completed";
  });
  await expect(replicaRows(page)).toHaveCount(3);
  await expect(availability(page)).toHaveText("3/3Available");

  await page.getByRole("tab", { name: "Revisions" }).click();
  const revisions = page.getByTestId("revision-rows");
  await revisions.getByRole("button", { name: "Revision 2", exact: true }).click();
  await expect(page).toHaveURL(/revision=2/);
  await expect(revisions).toContainText("exec sleep 2000");
  await revisions.getByRole("button", { name: "Roll back to revision 1" }).click();
  await expect(dialog.getByRole("combobox", { name: "Revision" })).toHaveValue("Revision 1");
  await dialog.getByRole("button", { name: "Roll back" }).click();
  await expect(revisions).toContainText("Rolled back · Revision 1");
  await expect(revisions.getByRole("button", { name: "Revision 3", exact: true })).toBeVisible();
  await waitForAvailable(server, "idle", 3);

  await page.getByRole("tab", { name: "Jobs" }).click();
  await page.getByRole("main").getByRole("link", { name: "All jobs of the service" }).click();
  await expect(page).toHaveURL(/\/jobs\?service=svc_/);
  await expect(page.getByTestId("job-rows").getByRole("row").first()).toContainText("idle");

  await page.goto("/services/default/idle");
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(page).toHaveURL(/\/services$/);
  await expect(page.getByText("No services yet")).toBeVisible();
});

test("a replica shows its health, its ports and its service", async ({ page, server }) => {
  const job = {
    ports: [{ name: "http" }],
    health: { readiness: { http: { port: "http" }, interval: "1s" } },
  };
  await apply(server, spec("web", PORT_SERVER, { labels: { team: "shop" }, owner: "shop" }, job));
  await waitForAvailable(server, "web", 1);
  await page.goto("/services");
  const row = page.getByTestId("service-rows").getByRole("row", { name: /^web / });
  await expect(row).toContainText("1/1");
  await expect(row).toContainText("Available");
  await expect(row).toContainText("shop");
  await row.getByRole("button", { name: "team=shop" }).click();
  await expect(page).toHaveURL(/label=team%3Dshop/);
  await row.getByRole("link", { name: "web" }).click();
  await expect(replicaRows(page)).toContainText("http");

  await page.getByRole("tab", { name: "Endpoints" }).click();
  await expect(page.getByTestId("endpoint-rows").getByRole("row")).toHaveCount(1);
  await expect(page.getByTestId("endpoint-rows")).toContainText(/:\d+/);

  await page.getByRole("tab", { name: "Replicas" }).click();
  await replicaRows(page).first().getByRole("link", { name: "Log" }).click();
  await expect(page.getByTestId("replica-of")).toHaveText("Replica 0 of service web, revision 1");
  await expect(page.getByTestId("health")).toContainText("Healthy");
  await page.getByTestId("replica-of").getByRole("link", { name: "web" }).click();
  await expect(page).toHaveURL(/\/services\/default\/web$/);
});

test("a replica that exits is restarted, and the page says why the service is degraded", async ({
  page,
  server,
}) => {
  const more = { replicas: 1, restart_backoff: { initial: "1m" } };
  await apply(server, spec("crash", "echo broken; exit 3", more));
  await page.goto("/services/default/crash");
  await expect(availability(page)).toHaveText("0/1Unavailable");
  const why = page.getByTestId("service-why");
  await expect(why).toContainText("0 of 1 replica is available");
  await expect(why).toContainText("Restarting");
  await expect(why).toContainText("exited with code 3");
  await expect(replicaRows(page)).toContainText("Restarting");
});

test("canaries await a promotion, and a paused rollout is resumed", async ({ page, server }) => {
  const update = { canaries: 1 };
  await apply(server, spec("shop", "exec sleep 1000", { replicas: 2, update }));
  await waitForAvailable(server, "shop", 2);
  await apply(server, spec("shop", "exec sleep 2000", { replicas: 2, update }));
  await page.goto("/");
  await page.getByText("Service shop: revision 2 awaits promotion").click();
  await expect(page.getByTestId("service-why")).toContainText("The canaries of revision 2 are available");
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name: "Pause rollout" }).click();
  await expect(page.getByTestId("service-why")).toContainText("is paused");
  await page.getByRole("button", { name: "Resume rollout" }).click();
  await page.getByRole("button", { name: "Promote" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Promote" }).click();
  await expect(page.getByTestId("service-why")).toHaveCount(0);
  await expect(page.getByTestId("rollout")).toContainText("2 of 2 available");
});

test("an automatically scaled service shows its limits, its last change, and why a metric has no value", async ({
  page,
  server,
}) => {
  await server.call("PUT", "/api/v1/queues/reports", { paused: true });
  const job = { queue: "reports", run: { process: { command: ["true"] } } };
  await server.call("POST", "/api/v1/jobs", { jobs: [job, job, job] });
  const queue = { name: "reports", jobs_per_replica: 1 };
  // Port 9 discards, and no program listens there.
  const query = { url: "http://127.0.0.1:9", query: "sum(load)", per_replica: 10 };
  const scaling = { max: 3, metrics: [{ queue }, { query }] };
  await apply(server, spec("consumer", "exec sleep 1000", { scaling }));
  await waitForAvailable(server, "consumer", 3);
  await page.goto("/services/default/consumer");
  await expect(availability(page)).toHaveText("3/3Available");
  await expect(page.getByText("1 to 3 replicas")).toBeVisible();
  await expect(page.getByText("1 → 3; queue: 3")).toBeVisible();
  const why = page.getByTestId("service-why");
  await expect(why).toContainText("has no value: scaling.metrics[1]: Prometheus does not answer");
  await expect(page.getByRole("button", { name: "Scale" })).toHaveCount(0);
  await page.getByRole("link", { name: "Edit" }).click();
  await expect(page.getByTestId("replicas")).toBeDisabled();
});

test("a job that requires a service and a volume says what it waits for, and starts with its service", async ({
  page,
  server,
}) => {
  const run = { process: { command: ["true"] } };
  const requires = [{ service: "required", min_available: 1 }];
  const waiting = await server.submit({ name: "needs-both", run, requires, volumes: [{ name: "data" }] });
  await page.goto(`/jobs/${waiting}`);
  const why = page.getByTestId("why");
  await expect(why).toContainText("The job waits for a service that it requires:");
  await expect(why).toContainText("does not exist");
  await expect(why).toContainText("no volume data");
  const details = page.getByRole("complementary");
  await expect(details.getByText("Required services")).toBeVisible();
  await expect(details.getByRole("link", { name: "required" })).toHaveAttribute(
    "href",
    "/services/default/required",
  );

  const job = await server.submit({ name: "needs-service", run, requires });
  await apply(server, spec("required", "exec sleep 1000"));
  await page.goto(`/jobs/${job}`);
  await expect(page.getByRole("main").getByText("Succeeded", { exact: true }).first()).toBeVisible();
  await server.call("DELETE", "/api/v1/services/required");
});

test("a viewer sees a service without its actions", async ({ server, browser }) => {
  await apply(server, spec("seen", "exec sleep 1000"));
  await server.call("POST", "/api/v1/accounts", { name: "reader", kind: "user" });
  await server.call("PUT", "/api/v1/bindings", { account: "reader", role: "viewer", namespace: "*" });
  const body = { account: "reader" };
  const { secret } = await server.call<{ secret: string }>("POST", "/api/v1/tokens", body);
  const context = await browser.newContext({ baseURL: server.url, reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.goto("/");
  await useToken(page);
  await page.getByTestId("token").fill(secret);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await page.getByRole("link", { name: "Services", exact: true }).click();
  await expect(page.getByTestId("service-rows")).toContainText("seen");
  await expect(page.getByRole("link", { name: "New service" })).toHaveCount(0);
  await page.goto("/services/default/seen");
  await expect(replicaRows(page)).toHaveCount(1);
  await expect(page.getByRole("button", { name: "Scale" })).toHaveCount(0);
  await expect(page.getByRole("link", { name: "Edit" })).toHaveCount(0);
  await page.getByRole("button", { name: "More actions" }).click();
  await expect(page.getByRole("menuitem", { name: "All jobs of the service" })).toBeVisible();
  await expect(page.getByRole("menuitem", { name: "Delete" })).toHaveCount(0);
  await context.close();
});
