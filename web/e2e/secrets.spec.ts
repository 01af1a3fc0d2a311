/** Secrets: a value is entered once, reaches a job, and is never shown again. */

import { expect, script, test } from "./fixtures";

const VALUE = "correct horse battery staple";

interface SecretBody {
  version: number;
  values: Record<string, string>;
}

test("a secret is created, reaches a job masked, is replaced and deleted", async ({ page, server }) => {
  const dialog = page.getByRole("dialog");
  await page.goto("/secrets");
  await expect(page.getByText("No secrets")).toBeVisible();
  await page.getByRole("button", { name: "New secret" }).click();
  await dialog.getByRole("textbox", { name: "Name", exact: true }).fill("db");
  await dialog.getByRole("textbox", { name: "Key 1" }).fill("password");
  await dialog.getByRole("textbox", { name: "Value 1" }).fill(VALUE);
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  const row = page.getByTestId("secret-rows").getByRole("row").filter({ hasText: "db" });
  await expect(row).toContainText("password");
  const read = () => server.get<SecretBody>("/api/v1/secrets/db");
  expect(await read()).toMatchObject({ version: 1, values: { password: "******" } });

  // The task gets the value; the log does not.
  const secrets = [{ secret: "db", key: "password", env: "PASSWORD" }];
  const text = `test "$PASSWORD" = "${VALUE}" && echo "value: $PASSWORD"`;
  const job = await server.submit(script("login", text, { secrets }));
  await server.waitForStatus(job, "succeeded");
  await page.goto(`/jobs/${job}`);
  await expect(page.getByText("value: ******")).toBeVisible();
  await expect(page.getByText("value: correct")).toHaveCount(0);

  // A change replaces one value and keeps the other; the dialog shows none.
  await page.goto("/secrets");
  await row.getByRole("button", { name: "Edit secret db" }).click();
  await expect(dialog.getByRole("textbox", { name: "Value 1" })).toHaveValue("******");
  await dialog.getByRole("button", { name: "Add a value" }).click();
  await dialog.getByRole("textbox", { name: "Key 2" }).fill("user");
  await dialog.getByRole("textbox", { name: "Value 2" }).fill("payroll");
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  await expect(row).toContainText("user");
  expect(await read()).toMatchObject({ version: 2, values: { password: "******", user: "******" } });
  await page.screenshot({ path: "e2e/report/shots/secrets.png" });
  const again = await server.submit(script("login", text, { secrets }));
  await server.waitForStatus(again, "succeeded");

  await row.getByRole("button", { name: "Delete secret db" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(page.getByText("No secrets")).toBeVisible();
  await expect(server.submit(script("login", text, { secrets }))).rejects.toThrow(
    /secret `db` does not exist/,
  );
});
