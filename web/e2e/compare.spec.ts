/** Two executions, jobs or runs side by side. */

import { expect, script, test, waitFor } from "./fixtures";

test("two jobs selected in the list are compared: times, spec, result and logs", async ({ page, server }) => {
  const text = (last: string, env: string) => ({
    run: {
      process: { script: `seq -f "row %.0f" 1 50; echo took ${last} ms; exit $CODE`, env: { CODE: env } },
    },
  });
  const good = await server.submit({ name: "settle", ...text("12", "0") });
  await server.waitForStatus(good, "succeeded");
  const bad = await server.submit({ name: "settle", ...text("999", "4") });
  await server.waitForStatus(bad, "failed");

  await page.goto("/jobs?name=settle");
  await page.getByLabel("Select settle").first().check();
  await expect(page.getByRole("button", { name: "Compare" })).toBeDisabled();
  await page.getByLabel("Select settle").last().check();
  await page.getByRole("link", { name: "Compare", exact: true }).click();
  await expect(page).toHaveURL(new RegExp(`/compare\\?a=${good}&b=${bad}$`));

  const sides = page.getByTestId("sides");
  await expect(sides.getByRole("row", { name: /^Status/ })).toContainText("Succeeded");
  await expect(sides.getByRole("row", { name: /^Status/ })).toContainText("Failed");
  await expect(sides.getByRole("row", { name: /^Exit code/ }).getByRole("cell")).toHaveText(["0", "4", ""]);
  await expect(
    sides
      .getByRole("row", { name: /^Duration/ })
      .getByRole("cell")
      .last(),
  ).toHaveText(/[+−=]/);
  await expect(
    sides
      .getByRole("row", { name: /^Peak memory/ })
      .getByRole("cell")
      .first(),
  ).toHaveText(/B$|^–$/);
  await expect(page.getByRole("img", { name: /^A: start delay .+, duration .+/ })).toBeVisible();

  const spec = page.getByRole("region", { name: "Spec" });
  await expect(spec).toContainText("2 differences");
  await expect(spec.getByRole("row", { name: /^run\.process\.env\.CODE/ }).getByRole("cell")).toHaveText([
    "0",
    "4",
  ]);

  const log = page.getByRole("region", { name: "Log" });
  await expect(log.getByTestId("log-difference")).toHaveText("Lines: 1 only in B, 1 only in A.");
  await expect(log.getByTestId("log-lines")).toContainText("−took 12 ms");
  await expect(log.getByTestId("log-lines")).toContainText("+took 999 ms");
  await expect(log.getByText("row 3", { exact: true })).toBeHidden();
  await log.getByRole("button", { name: "47 equal lines" }).click();
  await expect(log.getByText("row 3", { exact: true })).toBeVisible();
  await log.getByLabel("Ignore numbers").check();
  await expect(log.getByTestId("log-difference")).toHaveText("The logs are equal.");
  await expect(page).toHaveURL(/numbers=ignore/);

  await page.getByRole("button", { name: "Swap A and B" }).click();
  await expect(sides.getByRole("row", { name: /^Exit code/ }).getByRole("cell")).toHaveText(["4", "0", ""]);
});

test("a job is compared with the last success of its name", async ({ page, server }) => {
  const ids: string[] = [];
  for (const code of [0, 0, 3]) {
    ids.push(await server.submit(script("was-fine", `exit ${code}`)));
    await server.waitForStatus(ids.at(-1) ?? "", code === 0 ? "succeeded" : "failed");
  }
  await page.goto(`/jobs/${ids[2]}`);
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name: "Compare with the last success" }).click();
  await expect(page).toHaveURL(new RegExp(`a=${ids[1]}&b=${ids[2]}`));

  const never = await server.submit(script("was-never-fine", "exit 1"));
  await server.waitForStatus(never, "failed");
  await page.goto(`/jobs/${never}`);
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name: "Compare with the last success" }).click();
  await expect(page.getByText("No other success was found.")).toBeVisible();
});

test("two executions of a job are compared", async ({ page, server }) => {
  const body = script("three-times", "echo this is try $BELFRY_ATTEMPT; exit 4", {
    retry: { max_retries: 2, backoff: { initial: "1s" } },
  });
  const id = await server.submit(body);
  await server.waitForStatus(id, "failed");
  await page.goto(`/jobs/${id}`);
  await page.getByRole("link", { name: "Compare #2 and #3" }).click();
  await expect(page).toHaveURL(new RegExp(`a=${id}&b=${id}&execution_a=2&execution_b=3`));
  await expect(page.getByText("Both sides are executions of the same job.")).toBeVisible();
  const lines = page.getByTestId("log-lines");
  await expect(lines).toContainText("−this is try 2");
  await expect(lines).toContainText("+this is try 3");
  await page
    .getByLabel(/^Execution of three-times/)
    .first()
    .selectOption("1");
  await expect(lines).toContainText("−this is try 1");
});

