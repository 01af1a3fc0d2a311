/** Access control: accounts, roles and tokens, and what the dashboard offers to callers with few rights. */

import type { Browser, Locator, Page } from "@playwright/test";

import { expect, script, test, useToken } from "./fixtures";
import type { Server } from "./server";

/** Opens the dashboard in another browser context, and signs in with a token. */
async function signInWith(browser: Browser, server: Server, token: string): Promise<Page> {
  const context = await browser.newContext({ baseURL: server.url, reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.goto("/");
  await useToken(page);
  await page.getByTestId("token").fill(token);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  return page;
}

/** Creates an account with a token, and roles in namespaces. */
async function account(
  server: Server,
  name: string,
  ...roles: Array<[role: string, namespace: string]>
): Promise<string> {
  await server.call("POST", "/api/v1/accounts", { name, kind: "user" });
  for (const [role, namespace] of roles) {
    await server.call("PUT", "/api/v1/bindings", { account: name, role, namespace });
  }
  return (await server.call<{ secret: string }>("POST", "/api/v1/tokens", { account: name })).secret;
}

async function bind(page: Page, role: string, namespace: string): Promise<void> {
  await page.getByRole("button", { name: "Bind a role" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("combobox", { name: "Role" }).click();
  await page.getByRole("option", { name: role, exact: true }).click();
  await dialog.getByRole("combobox", { name: "Namespace" }).fill(namespace);
  await dialog.getByRole("button", { name: "Bind a role" }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page.getByTestId("binding-rows").getByRole("row").filter({ hasText: role })).toContainText(
    namespace,
  );
}

function places(page: Page): Locator {
  return page.getByRole("navigation", { name: "Main" });
}

test("an account sees its namespace, follows changes of its roles, and loses its token", async ({
  page,
  server,
  browser,
}) => {
  const job = await server.submit(script("slow-report", "sleep 300", { namespace: "team" }));
  await server.submit(script("secret-job", "true", { namespace: "other" }));
  await server.waitForStatus(job, "running");

  await page.goto("/access");
  await page.getByRole("button", { name: "New account" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "Name", exact: true }).fill("ann@example.com");
  await dialog.getByRole("textbox", { name: "Display name" }).fill("Ann 安");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/access\/accounts\/ann/);
  await bind(page, "viewer", "team");

  await page.getByRole("button", { name: "New token" }).click();
  await dialog.getByRole("textbox", { name: "Description" }).fill("laptop");
  await dialog.getByRole("button", { name: "Create" }).click();
  await expect(dialog).toContainText("It is not shown again");
  const secret = (await page.getByTestId("secret").locator("pre").textContent()) ?? "";
  expect(secret).toMatch(/^bf_user_/);
  await page.keyboard.press("Escape");
  await expect(dialog, "the secret is not lost by accident").toBeVisible();
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(page.getByTestId("token-rows")).toContainText("laptop");

  const other = await signInWith(browser, server, secret);
  await expect(other.getByTestId("user")).toContainText("Ann 安");
  await expect(places(other).getByRole("link", { name: "Jobs" })).toBeVisible();
  await expect(places(other).getByRole("link", { name: "Access" })).toHaveCount(0);
  await expect(other.getByRole("link", { name: "Submit a job" })).toHaveCount(0);
  await expect(other.getByRole("alert"), "the overview shows no error").toHaveCount(0);
  await places(other).getByRole("link", { name: "Jobs" }).click();
  await expect(other.getByTestId("job-rows")).toContainText("slow-report");
  await expect(other.getByTestId("job-rows")).not.toContainText("secret-job");
  await other.getByRole("link", { name: "slow-report" }).click();
  await expect(other.getByRole("heading", { name: "slow-report" })).toBeVisible();
  await expect(other.getByRole("button", { name: "Cancel" })).toHaveCount(0);

  await other.keyboard.press("Control+k");
  const palette = other.getByRole("listbox");
  await expect(palette.getByRole("option", { name: "Overview" })).toBeVisible();
  await expect(palette.getByRole("option", { name: /Cancel|Submit|Access/ })).toHaveCount(0);
  await other.keyboard.press("Escape");

  // The open page follows a change of the roles.
  await bind(page, "operator", "team");
  await expect(other.getByRole("button", { name: "Cancel" })).toBeVisible();
  await page.getByRole("button", { name: "Unbind operator in team" }).click();
  await dialog.getByRole("button", { name: "Unbind" }).click();
  await expect(other.getByRole("button", { name: "Cancel" })).toHaveCount(0);
  await page.getByRole("button", { name: "Unbind viewer in team" }).click();
  await dialog.getByRole("button", { name: "Unbind" }).click();
  await expect(other.getByRole("heading", { name: "This account has no role yet" })).toBeVisible();
  await expect(other.getByText("slow-report")).toHaveCount(0);
  await bind(page, "operator", "team");
  await expect(other.getByRole("heading", { name: "slow-report" })).toBeVisible();
  await other.getByRole("button", { name: "Cancel" }).click();
  await other.getByRole("dialog").getByRole("button", { name: "Cancel job" }).click();
  await server.waitForStatus(job, "cancelled");

  const token = page.getByTestId("token-rows").getByRole("row").filter({ hasText: "laptop" });
  await token.getByRole("button", { name: /^Revoke token/ }).click();
  await dialog.getByRole("button", { name: "Revoke" }).click();
  await expect(token).toContainText("Revoked");
  await expect(other.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
  await other.context().close();
});

test("an account without a role sees what to do, and manages its own tokens", async ({ server, browser }) => {
  const page = await signInWith(browser, server, await account(server, "newcomer"));
  await expect(page.getByRole("heading", { name: "This account has no role yet" })).toBeVisible();
  await expect(page.getByText("Ask an administrator for a role")).toBeVisible();
  await expect(places(page).getByRole("link")).toHaveText(["Settings"]);
  await page.getByTestId("user").click();
  await page.getByRole("menuitem", { name: "Tokens" }).click();
  await expect(page.getByTestId("token-rows").getByRole("row")).toHaveCount(1);
  await page.getByRole("button", { name: "New token" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "Description" }).fill("for CI");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(page.getByTestId("token-rows").getByRole("row")).toHaveCount(2);
  const row = page.getByTestId("token-rows").getByRole("row").filter({ hasText: "for CI" });
  await row.getByRole("button", { name: /^Revoke token/ }).click();
  await dialog.getByRole("button", { name: "Revoke" }).click();
  await expect(page.getByTestId("token-rows").getByRole("row")).toHaveCount(1);
  await page.context().close();
});

test("a caller with roles in two namespaces sees no error on any page", async ({ server, browser }) => {
  const secret = await account(server, "two", ["viewer", "team"], ["developer", "finance"]);
  for (const namespace of ["team", "finance", "other"]) {
    await server.submit(script(`of-${namespace}`, "true", { namespace }));
  }
  const page = await signInWith(browser, server, secret);
  await expect(places(page).getByRole("link", { name: "Jobs" })).toBeVisible();
  const workers = await server.get<{ items: Array<{ id: string }> }>("/api/v1/workers");
  const denied: string[] = [];
  page.on("response", (response) => {
    if (response.status() === 403) denied.push(response.url());
  });
  for (const path of [
    ...["/", "/jobs", "/failures", "/schedules", "/schedules/timetable", "/calendars", "/workflows", "/runs"],
    ...["/workers", `/workers/${workers.items[0]?.id}`, "/servers", "/queues", "/artifacts", "/events"],
    ...["/namespaces", "/submit", "/tokens", "/settings"],
  ]) {
    await page.goto(path);
    await expect(page.locator("main h1").first()).toBeVisible();
    await expect(page.getByLabel("Loading", { exact: true })).toHaveCount(0);
    await expect(page.getByText("Checking …")).toHaveCount(0);
    await expect(page.locator("main").getByRole("alert"), path).toHaveCount(0);
  }
  expect(denied).toEqual([]);
  await page.goto("/access");
  await expect(page.getByRole("heading", { name: "No permission" })).toBeVisible();

  await page.goto("/jobs");
  await page.getByRole("combobox", { name: "Namespace of the lists" }).click();
  await expect(page.getByRole("option")).toHaveText(["All namespaces", "finance", "team"]);
  await page.context().close();
});

test("an administrator defines a role, and disables and deletes an account", async ({ page, server }) => {
  await account(server, "robot", ["viewer", "*"]);
  await page.goto("/access/roles");
  await page.getByRole("link", { name: "New role" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("starter");
  await page.getByRole("textbox", { name: "Description" }).fill("Starts jobs");
  await page.getByRole("checkbox", { name: "Read: Jobs and failure groups" }).check();
  await page.getByRole("checkbox", { name: "Operate: Jobs and failure groups" }).check();
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page).toHaveURL(/\/access\/roles\/starter$/);
  const row = page.getByRole("row").filter({ hasText: "Jobs and failure groups" });
  await expect(row.getByLabel("yes")).toHaveCount(2);

  await page.goto("/access?text=robot");
  await page.getByRole("link", { name: "robot" }).click();
  await page.getByRole("button", { name: "Disable" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Disable" }).click();
  await expect(page.getByRole("button", { name: "Enable" })).toBeVisible();
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(page).toHaveURL(/\/access$/);
  await expect(page.locator("main").getByText("robot")).toHaveCount(0);

  await page.goto("/access/roles/starter");
  await page.getByRole("button", { name: "Delete" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(page).toHaveURL(/\/access\/roles$/);
  await expect(page.getByTestId("role-rows")).not.toContainText("starter");
});

test("without the right to read events, the page is refreshed regularly", async ({ server, browser }) => {
  const rules = [{ verbs: ["read"], resources: ["jobs", "executions"] }];
  await server.call("PUT", "/api/v1/roles/reader", { rules });
  const job = await server.submit(script("polled", "sleep 300", { namespace: "team" }));
  await server.waitForStatus(job, "running");
  const page = await signInWith(browser, server, await account(server, "reader", ["reader", "team"]));
  await expect(page.getByText("Polling")).toBeVisible();
  await expect(places(page).getByRole("link")).toHaveText(["Overview", /^Jobs/, "Failures", "Settings"]);
  await expect(page.getByRole("alert"), "the overview shows no error").toHaveCount(0);
  await expect(page.getByRole("link", { name: /polled/ }).first()).toBeVisible();
  await page.goto(`/jobs/${job}`);
  await expect(page.getByRole("heading", { name: "polled" })).toBeVisible();
  await expect(page.getByRole("button", { name: "Cancel" })).toHaveCount(0);
  await server.call("PUT", "/api/v1/bindings", { account: "reader", role: "operator", namespace: "team" });
  await expect(page.getByRole("button", { name: "Cancel" })).toBeVisible();
  await expect(page.getByText("Live", { exact: true })).toBeVisible();
  await server.call("POST", `/api/v1/jobs/${job}/cancel`, {});
  await expect(page.getByRole("button", { name: "Retry" })).toBeVisible();
  await page.context().close();
});

test("an administrator of a namespace binds roles in it, and nothing else", async ({ server, browser }) => {
  await account(server, "member");
  const page = await signInWith(browser, server, await account(server, "lead", ["admin", "team"]));
  await places(page).getByRole("link", { name: "Access" }).click();
  await expect(page.getByRole("button", { name: "New account" })).toHaveCount(0);
  const tabs = page.getByRole("navigation", { name: "Access" });
  await expect(tabs.getByRole("link")).toHaveText(["Accounts", "Roles", "Audit log"]);
  await page.getByRole("link", { name: "member" }).click();
  await expect(page.getByRole("heading", { name: "Tokens" })).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Disable" })).toHaveCount(0);
  await bind(page, "viewer", "team");
  await page.getByRole("button", { name: "Bind a role" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("combobox", { name: "Role" }).click();
  await page.getByRole("option", { name: "viewer", exact: true }).click();
  await dialog.getByRole("combobox", { name: "Namespace" }).fill("other");
  await dialog.getByRole("button", { name: "Bind a role" }).click();
  await expect(dialog.getByRole("alert")).toContainText("`lead` may not change access in namespace `other`");
  await page.context().close();
});

test("the audit log shows who changed what, and who was denied", async ({ page, server }) => {
  const secret = await account(server, "audited@example.com", ["viewer", "team"]);
  const calendar = { name: "closed", namespace: "team", steps: [{ include: { all: {} } }] };
  await server.call("PUT", "/api/v1/calendars/closed?namespace=team", calendar);
  const changed = { ...calendar, description: "Closed for good" };
  await server.call("PUT", "/api/v1/calendars/closed?namespace=team", changed);
  const denied = await fetch(`${server.url}/api/v1/queues/mail`, {
    method: "DELETE",
    headers: { authorization: `Bearer ${secret}` },
  });
  expect(denied.status).toBe(403);

  await page.goto("/access");
  await page.getByRole("link", { name: "Audit log" }).click();
  const rows = page.getByTestId("audit-rows");
  await expect(rows).toContainText("delete_queue");
  await page.getByRole("button", { name: "Denied" }).click();
  // Other tests of this file are denied things too, on the same server.
  await expect(rows.getByRole("row").filter({ hasNotText: "denied" })).toHaveCount(0);
  await expect(rows.getByRole("row").filter({ hasText: "audited@example.com" })).toHaveCount(1);
  await page.getByRole("button", { name: "Denied" }).click();

  await page.getByRole("textbox", { name: "Object" }).fill("closed");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/object=closed/);
  await expect(rows.getByRole("row")).toHaveCount(2);
  await rows.getByRole("button").first().click();
  await expect(rows.getByRole("listitem")).toContainText("Closed for good");
});
