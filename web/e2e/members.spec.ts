/** D6, G2. The members of a Raft cluster: who leads, who is down, and the removal of a lost one. */

import { expect, test } from "@playwright/test";

import { Cluster } from "./cluster";

test("a member that has ended is shown, and removed", async ({ page }) => {
  test.slow();
  const cluster = await Cluster.start(["a", "b", "c"]);
  try {
    await cluster.signIn(page);
    await page.goto(`${cluster.url}/servers`);
    const members = page.getByRole("region", { name: "Members of the Raft cluster" });
    await expect(members.getByRole("listitem")).toHaveCount(3);
    await expect(members).toContainText("2 voters have it on disk");
    await expect(page.getByTestId("member-a")).toContainText("Leader");
    for (const name of ["b", "c"]) await expect(page.getByTestId(`member-${name}`)).toContainText("Voter");
    await expect(members.getByRole("button", { name: "Remove" })).toHaveCount(0);

    // A copy takes long only with much data.
    const list = "**/api/v1/cluster/members";
    await page.route(list, async (route) => {
      const response = await route.fetch();
      const json = (await response.json()) as { items: Array<{ name: string; copying?: object }> };
      for (const member of json.items)
        if (member.name === "c") member.copying = { sent: "256MiB", total: "1GiB" };
      await route.fulfill({ response, json });
    });
    await page.reload();
    await expect(page.getByTestId("member-c")).toContainText("receives a copy: 256 MiB of 1 GiB");
    await expect(page.getByTestId("member-b")).not.toContainText("receives a copy");
    await page.unroute(list);

    await cluster.kill("c");
    const lost = page.getByTestId("member-c");
    await expect(lost).toContainText("Down", { timeout: 30_000 });
    await expect(page.getByTestId("member-b")).not.toContainText("Down");
    await lost.getByRole("button", { name: "Remove" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Remove" }).click();
    await expect(lost).toBeHidden();
    await expect(members.getByRole("listitem")).toHaveCount(2);
  } finally {
    await cluster.dispose();
  }
});
