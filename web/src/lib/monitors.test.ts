/** Forms of monitors produce the specs of the API. */

import { expect, test } from "vitest";

import type { MonitorSpec } from "../api/schema";
import { completeUrl, monitorForm, monitorSpec, newMonitorForm } from "./monitors";

/** Returns what is sent: without absent members. */
function sent(value: object): unknown {
  return JSON.parse(JSON.stringify(value));
}

test("a new monitor expects a ping every day", () => {
  expect(sent(monitorSpec({ ...newMonitorForm("team", "Asia/Shanghai"), name: " backup " }))).toEqual({
    name: "backup",
    namespace: "team",
    timing: { every: "1d" },
    grace: "1h",
    paused: false,
  });
});

test("a new monitor with a cron expression has the time zone of the user", () => {
  const form = { ...newMonitorForm("team", "Asia/Shanghai"), name: "backup", timing: "cron" as const };
  expect(monitorSpec(form).timing).toEqual({ cron: { expression: "30 2 * * *", zone: "Asia/Shanghai" } });
});

test("a monitor stays the same in the form", () => {
  const spec: MonitorSpec = {
    name: "backup",
    namespace: "team",
    owner: "ann",
    description: "Nightly backup",
    labels: { env: "prod=1", gpu: "" },
    timing: { cron: { expression: "0 3 * * *", zone: "Europe/Berlin" } },
    grace: "2h",
    run_time_max: "6h",
    paused: true,
  };
  expect(sent(monitorSpec(monitorForm(spec)))).toEqual(spec);
});

test("a path is completed with the address of the dashboard", () => {
  expect(completeUrl("/ping/abc", "https://belfry.example")).toBe("https://belfry.example/ping/abc");
  expect(completeUrl("https://a.example/ping/abc", "https://b.example")).toBe("https://a.example/ping/abc");
});
