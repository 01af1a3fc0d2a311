/** H2. Logins with passwords: an invitation, the login page, the change of a password, and the end of sessions. */

import { createHmac } from "node:crypto";

import AxeBuilder from "@axe-core/playwright";
import type { Browser, Page } from "@playwright/test";

import { expect, test } from "./fixtures";
import type { Server } from "./server";

const PASSWORD = "correct horse battery staple";

/** Opens a page in another browser context, without a session. */
async function visitor(browser: Browser, server: Server): Promise<Page> {
  const context = await browser.newContext({ baseURL: server.url, reducedMotion: "reduce" });
  return context.newPage();
}

/** Creates an account with a role, and returns the fragment of its invitation. */
async function invited(server: Server, name: string): Promise<string> {
  await server.call("POST", "/api/v1/accounts", { name, kind: "user" });
  await server.call("PUT", "/api/v1/bindings", { account: name, role: "viewer", namespace: "*" });
  return invite(server, name);
}

async function invite(server: Server, name: string): Promise<string> {
  const path = `/api/v1/accounts/${name}/invitation`;
  const { secret } = await server.call<{ secret: string }>("POST", path, {});
  return `/#invite=${secret}`;
}

/** Uses an invitation in a page. */
async function accept(page: Page, link: string, password: string): Promise<void> {
  await page.goto(link);
  await page.getByLabel("New password").fill(password);
  await page.getByLabel("Repeat the password").fill(password);
  await page.getByRole("button", { name: "Set the password and log in" }).click();
  await expect(page.getByTestId("user")).toBeVisible();
}

async function logIn(page: Page, account: string, password: string): Promise<void> {
  await page.getByRole("textbox", { name: "Account" }).fill(account);
  await page.getByRole("textbox", { name: "Password" }).fill(password);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
}

