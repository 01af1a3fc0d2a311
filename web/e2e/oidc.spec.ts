/** H2. Logins at an OpenID provider: an account, a refusal, roles of groups, and an invitation. */

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import AxeBuilder from "@axe-core/playwright";
import { expect, type Page, test as base } from "@playwright/test";

import { CLIENT_ID, CLIENT_SECRET, OidcProvider, type Person } from "./oidcProvider";
import { BINARY, Server } from "./server";

const EVE: Person = { sub: "person-1", email: "eve@example.com", name: "Eve 易", groups: ["devs"] };
const MAX: Person = { sub: "person-2", email: "max@example.com", name: "Max", groups: ["guests"] };

/** Returns a port that is free now. */
async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

interface Scene {
  server: Server;
  provider: OidcProvider;
}

const test = base.extend<object, { scene: Scene }>({
  scene: [
    async ({}, use) => {
      const address = `127.0.0.1:${await freePort()}`;
      const provider = await OidcProvider.start(`http://${address}`);
      const server = await Server.start(address, (folder) => {
        const secret = join(folder, "client-secret");
        writeFileSync(secret, CLIENT_SECRET);
        return {
          BELFRY_SERVER__PUBLIC_URL: `http://${address}`,
          BELFRY_SERVER__OIDC_ISSUER: provider.issuer,
          BELFRY_SERVER__OIDC_CLIENT_ID: CLIENT_ID,
          BELFRY_SERVER__OIDC_CLIENT_SECRET_FILE: secret,
          BELFRY_SERVER__OIDC_NAME: "Example",
          BELFRY_SERVER__OIDC_SCOPES: "openid,profile,email,groups",
          BELFRY_SERVER__OIDC_CREATE_ACCOUNTS: "true",
        };
      });
      await use({ server, provider });
      await server.dispose();
      await provider.stop();
    },
    { scope: "worker" },
  ],
  baseURL: async ({ scene }, use) => use(scene.server.url),
});

async function logIn(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Log in with Example" }).click();
}

