/** Quotas of namespaces: usage with its limit, and the form of the settings. */

import { expect, test } from "vitest";

import type { Namespace, NamespaceSettings } from "../api/schema";
import { customUsage, formOf, parseCustom, QUOTA_RESOURCES, settingsOf, usageOf } from "./quotas";

const settings: NamespaceSettings = {
  quota: { cpu: "10500m", memory: "16GiB", running: 8, custom: { gpu: 2 } },
  max_priority_class: "normal",
  sandbox: { level: "strict", network: "loopback" },
  note: "free plan",
};
const namespace: Namespace = {
  name: "team",
  settings,
  version: 3,
  usage: { cpu: "250m", memory: 512 * 2 ** 20, running: 3, jobs: 40, custom: { license: 1 } },
};

test("usage has its limit, exact to the millicore, or none if the resource is unlimited", () => {
  expect(QUOTA_RESOURCES.map((resource) => usageOf(namespace, resource))).toEqual([
    { used: "40", limit: null },
    { used: "3", limit: "8" },
    { used: "0.25", limit: "10.5" },
    { used: "512 MiB", limit: "16 GiB" },
  ]);
  expect(usageOf({ ...namespace, settings: {} }, "cpu").limit).toBeNull();
});

test("custom resources are listed if they are in use or limited", () => {
  expect(customUsage(namespace)).toEqual([
    { name: "gpu", used: "0", limit: "2" },
    { name: "license", used: "1", limit: null },
  ]);
  expect(
    customUsage({ ...namespace, settings: {}, usage: { ...namespace.usage, custom: undefined } }),
  ).toEqual([]);
});

test("an unchanged form has the same settings, without defaults", () => {
  expect(settingsOf(formOf(settings))).toEqual(settings);
  expect(settingsOf(formOf({}))).toEqual({ quota: { custom: {} } });
  expect(settingsOf(formOf({ max_priority_class: "high" }))?.max_priority_class).toBeUndefined();
  expect(formOf({ quota: { cpu: null, custom: { gpu: 2, license: 5 } } })).toMatchObject({
    cpu: "",
    custom: "gpu=2, license=5",
    highest: "high",
  });
});

test("the minimum sandbox is omitted if there is none, and so is its network", () => {
  expect(formOf({})).toMatchObject({ sandbox: "none", network: null });
  expect(settingsOf(formOf({ sandbox: { level: "none" } }))?.sandbox).toBeUndefined();
  expect(settingsOf(formOf({ sandbox: { level: "basic", network: null } }))?.sandbox).toEqual({
    level: "basic",
  });
  expect(settingsOf({ ...formOf(settings), sandbox: "none" })?.sandbox).toBeUndefined();
  expect(settingsOf({ ...formOf(settings), network: null })?.sandbox).toEqual({ level: "strict" });
});

test("custom resources are names with whole numbers, each name once", () => {
  expect(parseCustom("")).toEqual({});
  expect(parseCustom(" gpu=2，license=5\nslot=0 ")).toEqual({ gpu: 2, license: 5, slot: 0 });
  for (const invalid of ["gpu", "gpu=", "=2", "gpu=1.5", "gpu=-1", "gpu=2, gpu=3"]) {
    expect(parseCustom(invalid), invalid).toBeNull();
  }
  expect(settingsOf({ ...formOf({}), custom: "gpu" })).toBeNull();
});
