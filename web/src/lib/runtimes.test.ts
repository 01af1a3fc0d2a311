import { expect, test } from "vitest";

import type { JobSpec } from "../api/schema";
import {
  defaultMethod,
  fieldsOf,
  newRun,
  programOf,
  runtimeOf,
  RUNTIMES,
  runtimeWithVersion,
  textOf,
  withContainerProgram,
  withProgram,
  wordsOf,
} from "./runtimes";

const spec = (run: unknown) => ({ run }) as JobSpec;

test("the runtime is the one that the file names", () => {
  expect(RUNTIMES.map((runtime) => runtimeOf({ run: newRun(runtime) }))).toEqual([...RUNTIMES]);
  for (const run of [undefined, null, "process", [], {}, { wasm: {} }])
    expect(runtimeOf(spec(run))).toBeNull();
  expect(fieldsOf(spec({ http: null }), "http"), "a runtime without fields, while the user types").toEqual(
    {},
  );
  expect(fieldsOf(spec({ http: {} }), "process")).toBeNull();
});

test("a new runtime has no field of another one", () => {
  expect(newRun("container")).toEqual({ container: { image: "" } });
  expect(newRun("http")).toEqual({ http: { url: "" } });
  expect(newRun("process")).toEqual({ process: { script: "echo hello\n" } });
});

test("a script replaces a command, and other fields are kept", () => {
  const process = { command: ["ls", "a b"], env: { A: "1" }, stdin: "x" };
  const script = withProgram(process, "script");
  expect(script).toEqual({ script: "ls 'a b'\n", env: { A: "1" }, stdin: "x" });
  const back = withProgram({ ...script, interpreter: ["bash"] }, "command");
  expect(back).toEqual({ command: ["echo", "hello"], env: { A: "1" }, stdin: "x" });
});

test("a script of a container replaces the entry point too, and other fields are kept", () => {
  const container = { image: "a", command: ["ls"], entrypoint: ["/run"], container_ports: { web: 80 } };
  const script = withContainerProgram(container, "script");
  expect(script).toEqual({ image: "a", script: "ls\n", container_ports: { web: 80 } });
  const back = withContainerProgram({ ...script, interpreter: ["bash"] }, "command");
  expect(back).toEqual({ image: "a", container_ports: { web: 80 } });
  expect(withContainerProgram({}, "script")).toEqual({ image: "", script: "echo hello\n" });
});

test("a request with a body is a POST", () => {
  expect(defaultMethod({})).toBe("GET");
  expect(defaultMethod({ body: null })).toBe("GET");
  expect(defaultMethod({ body: "{}" })).toBe("POST");
});

test("values of another type in the file are no error", () => {
  expect(wordsOf("echo hello")).toEqual([]);
  expect(wordsOf(["a", 1])).toEqual(["a", "1"]);
  expect([textOf(1000), textOf(null), textOf({})]).toEqual(["1000", "", ""]);
});

test("what a job runs is said in single lines", () => {
  const program = (run: unknown) => programOf(spec(run));
  expect(program({ process: { command: ["echo", "a b"] } })).toEqual({
    runtime: "process",
    command: "echo 'a b'",
  });
  const script = "#!/bin/sh\n# loads\n\nset -e\n./load\n";
  expect(program({ process: { script } })).toEqual({ runtime: "process", script: "set -e …" });
  expect(program({ process: { script: "true\n" } })).toEqual({ runtime: "process", script: "true" });
  const container = { image: "alpine:3.20", entrypoint: ["/bin/sh"], command: ["-c", "ls"] };
  expect(program({ container })).toEqual({
    runtime: "container",
    image: "alpine:3.20",
    command: "/bin/sh -c ls",
  });
  expect(program({ container: { image: "web" } })).toEqual({ runtime: "container", image: "web" });
  expect(program({ wasm: {} })).toBeNull();
});

test("a request is shown without the user info of its URL", () => {
  const request = (http: unknown) => programOf(spec({ http }))?.request;
  expect(request({ url: "https://x.test/a?b=c@d" })).toBe("GET https://x.test/a?b=c@d");
  expect(request({ url: "https://ann:secret@x.test/", body: "{}" })).toBe("POST https://x.test/");
  expect(request({ url: "http://x.test", body: "{}", method: "PUT" })).toBe("PUT http://x.test");
});

test("a runtime of a worker is shown with its version, if there is one", () => {
  expect(runtimeWithVersion("container", { container: "docker 29.1" })).toBe("container (docker 29.1)");
  expect(runtimeWithVersion("process", { container: "docker 29.1" })).toBe("process");
  expect(runtimeWithVersion("process", undefined)).toBe("process");
});
