/** Runtimes of a job: which one its spec uses, and what the job runs. */

import type { ContainerRun, HttpMethod, HttpRun, JobSpec, ProcessRun, PullPolicy } from "../api/schema";
import { join } from "./shell";

export const RUNTIMES = ["process", "container", "http"] as const;
export type Runtime = (typeof RUNTIMES)[number];

interface Runs {
  process: ProcessRun;
  container: ContainerRun;
  http: HttpRun;
}

export const PULL_POLICIES = ["if_missing", "always", "never"] as const satisfies readonly PullPolicy[];
export const METHODS = [
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
] as const satisfies readonly HttpMethod[];

type SpecWithRun = Partial<Pick<JobSpec, "run">>;

function runtimesIn({ run }: SpecWithRun): Partial<Runs> {
  // The file may lack the runtime, or have a value of another type, while the user types.
  return typeof run === "object" && run !== null ? run : {};
}

/** Returns the runtime of a spec; null if it is missing or unknown. */
export function runtimeOf(spec: SpecWithRun): Runtime | null {
  const runs = runtimesIn(spec);
  return RUNTIMES.find((runtime) => runtime in runs) ?? null;
}

/** Returns the fields of a runtime, empty while the user types them; null if the spec uses another runtime. */
export function fieldsOf<R extends Runtime>(spec: SpecWithRun, runtime: R): Partial<Runs[R]> | null {
  const runs = runtimesIn(spec);
  if (!(runtime in runs)) return null;
  const fields: unknown = runs[runtime];
  return typeof fields === "object" && fields !== null ? fields : {};
}

/** Returns the field `run` of a spec that changes to a runtime. No field of the former runtime is kept. */
export function newRun(runtime: Runtime): JobSpec["run"] {
  switch (runtime) {
    case "process":
      return { process: { script: "echo hello\n" } };
    case "container":
      return { container: { image: "" } };
    case "http":
      return { http: { url: "" } };
  }
}

/** Returns the method of a request without `method`. */
export function defaultMethod({ body }: Partial<HttpRun>): HttpMethod {
  return body == null ? "GET" : "POST";
}

/** Returns a copy of a process with a script instead of its command, or the reverse. */
export function withProgram(process: Partial<ProcessRun>, kind: "script" | "command"): ProcessRun {
  if (kind === "script") return { ...process, command: undefined, script: scriptOf(process.command) };
  return { ...process, script: undefined, interpreter: undefined, command: ["echo", "hello"] };
}

/**
 * Returns a copy of a container with a script instead of its command and entry point, or with neither: then the image
 * has the command.
 */
export function withContainerProgram(
  container: Partial<ContainerRun>,
  kind: "script" | "command",
): ContainerRun {
  const script = kind === "script" ? scriptOf(container.command) : undefined;
  const without = { interpreter: undefined, command: undefined, entrypoint: undefined };
  return { ...container, image: container.image ?? "", ...without, script };
}

function scriptOf(command: readonly string[] | undefined): string {
  const words = wordsOf(command);
  return words.length > 0 ? `${join(words)}\n` : "echo hello\n";
}

/** Returns a list of words of the file; a value of another type counts as empty. */
export function wordsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

/** Returns a text of the file; numbers are texts too. */
export function textOf(value: unknown): string {
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}

export interface Program {
  runtime: Runtime;
  image?: string;
  command?: string;
  /** First line of the script that is neither empty nor a comment. */
  script?: string;
  /** Method and URL, without user info. */
  request?: string;
}

/** Returns what a job runs, in single lines; null for an unknown runtime. */
export function programOf(spec: SpecWithRun): Program | null {
  const process = fieldsOf(spec, "process");
  if (process) return { runtime: "process", ...commandOrScript(process) };
  const container = fieldsOf(spec, "container");
  if (container) {
    const words = [...wordsOf(container.entrypoint), ...wordsOf(container.command)];
    const program = commandOrScript({ script: container.script, command: words });
    return { runtime: "container", image: textOf(container.image), ...program };
  }
  const http = fieldsOf(spec, "http");
  if (!http) return null;
  const url = textOf(http.url).replace(/^(https?:\/\/)[^/?#]*@/i, "$1");
  return { runtime: "http", request: `${http.method ?? defaultMethod(http)} ${url}` };
}

function commandOrScript({ script, command }: Partial<ProcessRun>): Pick<Program, "command" | "script"> {
  if (script == null) {
    const words = wordsOf(command);
    return words.length > 0 ? { command: join(words) } : {};
  }
  const lines = textOf(script)
    .split("\n")
    .map((line) => line.trim());
  const first = lines.findIndex((line) => line !== "" && !line.startsWith("#"));
  if (first < 0) return { script: lines[0] ?? "" };
  const hasMore = lines.slice(first + 1).some((line) => line !== "");
  return { script: `${lines[first]}${hasMore ? " …" : ""}` };
}

/** Returns a runtime of a worker with its version: `container (docker 29.1)`. */
export function runtimeWithVersion(
  runtime: string,
  versions: Readonly<Record<string, string>> | undefined,
): string {
  const version = versions?.[runtime];
  return version ? `${runtime} (${version})` : runtime;
}
