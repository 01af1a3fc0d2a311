import { expect, test } from "vitest";

import type { JobSpec } from "../api/schema";
import { toSubmitCommand, toCurlCommand } from "./submitCommands";
import { setMember, forResubmission, omitDefaults, parseSpec, rangeOf, toYaml } from "./spec";

const TEXT = `# nightly
name: backup # keep it short
run:
  process:
    command: [tar, "no"]
`;

test("a change in the form keeps comments and the rest of the text", () => {
  const changed = setMember(setMember(TEXT, ["name"], "copy"), ["retry", "max_retries"], 3);
  expect(changed).toContain("# nightly");
  expect(changed).toContain("# keep it short");
  expect(parseSpec(changed).spec).toEqual({
    name: "copy",
    run: { process: { command: ["tar", "no"] } },
    retry: { max_retries: 3 },
  });
});

test("removing a member removes empty parents", () => {
  const text = setMember(setMember(TEXT, ["retry", "max_retries"], 3), ["retry", "max_retries"], undefined);
  expect(parseSpec(text).spec).not.toHaveProperty("retry");
});

test("a member can be set in a map that is still empty", () => {
  const text = setMember("name: a\nrun:\n  http:\n", ["run", "http", "url"], "http://x.test");
  expect(parseSpec(text).spec).toEqual({ name: "a", run: { http: { url: "http://x.test" } } });
});

test("a change of the runtime keeps the rest of the file, and no field of the former runtime", () => {
  const text = setMember(TEXT, ["run"], { http: { url: "" } });
  expect(text).toContain("name: backup # keep it short");
  expect(parseSpec(text).spec?.run).toEqual({ http: { url: "" } });
});

test("fields that the form does not have are kept", () => {
  const file =
    "run:\n  http:\n    url: http://x\n    poll: {interval: 2s} # slow\n    outputs: {id: body.id}\n";
  const text = setMember(setMember(file, ["run", "http", "url"], "http://y"), ["run", "http", "body"], "{}");
  expect(text).toContain("poll: { interval: 2s } # slow");
  const http = { url: "http://y", poll: { interval: "2s" }, outputs: { id: "body.id" }, body: "{}" };
  expect(parseSpec(text).spec?.run).toEqual({ http });
});

test("strings that YAML 1.1 converts stay strings", () => {
  expect(parseSpec("name: no\nlabels: { at: 2026-11-21 }").spec).toEqual({
    name: "no",
    labels: { at: "2026-11-21" },
  });
});

test("a syntax error has a position", () => {
  const { spec, error } = parseSpec("name: a\nrun: [");
  expect(spec).toBeNull();
  expect(error?.line).toBe(2);
  expect(parseSpec("- a").error?.message).toBe("expected a map");
});

test("an invalid field is marked at its position, or at its parent if it is missing", () => {
  const marked = (path: string) => TEXT.slice(...rangeOf(TEXT, path));
  expect(marked("name")).toBe("backup");
  expect(marked("run.process.command[1]")).toBe('"no"');
  expect(marked("run.process.env.FOO")).toContain("command");
});

test("a resubmission omits the idempotency key, the run time and the upstream jobs", () => {
  const spec = {
    name: "a",
    idempotency_key: "k",
    run_at: "2026-11-21T00:00:00Z",
    after: [{ job: "job_01k9zq3m6c0000000000000000" }],
    labels: {},
    run: { process: { command: ["true"] } },
  } as JobSpec;
  expect(forResubmission(spec)).toEqual({ name: "a", run: { process: { command: ["true"] } } });
});

test("a resubmission omits a completion deadline only if its time has passed", () => {
  const now = Date.parse("2026-11-21T00:00:00Z");
  const resubmitted = (finish_by: JobSpec["finish_by"]) =>
    forResubmission({ name: "a", finish_by, run: {} } as JobSpec, now).finish_by;
  expect(resubmitted({ at: "2026-11-20T00:00:00Z" })).toBeUndefined();
  expect(resubmitted({ at: "2026-11-22T00:00:00Z" })).toEqual({ at: "2026-11-22T00:00:00Z" });
  expect(resubmitted({ after: "1h", action: "report" })).toEqual({ after: "1h", action: "report" });
});

test("copied commands contain the same spec, and never the token", () => {
  const spec = { name: "it", run: { process: { command: ["echo", "it's"] } } } as JobSpec;
  expect(toSubmitCommand(spec)).toBe(`belfry submit -f - <<'BELFRY_JOB'\n${toYaml(spec)}BELFRY_JOB`);
  expect(toCurlCommand(spec, "http://127.0.0.1:7070")).toContain(
    `'{"name":"it","run":{"process":{"command":["echo","it'\\''s"]}}}'`,
  );
  expect(toCurlCommand(spec, "http://127.0.0.1:7070")).toContain("$BELFRY_TOKEN");
});

test("a spec without defaults is as short as the original", () => {
  const defaults = { name: "x", overlap: { policy: "skip", limit: 1 }, job: { queue: "default", run: {} } };
  const spec = {
    name: "x",
    overlap: { policy: "skip", limit: 2 },
    missed: null,
    only: [{ all: {} }],
    job: { queue: "default", run: { process: { command: ["true"] } } },
  };
  expect(omitDefaults(spec, defaults, ["name"])).toEqual({
    name: "x",
    overlap: { limit: 2 },
    only: [{ all: {} }],
    job: { run: { process: { command: ["true"] } } },
  });
});
