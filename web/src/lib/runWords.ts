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

/** What is known of a step beyond its cause. */
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
  return message === "there was no element" ? t("step.noElement") : message;
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
