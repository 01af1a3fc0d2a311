import { expect, test } from "vitest";
import { parse } from "yaml";

import type { JobSpec, ProcessRun } from "../api/schema";
import { fieldsOf, withProgram } from "./runtimes";
import { levelChange, levelOf, networkOf, SANDBOX_LEVELS, sandboxOf } from "./sandboxes";
import { setMember } from "./spec";

const ofProcess = (sandbox: unknown) => ({ run: { process: { command: ["ls"], sandbox } } }) as JobSpec;
const process = (sandbox: unknown) => ({ sandbox }) as Partial<ProcessRun>;

test("the network of a sandbox depends on its level if none is set", () => {
  expect(sandboxOf(ofProcess({ level: "basic" }))).toEqual({ level: "basic", network: "host" });
  expect(sandboxOf(ofProcess({ level: "strict" }))).toEqual({ level: "strict", network: "none" });
  expect(sandboxOf(ofProcess({ level: "strict", network: null }))?.network).toBe("none");
  expect(sandboxOf(ofProcess({ level: "strict", network: "loopback" }))?.network).toBe("loopback");
});

test("a job without a level, or with another runtime, has no sandbox", () => {
  for (const sandbox of [undefined, null, {}, { level: "none" }, { network: "host" }, "strict"]) {
    expect(sandboxOf(ofProcess(sandbox))).toBeNull();
  }
  const container = { image: "a", sandbox: { level: "strict" } };
  expect(sandboxOf({ run: { container } })).toBeNull();
  expect(sandboxOf({})).toBeNull();
});

test("unknown values in the file are no error", () => {
  expect(levelOf(process({ level: "strct" }))).toBeNull();
  expect(sandboxOf(ofProcess({ level: "strct" }))).toBeNull();
  expect([levelOf({}), levelOf(process(null)), levelOf(process({ level: null }))]).toEqual([
    "none",
    "none",
    "none",
  ]);
  expect([networkOf({}), networkOf(process({ level: "basic", network: "bridge" }))]).toEqual([null, null]);
});

/** Returns a file after the choice of a level in the form. */
function choose(text: string, level: (typeof SANDBOX_LEVELS)[number]): string {
  const { path, value } = levelChange(fieldsOf(parse(text) as JobSpec, "process") ?? {}, level);
  return setMember(text, ["run", "process", ...path], value);
}

test("a level is set in the file and keeps the rest of it; the level none removes the sandbox", () => {
  const text = "run:\n  process:\n    command: [ls] # all files\n    env: { A: b }\n";
  const strict = choose(text, "strict");
  expect(strict).toContain("[ ls ] # all files");
  const run = { process: { command: ["ls"], env: { A: "b" } } };
  expect(parse(strict)).toEqual({ run: { process: { ...run.process, sandbox: { level: "strict" } } } });
  const withNetwork = setMember(strict, ["run", "process", "sandbox", "network"], "loopback");
  const basic = { level: "basic", network: "loopback" };
  expect(parse(choose(withNetwork, "basic")), "the network is kept").toEqual({
    run: { process: { ...run.process, sandbox: basic } },
  });
  expect(parse(choose(withNetwork, "none"))).toEqual({ run });
});

test("a level replaces a sandbox of another type", () => {
  for (const sandbox of ["strict", "", "[strict]"]) {
    const text = `run:\n  process:\n    command: [ls]\n    sandbox: ${sandbox}\n`;
    expect(sandboxOf(parse(choose(text, "basic")) as JobSpec)?.level, sandbox).toBe("basic");
  }
});

test("a change between a script and a command keeps the sandbox", () => {
  const sandbox = { level: "strict", network: "host" } as const;
  const script = withProgram({ command: ["ls"], sandbox }, "script");
  expect(script.sandbox).toEqual(sandbox);
  expect(withProgram(script, "command").sandbox).toEqual(sandbox);
});