test("the logs are compared only when both have loaded to their end", async ({ page, server }) => {
  const ids: string[] = [];
  for (const word of ["slow", "quick"]) {
    ids.push(await server.submit(script("loads-in-turn", `echo same; echo ${word}`)));
    await server.waitForStatus(ids.at(-1) ?? "", "succeeded");
  }
  // The server has the log later than the end of the execution: first its answer is late, then its end is missing.
  let answer = () => {};
  const isAnswered = new Promise<void>((resolve) => (answer = resolve));
  let hasEnd = false;
  await page.route(new RegExp(`/jobs/${ids[0]}/logs`), async (route) => {
    await isAnswered;
    if (hasEnd) return route.continue();
    await route.fulfill({ json: { items: [], next_offset: 0, complete: false, first_line: 1 } });
  });
  await page.goto(`/compare?a=${ids[0]}&b=${ids[1]}`);
  const log = page.getByRole("region", { name: "Log" });
  const loading = log.getByRole("status", { name: "Loading" });
  await expect(page.getByTestId("sides")).toBeVisible();
  await expect(loading).toBeVisible();
  await expect(log.getByTestId("log-difference")).toHaveCount(0);
  const isRead = page.waitForResponse(new RegExp(`/jobs/${ids[0]}/logs`));
  answer();
  await isRead;
  await expect(loading).toBeVisible();
  await expect(log.getByTestId("log-difference")).toHaveCount(0);
  hasEnd = true;
  await expect(log.getByTestId("log-difference")).toHaveText("Lines: 1 only in B, 1 only in A.");
  await expect(loading).toHaveCount(0);
});

test("two runs are compared: parameters, steps and the log of a step", async ({ page, server }) => {
  const steps = [
    { name: "prepare", job: { run: { process: { script: "true" } } } },
    {
      name: "load",
      needs: ["prepare"],
      job: {
        run: {
          process: {
            script: "echo loads $REGION; exit $CODE",
            env: { REGION: "${{ params.region }}", CODE: "${{ params.code }}" },
          },
        },
      },
    },
  ];
  const parameters = { region: { type: "string", default: "eu" }, code: { type: "number", default: 0 } };
  await server.call("PUT", "/api/v1/workflows/compared", { name: "compared", parameters, steps });
  const start = async (values: object, status: string) => {
    const { id } = await server.call<{ id: string }>("POST", "/api/v1/workflows/compared/start", {
      parameters: values,
    });
    await waitFor(20_000, `the run to be ${status}`, async () => {
      return (await server.get<{ status: string }>(`/api/v1/runs/${id}`)).status === status;
    });
    return id;
  };
  const good = await start({}, "succeeded");
  const bad = await start({ region: "cn", code: 3 }, "failed");

  // From the run.
  await page.goto(`/runs/${bad}`);
  await page.getByRole("button", { name: "More actions" }).click();
  await page.getByRole("menuitem", { name: "Compare with the last success" }).click();
  await expect(page).toHaveURL(new RegExp(`a=${good}&b=${bad}`));
  const values = page.getByRole("region", { name: "Parameters" });
  await expect(values.getByRole("row", { name: /^region/ }).getByRole("cell")).toHaveText(["eu", "cn"]);
  await expect(page.getByText("The definitions are equal.")).toBeVisible();
  const table = page.getByTestId("steps");
  await expect(table.getByRole("row", { name: /^load/ })).toContainText("Failed");
  await expect(table.getByRole("row", { name: /^load/ }).getByRole("cell").last()).toHaveText(/[+−=]/);
  // The step that ended differently comes first.
  await expect(page.getByTestId("log-lines")).toContainText("−loads eu");
  await expect(page.getByTestId("log-lines")).toContainText("+loads cn");
  await page.getByRole("button", { name: "prepare" }).click();
  await expect(page.getByText("Both logs are empty.")).toBeVisible();

  // From a list.
  await page.goto("/runs?workflow=compared");
  await page.getByLabel("Select compared #1").check();
  await page.getByLabel("Select compared #2").check();
  await page.getByRole("link", { name: "Compare", exact: true }).click();
  await expect(page).toHaveURL(new RegExp(`a=${good}&b=${bad}`));
});
