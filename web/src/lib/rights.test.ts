/** The rights of the caller decide what the dashboard offers. */

import { expect, test } from "vitest";

import type { Right } from "../api/schema";
import {
  can,
  canSomewhere,
  type Caller,
  covers,
  hasLostRights,
  hasNoRights,
  listedNamespaces,
  namespaceForNew,
  pageDenial,
  sampleFor,
} from "./rights";

function right(verb: Right["verb"], resource: Right["resource"], ...namespaces: string[]): Right {
  return { verb, resource, namespaces };
}

const viewer: Caller = {
  rights: [
    right("read", "jobs", "team", "finance/*"),
    right("read", "schedules", "team"),
    right("read", "workers", "*"),
  ],
};
const admin: Caller = { rights: [right("read", "jobs", "*"), right("operate", "jobs", "*")] };
const withoutRole: Caller = { rights: [] };

test("a pattern covers the namespaces that it names", () => {
  expect(covers("*", "team")).toBe(true);
  expect(covers("*", "*")).toBe(true);
  expect(covers("team", "team")).toBe(true);
  expect(covers("team", "team/a")).toBe(false);
  expect(covers("team/*", "team/a")).toBe(true);
  expect(covers("team/*", "team/a/b")).toBe(true);
  expect(covers("team/*", "team/a/*")).toBe(true);
  expect(covers("team/*", "team")).toBe(false);
  expect(covers("team/*", "team/")).toBe(false);
  expect(covers("team/*", "teams/a")).toBe(false);
  expect(covers("team", "*")).toBe(false);
  expect(covers("team/*", "*")).toBe(false);
});

test("an action is allowed only in the namespaces of its right", () => {
  expect(can(viewer, "read", "jobs", "team")).toBe(true);
  expect(can(viewer, "read", "jobs", "finance/pay")).toBe(true);
  expect(can(viewer, "read", "jobs", "other")).toBe(false);
  expect(can(viewer, "read", "jobs")).toBe(false);
  expect(can(viewer, "operate", "jobs", "team")).toBe(false);
  expect(can(viewer, "read", "workers")).toBe(true);
  expect(can(admin, "operate", "jobs", "team")).toBe(true);
  expect(can(admin, "operate", "jobs")).toBe(true);
  expect(canSomewhere(viewer, "read", "jobs")).toBe(true);
  expect(canSomewhere(viewer, "operate", "jobs")).toBe(false);
});

test("everything is offered until the rights are known", () => {
  expect(can(undefined, "operate", "jobs", "team")).toBe(true);
  expect(can(undefined, "change", "queues")).toBe(true);
  expect(hasNoRights(undefined)).toBe(false);
  expect(pageDenial(undefined, "/access")).toBeNull();
  expect(listedNamespaces(undefined)).toBeNull();
});

test("the switcher offers the namespaces of the rights, if they are limited", () => {
  expect(listedNamespaces(viewer)).toEqual(["finance/*", "team"]);
  expect(listedNamespaces(admin)).toBeNull();
  // All workers are readable from any namespace, which does not make the lists unlimited.
  expect(listedNamespaces({ rights: [right("read", "workers", "*")] })).toEqual([]);
});

test("a new object is in the default namespace, or in one that the caller may use", () => {
  expect(namespaceForNew(admin, "operate", "jobs")).toBe("default");
  expect(namespaceForNew(viewer, "read", "jobs")).toBe("team");
  expect(namespaceForNew(viewer, "create", "jobs")).toBeUndefined();
  expect(namespaceForNew({ rights: [right("create", "jobs", "a/*")] }, "create", "jobs")).toBeUndefined();
});

test("a sample names the namespace of the new object, unless it is the default", () => {
  expect(sampleFor(admin, "name: a\nrun: b\n", "operate", "jobs")).toBe("name: a\nrun: b\n");
  expect(sampleFor(viewer, "name: a\nrun: b\n", "read", "jobs")).toBe("name: a\nnamespace: team\nrun: b\n");
  expect(sampleFor(withoutRole, "name: a\n", "create", "jobs")).toBe("name: a\n");
});

test("a page is denied without its right, and all but two without any right", () => {
  expect(pageDenial(viewer, "/")).toBeNull();
  expect(pageDenial(viewer, "/jobs")).toBeNull();
  expect(pageDenial(viewer, "/jobs/job_1")).toBeNull();
  expect(pageDenial(viewer, "/failures")).toBeNull();
  expect(pageDenial(viewer, "/submit")).toEqual(["create", "jobs"]);
  expect(pageDenial(viewer, "/schedules")).toBeNull();
  expect(pageDenial(viewer, "/schedules/new")).toEqual(["change", "schedules"]);
  const reader: Caller = { rights: [right("read", "services", "new")] };
  expect(pageDenial(reader, "/services/new")).toEqual(["change", "services"]);
  expect(pageDenial(reader, "/services/new/web")).toBeNull();
  expect(pageDenial(viewer, "/access/roles")).toEqual(["read", "access"]);
  const manager: Caller = { rights: [right("read", "access", "team")] };
  expect(pageDenial(manager, "/access")).toBeNull();
  expect(pageDenial(manager, "/access/accounts/ann")).toBeNull();
  expect(pageDenial(manager, "/access/tokens")).toEqual(["read", "access"]);
  expect(pageDenial({ rights: [right("read", "access", "*")] }, "/access/tokens")).toBeNull();
  expect(pageDenial(viewer, "/namespaces")).toEqual(["read", "namespaces"]);
  expect(pageDenial({ rights: [right("read", "namespaces", "*")] }, "/namespaces")).toBeNull();
  expect(pageDenial(viewer, "/tokens")).toBeNull();
  expect(pageDenial(viewer, "/settings")).toBeNull();
  expect(pageDenial(withoutRole, "/")).toBe("noRole");
  expect(pageDenial(withoutRole, "/jobs")).toBe("noRole");
  expect(pageDenial(withoutRole, "/tokens")).toBeNull();
  expect(pageDenial(withoutRole, "/settings")).toBeNull();
});

test("a change of rights is a loss unless all former rights remain", () => {
  expect(hasLostRights(undefined, withoutRole)).toBe(false);
  expect(hasLostRights(withoutRole, viewer)).toBe(false);
  expect(hasLostRights(viewer, withoutRole)).toBe(true);
  expect(hasLostRights(viewer, { rights: viewer.rights.slice(1) })).toBe(true);
  const wider: Caller = {
    rights: viewer.rights.map((each) => ({ ...each, namespaces: ["*"] })),
  };
  expect(hasLostRights(viewer, wider)).toBe(false);
  expect(hasLostRights(wider, viewer)).toBe(true);
});
