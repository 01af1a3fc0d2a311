/** Sandboxes of processes: their levels and networks, in files and in forms. */

import type { JobSpec, ProcessRun, Sandbox, SandboxLevel, SandboxNetwork } from "../api/schema";
import { fieldsOf } from "./runtimes";

/** The levels; each includes the ones before it. */
export const SANDBOX_LEVELS = ["none", "basic", "strict"] as const satisfies readonly SandboxLevel[];
/** The networks, the most open one last. */
export const SANDBOX_NETWORKS = ["none", "loopback", "host"] as const satisfies readonly SandboxNetwork[];

export interface EffectiveSandbox {
  level: Exclude<SandboxLevel, "none">;
  network: SandboxNetwork;
}

/** Returns the level of a process in a file; null if the file has an unknown value. */
export function levelOf({ sandbox }: Partial<Pick<ProcessRun, "sandbox">>): SandboxLevel | null {
  const level = partsOf(sandbox).level ?? "none";
  return SANDBOX_LEVELS.find((each) => each === level) ?? null;
}

/** Returns the network that a process in a file sets; null if it sets none, or an unknown one. */
export function networkOf({ sandbox }: Partial<Pick<ProcessRun, "sandbox">>): SandboxNetwork | null {
  const { network } = partsOf(sandbox);
  return SANDBOX_NETWORKS.find((each) => each === network) ?? null;
}

/** Returns the members of a sandbox; none while the user types them. */
function partsOf(sandbox: unknown): Partial<Record<keyof Sandbox, unknown>> {
  return typeof sandbox === "object" && sandbox !== null && !Array.isArray(sandbox) ? sandbox : {};
}

/** Returns the network of a sandbox that sets none. */
export function defaultNetwork(level: EffectiveSandbox["level"]): SandboxNetwork {
  return level === "strict" ? "none" : "host";
}

/** Returns the sandbox of a job, with its defaults; null if it has none, or another runtime. */
export function sandboxOf(spec: Partial<Pick<JobSpec, "run">>): EffectiveSandbox | null {
  const process = fieldsOf(spec, "process") ?? {};
  const level = levelOf(process);
  if (level === null || level === "none") return null;
  return { level, network: networkOf(process) ?? defaultNetwork(level) };
}

/**
 * Returns the change of a file that chooses a level: the member of the process, and its value. The level `none` removes
 * the whole sandbox, because a network needs one; other levels keep the network.
 */
export function levelChange(
  process: Partial<Pick<ProcessRun, "sandbox">>,
  level: SandboxLevel,
): { path: string[]; value: Sandbox | SandboxLevel | undefined } {
  if (level === "none") return { path: ["sandbox"], value: undefined };
  // A value of another type cannot have members.
  if (partsOf(process.sandbox) !== process.sandbox) return { path: ["sandbox"], value: { level } };
  return { path: ["sandbox", "level"], value: level };
}