async function logOut(page: Page): Promise<void> {
  await page.getByTestId("user").click();
  await page.getByRole("menuitem", { name: "Log out" }).click();
  await expect(page.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
}

test("an administrator invites a person, who chooses a password, logs out and logs in", async ({
  page,
  server,
  browser,
}) => {
  await server.call("POST", "/api/v1/accounts", { name: "ann@example.com", kind: "user", title: "Ann 安" });
  await page.goto("/access/accounts/ann@example.com");
  await page.getByRole("button", { name: "Invite" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Create the link" }).click();
  await expect(dialog).toContainText("It is not shown again");
  const link = (await page.getByTestId("link").locator("pre").textContent()) ?? "";
  expect(link).toContain(`${server.url}/#invite=bf_invite_`);
  await page.keyboard.press("Escape");
  await expect(dialog, "the link is not lost by accident").toBeVisible();
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(page.getByRole("complementary").last()).toContainText("valid until");

  const ann = await visitor(browser, server);
  const asked: string[] = [];
  ann.on("request", (request) => asked.push(request.url()));
  await ann.goto(link);
  await expect(ann.getByRole("heading", { name: "Choose your password" })).toBeVisible();
  await expect(ann.getByRole("main")).toContainText("Ann 安");
  expect(ann.url(), "the secret leaves the address bar").toBe(`${server.url}/`);
  const button = ann.getByRole("button", { name: "Set the password and log in" });
  await ann.getByLabel("New password").fill("short");
  await expect(button).toBeDisabled();
  await ann.getByLabel("New password").fill("passwordpassword");
  await ann.getByLabel("Repeat the password").fill("passwordpassworD");
  await expect(ann.getByRole("main")).toContainText("The two passwords differ.");
  await expect(button).toBeDisabled();
  await ann.getByLabel("Repeat the password").fill("passwordpassword");
  await button.click();
  await expect(ann.getByRole("alert")).toContainText("too common");
  await ann.getByLabel("New password").fill(PASSWORD);
  await ann.getByLabel("Repeat the password").fill(PASSWORD);
  await button.click();
  await expect(ann.getByTestId("user")).toContainText("Ann 安");
  expect(asked.join("\n"), "no address contains the secret").not.toContain("bf_invite_");
  const cookies = await ann.context().cookies();
  expect(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite])).toEqual([
    [true, "Strict"],
    [true, "Strict"],
  ]);

  await logOut(ann);
  await logIn(ann, "ann@example.com", "wrong wrong wrong");
  await expect(ann.getByRole("alert")).toContainText("The account or the password is wrong");
  await logIn(ann, "ann@example.com", PASSWORD);
  await expect(ann.getByTestId("user")).toContainText("Ann 安");
  await ann.reload();
  await expect(ann.getByTestId("user")).toContainText("Ann 安");

  await page.goto("/access");
  const row = page.getByTestId("account-rows").getByRole("row").filter({ hasText: "ann@example.com" });
  // The times of the last login and of the creation; without a login, the first one is missing.
  await expect(row).toContainText(/(now|ago).*(now|ago)$/);
  const audit = await server.get<{ items: Array<{ action: string; outcome: string; actor: string }> }>(
    "/api/v1/audit?limit=20",
  );
  const logins = audit.items.filter(({ actor }) => actor === "ann@example.com");
  expect(logins.map(({ action, outcome }) => `${action} ${outcome}`)).toEqual(
    expect.arrayContaining(["accept_invitation allowed", "log_in denied", "log_in allowed"]),
  );
  await ann.context().close();
});

test("a used or invalid link says so, and leads to the login page", async ({ server, browser }) => {
  const link = await invited(server, "bob");
  const bob = await visitor(browser, server);
  await accept(bob, link, PASSWORD);
  const other = await visitor(browser, server);
  for (const broken of [link, "/#invite=bf_invite_wrong"]) {
    await other.goto("about:blank");
    await other.goto(broken);
    await expect(other.getByRole("alert")).toContainText("This invitation is not valid");
    await other.getByRole("button", { name: "Go to the login page" }).click();
    await expect(other.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
  }
  await bob.context().close();
  await other.context().close();
});

test("a person changes the password, and the other sessions end", async ({ server, browser }) => {
  const link = await invited(server, "carol");
  const [one, other] = [await visitor(browser, server), await visitor(browser, server)];
  await accept(one, link, PASSWORD);
  await other.goto("/");
  await logIn(other, "carol", PASSWORD);
  await expect(other.getByTestId("user")).toContainText("carol");
  await one.getByTestId("user").click();
  await one.getByRole("menuitem", { name: "Change password" }).click();
  const dialog = one.getByRole("dialog");
  await dialog.getByLabel("Current password").fill("not my password");
  await dialog.getByLabel("New password").fill("four other random words");
  await dialog.getByRole("button", { name: "Change password" }).click();
  await expect(dialog.getByRole("alert")).toContainText("The current password is wrong");
  await dialog.getByLabel("Current password").fill(PASSWORD);
  await dialog.getByRole("button", { name: "Change password" }).click();
  await expect(dialog).toHaveCount(0);
  await expect(other.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
  await one.reload();
  await expect(one.getByTestId("user")).toContainText("carol");
  await logOut(one);
  await logIn(one, "carol", PASSWORD);
  await expect(one.getByRole("alert")).toContainText("wrong");
  await logIn(one, "carol", "four other random words");
  await expect(one.getByTestId("user")).toContainText("carol");
  await one.context().close();
  await other.context().close();
});

test("an administrator ends the sessions and the password of an account, on the open page", async ({
  page,
  server,
  browser,
}) => {
  const link = await invited(server, "dave");
  const dave = await visitor(browser, server);
  await accept(dave, link, PASSWORD);
  await page.goto("/access/accounts/dave");
  const card = page.getByRole("complementary").last();
  await card.getByRole("button", { name: "Log out everywhere" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Log out everywhere" }).click();
  await expect(dave.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
  await logIn(dave, "dave", PASSWORD);
  await expect(dave.getByTestId("user")).toContainText("dave");

  await page.reload();
  await card.getByRole("button", { name: "Reset password" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Delete the current password now").check();
  await dialog.getByRole("button", { name: "Create the link" }).click();
  const fresh = (await page.getByTestId("link").locator("pre").textContent()) ?? "";
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(dave.getByRole("heading", { name: "Log in to Belfry" })).toBeVisible();
  await logIn(dave, "dave", PASSWORD);
  await expect(dave.getByRole("alert")).toContainText("wrong");
  await expect(card).toContainText("no password");
  await card.getByRole("button", { name: "Revoke the link" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke the link" }).click();
  await expect(card.getByRole("button", { name: "Invite" })).toBeVisible();
  await dave.goto("about:blank");
  await dave.goto(fresh);
  await expect(dave.getByRole("alert")).toContainText("This invitation is not valid");
  await dave.context().close();
});

test("the pages before the login pass the axe checks, in both languages and themes", async ({
  server,
  browser,
}) => {
  const link = await invited(server, "eve");
  for (const [language, colorScheme] of [
    ["en", "light"],
    ["zh-CN", "dark"],
    ["en", "dark"],
    ["zh-CN", "light"],
  ] as const) {
    const context = await browser.newContext({ baseURL: server.url, colorScheme, reducedMotion: "reduce" });
    await context.addInitScript((language) => {
      localStorage.setItem("belfry.preferences", JSON.stringify({ language }));
    }, language);
    const page = await context.newPage();
    const shown = async (path: string, name: string) => {
      await page.goto("about:blank");
      await page.goto(path);
      await expect(page.getByRole("heading")).toBeVisible();
      await expect(page.getByRole("textbox").first()).toBeVisible();
      const { violations } = await new AxeBuilder({ page }).analyze();
      expect(violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`)).toEqual([]);
      if (process.env.SHOTS)
        await page.screenshot({ path: `${process.env.SHOTS}/${name}-${language}-${colorScheme}.png` });
    };
    await shown("/", "login");
    await shown(link, "invitation");
    await context.close();
  }
});

/** Returns the code of a secret at a time (RFC 6238). */
function totp(secret: string, atMs: number): string {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  const bits = Array.from(secret, (digit) => alphabet.indexOf(digit).toString(2).padStart(5, "0")).join("");
  const key = Buffer.from(bits.match(/.{8}/g)?.map((byte) => parseInt(byte, 2)) ?? []);
  const step = Buffer.alloc(8);
  step.writeBigUInt64BE(BigInt(Math.floor(atMs / 30_000)));
  const tag = createHmac("sha1", key).update(step).digest();
  const offset = (tag.at(-1) ?? 0) & 0xf;
  return String((tag.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, "0");
}

test("a person turns on the second factor, and logs in with a code and with a recovery code", async ({
  server,
  browser,
}) => {
  const page = await visitor(browser, server);
  await accept(page, await invited(server, "tina"), PASSWORD);
  await page.getByTestId("user").click();
  await page.getByRole("menuitem", { name: "Turn on the second factor" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Current password").fill(PASSWORD);
  await dialog.getByRole("button", { name: "Continue" }).click();
  await expect(dialog.getByRole("img", { name: "QR code of the secret" })).toBeVisible();
  const secret = (await page.getByTestId("totp-secret").locator("pre").textContent())?.trim() ?? "";
  expect(secret).toMatch(/^[A-Z2-7]{32}$/);
  await dialog.getByLabel("Code", { exact: true }).fill("000000");
  await dialog.getByRole("button", { name: "Turn on" }).click();
  await expect(dialog.getByRole("alert")).toContainText("The code is wrong");
  // The code of the step before, so that the present one can be used for the login.
  await dialog.getByLabel("Code", { exact: true }).fill(totp(secret, Date.now() - 30_000));
  await dialog.getByRole("button", { name: "Turn on" }).click();
  const codes =
    (await page.getByTestId("recovery-codes").locator("pre").textContent())?.trim().split("\n") ?? [];
  expect(codes).toHaveLength(10);
  await dialog.getByRole("button", { name: "Done" }).click();
  await logOut(page);

  for (const code of [totp(secret, Date.now()), codes[0] ?? ""]) {
    await logIn(page, "tina", PASSWORD);
    await expect(page.getByRole("alert")).toBeHidden();
    await page.getByLabel("Code", { exact: true }).fill(code);
    await page.getByRole("button", { name: "Log in", exact: true }).click();
    await expect(page.getByTestId("user")).toBeVisible();
    await logOut(page);
  }
  await server.call("DELETE", "/api/v1/accounts/tina/totp");
  await logIn(page, "tina", PASSWORD);
  await expect(page.getByTestId("user")).toBeVisible();
  await page.context().close();
});
