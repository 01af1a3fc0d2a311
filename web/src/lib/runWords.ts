/**
 * What the server says about runs and steps in English, in the user's own language.
 *
 * Causes are codes and have words of their own. What stands beside a cause is made of a few forms around names,
 * numbers and what somebody wrote; those forms are known here, and what they hold is left as it is.
 */

import type { TFunction } from "i18next";

import type { RunHistoryEntry, RunStepState, RunTries } from "../api/schema";

const FAILED_STEP = /^step `([^`]+)`(?: (failed|cancelled|upstream_failed))?(?:: ([\s\S]+))?$/;
const PAUSED_BY = /^paused by ([^:]+?)(: [\s\S]+)?$/;
const EXITED = /^exited with code (\d+)$/;
const KILLED = /^killed by signal (\d+ \(\w+\))$/;
const TIMED_OUT = /^ran longer than its timeout of (\S+)$/;
const OUT_OF_MEMORY = /^used more memory than its limit of (\S+)$/;
const NOT_EXECUTED = /^`([^`]+)` could not be executed: ([\s\S]+)$/;
const ELEMENTS = /^(\d+) of (\d+) elements succeeded, (\d+) failed$/;

/** What is known of a transition beyond its cause: who asked for it, or which step made a run fail. */
export function detailOf({ cause, detail }: RunHistoryEntry, t: TFunction): string | null {
  if (!detail) return null;
  const paused = cause === "pause_requested" ? PAUSED_BY.exec(detail) : null;
  if (paused) return `${paused[1]}${paused[2] ?? ""}`;
  const step = FAILED_STEP.exec(detail);
  if (!step) return detail;
  const [, name = "", , message] = step;
  const words = t("run.failedStep", { name });
  return message ? `${words}${t("common.colon")}${messageOf(message, t)}` : words;
}

/** What is known of a step beyond its cause, or of the result of a job. */
export function messageOf(message: string, t: TFunction): string {
  const elements = ELEMENTS.exec(message);
  if (elements) {
    const [, succeeded, total, failed] = elements;
    return t("step.elementsOver", { succeeded, total, failed });
  }
  const exited = EXITED.exec(message);
  if (exited?.[1]) return t("step.exited", { code: exited[1] });
  const killed = KILLED.exec(message);
  if (killed?.[1]) return t("step.killed", { signal: killed[1] });
  const timedOut = TIMED_OUT.exec(message);
  if (timedOut?.[1]) return t("step.timedOut", { timeout: timedOut[1] });
  const outOfMemory = OUT_OF_MEMORY.exec(message);
  if (outOfMemory?.[1]) return t("step.outOfMemory", { limit: outOfMemory[1] });
  const notExecuted = NOT_EXECUTED.exec(message);
  if (notExecuted) return t("step.notExecuted", { program: notExecuted[1], why: notExecuted[2] });
  return sentenceOf(message, t) ?? message;
}

/** Sentences without names and numbers. */
function sentenceOf(message: string, t: TFunction): string | null {
  switch (message) {
    case "the list is empty":
      return t("step.noElement");
    case "the worker sent no heartbeat within its lease":
      return t("step.workerLost");
    case "stopped by the server":
      return t("step.stopped");
    case "the worker was disconnected from the servers for too long":
      return t("step.orphaned");
    case "the worker's supervisor was stopped":
      return t("step.shutDown");
    default:
      return null;
  }
}

/** Why a step, or an element, stands where it stands, in one line: its cause, and what is known beyond that. */
export function whyOf({ cause, message }: Pick<RunStepState, "cause" | "message">, t: TFunction): string {
  const words = cause ? t(`stepCause.${cause}`) : "";
  if (!message) return words;
  return words ? `${words}${t("common.colon")}${messageOf(message, t)}` : messageOf(message, t);
}

/** `2 of 3`. */
export function tryOf({ number, most }: Pick<RunTries, "number" | "most">, t: TFunction): string {
  return t("run.tryOf", { number, most });
}