test("a person logs in at the provider, is refused, and gets a role of a group on the open page", async ({
  page,
  scene: { server, provider },
}) => {
  provider.person = EVE;
  await page.goto("/jobs");
  await expect(page.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
  const scan = await new AxeBuilder({ page }).analyze();
  expect(scan.violations).toEqual([]);
  await logIn(page);
  await expect(page.getByTestId("user")).toContainText("Eve 易");
  expect(new URL(page.url()).pathname, "the page of before the login").toBe("/jobs");

  // Denied: the account has no role.
  const read = () => page.evaluate(async () => (await fetch("/api/v1/jobs?namespace=finance")).status);
  expect(await read()).toBe(403);
  const binding = { role: "viewer", group: "devs", namespace: "finance" };
  await server.call("PUT", "/api/v1/bindings", binding);
  await expect.poll(read).toBe(200);
  // A change stays denied.
  const create = () =>
    page.evaluate(async () => {
      const body = JSON.stringify({ namespace: "finance", run: { process: { command: ["true"] } } });
      const headers = { "content-type": "application/json", "x-belfry-csrf": "1" };
      return (await fetch("/api/v1/jobs", { method: "POST", headers, body })).status;
    });
  expect(await create()).toBe(403);
  await server.call("PUT", "/api/v1/bindings", { ...binding, role: "developer" });
  await expect.poll(create).toBe(201);
  const query = new URLSearchParams(binding).toString();
  await server.call("DELETE", `/api/v1/bindings?${query}`);
  await server.call("DELETE", `/api/v1/bindings?${query.replace("viewer", "developer")}`);
  await expect.poll(read).toBe(403);

  await page.reload();
  await page.getByTestId("user").click();
  await page.getByRole("menuitem", { name: "Log out" }).click();
  await expect(page.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
});

test("a refused login and a foreign name are explained in both languages", async ({
  page,
  scene: { server, provider },
}) => {
  provider.person = null;
  await page.goto("/");
  await logIn(page);
  await expect(page.getByRole("alert")).toContainText("The provider refused the login");
  expect(page.url(), "the reason leaves the address bar").toBe(`${server.url}/`);
  await page.getByRole("button", { name: "中文" }).click();
  await expect(page.getByRole("alert")).toContainText("身份提供方拒绝了登录");
  await page.getByRole("button", { name: "English" }).click();

  await server.call("POST", "/api/v1/accounts", { name: MAX.email, kind: "user" });
  provider.person = MAX;
  await logIn(page);
  await expect(page.getByRole("alert")).toContainText("an administrator for an invitation");
  await expect(page.getByTestId("user")).toBeHidden();

  // With an invitation, the account is his.
  const path = `/api/v1/accounts/${MAX.email}/invitation`;
  const { secret } = await server.call<{ secret: string }>("POST", path, {});
  await page.goto(`/#invite=${secret}`);
  await logIn(page);
  await expect(page.getByTestId("user")).toContainText(MAX.email);
});

test("an administrator sees the provider of an account, binds a role to a group, and unlinks the account", async ({
  browser,
  page,
  scene: { server, provider },
}) => {
  provider.person = { ...EVE, sub: "person-3", email: "ivy@example.com", groups: ["ops"] };
  await page.goto("/");
  await logIn(page);
  await expect(page.getByTestId("user")).toBeVisible();

  const context = await browser.newContext({ baseURL: server.url, reducedMotion: "reduce" });
  const admin = await context.newPage();
  await server.signIn(admin);
  await admin.goto("/access/roles/operator");
  await admin.getByRole("button", { name: "Bind to a group" }).click();
  const dialog = admin.getByRole("dialog");
  await dialog.getByLabel("Group").fill("ops");
  await dialog.getByLabel("Namespace").fill("web");
  await dialog.getByRole("button", { name: "Bind" }).click();
  await expect(admin.getByRole("list", { name: "Accounts and groups with this role" })).toContainText(
    "group ops",
  );

  await admin.goto("/access/accounts/ivy@example.com");
  await expect(admin.getByRole("list", { name: "Groups" })).toContainText("by group ops");
  await expect(admin.getByRole("main")).toContainText(provider.issuer);
  await admin.getByRole("button", { name: "Unlink from the provider" }).click();
  await admin.getByRole("dialog").getByRole("button", { name: "Unlink from the provider" }).click();
  await expect(admin.getByRole("main")).not.toContainText(provider.issuer);
  // The session on the other page has ended.
  await expect(page.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
  await context.close();
});

test("the command line logs in with the browser", async ({ page, scene: { server, provider } }) => {
  provider.person = { ...EVE, sub: "person-4", email: "cli@example.com" };
  const home = mkdtempSync(join(tmpdir(), "belfry-e2e-home-"));
  const env = { PATH: process.env.PATH, HOME: home };
  const login = spawn(BINARY, ["login", server.url, "--no-browser"], {
    env,
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  login.stderr.on("data", (bytes: Buffer) => (said += bytes.toString()));
  const ended = new Promise((resolve) => login.once("exit", resolve));
  await expect.poll(() => said).toContain("/api/v1/login/oidc/cli?");
  const link = /https?:\/\/\S+\/api\/v1\/login\/oidc\/cli\?\S+/.exec(said)?.[0] ?? "";
  await page.goto(link);
  await expect(page.getByRole("heading")).toContainText("You are logged in");
  expect(await ended, said).toBe(0);
  expect(said).toContain("as cli@example.com");
  const me = execFileSync(BINARY, ["auth", "whoami"], { env }).toString();
  expect(me).toContain("cli@example.com");
  // The browser itself has no session of the dashboard.
  await page.goto(server.url);
  await expect(page.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
  rmSync(home, { recursive: true });
});
