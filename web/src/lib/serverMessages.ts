/**
 * Translations of causes, results and problems that the server reports in English.
 *
 * Causes and error codes have their own texts. A message beside a code matches one of a few patterns around names and
 * numbers. The patterns are listed here; names, numbers and users' notes stay unchanged.
 */

import i18next, { type TFunction } from "i18next";

import type {
  FailureGroup,
  JobEvent,
  JobResult,
  JobStatus,
  RunHistoryEntry,
  RunStepState,
  RunAttempt,
} from "../api/schema";
import english from "../i18n/en.json";

const FAILED_STEP = /^step `([^`]+)`(?: (failed|cancelled|upstream_failed))?(?:: ([\s\S]+))?$/;
const PREEMPTED_BY = /^preempted by (\S+)$/;
const PAUSED_BY = /^paused by ([^:]+?)(: [\s\S]+)?$/;

type Translate = (t: TFunction, ...match: string[]) => string;

/** Adds the text of the job, if there is one. */
function because(t: TFunction, what: string, why: string | undefined): string {
  return why ? t("ping.because", { what, why }) : what;
}

/** Message patterns. The store may contain messages of an earlier version, so some patterns have two forms. */
const MESSAGE_PATTERNS: ReadonlyArray<[RegExp, Translate]> = [
  [
    /^(\d+) of (\d+) elements succeeded, (\d+) failed$/,
    (t, succeeded, total, failed) => t("step.elementsEnded", { succeeded, total, failed }),
  ],
  [/^(?:there was no element|the list is empty)$/, (t) => t("step.noElement")],
  // A line of the task's output may follow, which says why.
  [
    /^exited with code (\d+)(?:: ([\s\S]+))?$/,
    (t, code, why) => (why ? t("step.exitedBecause", { code, why }) : t("step.exited", { code })),
  ],
  [
    /^killed by signal (\d+ \(\w+\))(?:: ([\s\S]+))?$/,
    (t, signal, why) => (why ? t("step.killedBecause", { signal, why }) : t("step.killed", { signal })),
  ],
  [/^(?:ran longer than|exceeded) its timeout of (\S+)$/, (t, timeout) => t("step.timedOut", { timeout })],
  [
    /^(?:ran|waited) longer than the step's timeout of (\S+?)(?:; ([\s\S]+))?$/,
    (t, timeout, more) => {
      const words = t("step.stepTimedOut", { timeout });
      return more ? `${words}${t("common.listSeparator")}${translateMessage(more, t)}` : words;
    },
  ],
  [
    /^(?:used more memory than its|exceeded its memory) limit of (\S+)$/,
    (t, limit) => t("step.outOfMemory", { limit }),
  ],
  [
    /^`([^`]+)` (?:was not found|is not) in the (?:`?PATH`?)$/,
    (t, program) => t("step.notInPath", { program }),
  ],
  [/^(?:program )?`([^`]+)` does not exist$/, (t, program) => t("step.noProgram", { program })],
  [
    /^(?:cannot execute `([^`]+)`|`([^`]+)` could not be executed): ([\s\S]+)$/,
    (t, one, other, why) => t("step.notExecuted", { program: one || other, why }),
  ],
  [/^(?:the )?output `([^`]+)` is (?:not there|missing)$/, (t, path) => t("step.outputMissing", { path })],
  [
    /^(?:its worker was not heard of|the worker sent no heartbeat) within its lease$/,
    (t) => t("step.workerLost"),
  ],
  [
    /^(?:the execution was|(\d+) executions were) lost, and `retry\.max_lost` is (\S+): ([\s\S]+)$/,
    (t, losses, limit, last = "") =>
      `${t("step.lost", { count: Number(losses || 1), limit })}${t("common.colon")}${translateMessage(last, t)}`,
  ],
  // The pages show the time of the deadline in the zone of the user.
  [/^the job did not end by \S+$/, (t) => t("result.finish_deadline_passed")],
  [/^(?:stopped because the server asked|stopped by the server)$/, (t) => t("step.stopped")],
  [/^stopped while (?:its|the) outputs were (?:being )?stored$/, (t) => t("step.stoppedStoring")],
  [
    /^the worker (?:reached no server|was disconnected from the servers) for too long$/,
    (t) => t("step.orphaned"),
  ],
  [/^the worker's supervisor was stopped$/, (t) => t("step.shutDown")],
  [/^the worker's supervisor or machine (?:went down|stopped)$/, (t) => t("step.wentDown")],
  [/^(?:its|the) execution was not in the store$/, (t) => t("step.notInStore")],
  [/^ended (?:in an unknown way|without an exit code or a signal)$/, (t) => t("step.unknownEnd")],
  [
    /^upstream job `([^`]+)` ended as (succeeded|failed|cancelled|expired)$/,
    (t, job, status) => t("step.upstreamEnded", { job, status: t(`status.${status as JobStatus}`) }),
  ],
  [/^a health check failed$/, (t) => t("step.aCheckFailed")],
  [
    /^(startup|readiness|liveness) check failed(?: (once|(\d+) times))?: ([\s\S]+)$/,
    (t, kind, often, times, why) => {
      const check = t(`step.checks.${kind as "startup"}`);
      if (!often) return t("step.checkFailed", { check, why });
      return t("step.checkFailedTimes", { check, count: Number(times || 1), why });
    },
  ],
  // Why a monitor is down.
  [
    /^the job ended with exit code (\d+)(?:: ([\s\S]+))?$/,
    (t, code, why) => because(t, t("ping.exitCode", { code }), why),
  ],
  [/^the job reported a failure(?:: ([\s\S]+))?$/, (t, why) => because(t, t("ping.failed"), why)],
  [/^no ping arrived: expected one at (.+)$/, (t, time) => t("ping.missing", { time })],
  [
    /^the job started at (.+) and did not end within (\S+)$/,
    (t, time, duration) => t("ping.unfinished", { time, duration }),
  ],
  // Rollouts and replicas of services. The detail of a running job that is stopped has a prefix.
  [
    /^no further replica of revision (\d+) became available within (\S+)$/,
    (t, revision, deadline) => t("step.noProgress", { revision, deadline }),
  ],
  [
    /^revision (\d+) failed: ([\s\S]+)$/,
    (t, revision, why = "") => t("step.revisionFailed", { revision, why: translateMessage(why, t) }),
  ],
  [
    /^replica (\d+), revision (\d+)$/,
    (t, replica, revision) => t("step.replicaCreated", { replica, revision }),
  ],
  [
    /^(?:cancelled by )?service (\S+): the service is deleted$/,
    (t, name) => t("step.serviceDeleted", { name }),
  ],
  [
    /^(?:cancelled by )?service (\S+): the worker is drained$/,
    (t, name) => t("step.serviceDrained", { name }),
  ],
  [
    /^(?:cancelled by )?service (\S+): its worker is lost or no longer matches$/,
    (t, name) => t("step.serviceUnmatched", { name }),
  ],
  [
    /^(?:cancelled by )?service (\S+): replaced by revision (\d+)$/,
    (t, name, revision) => t("step.serviceReplaced", { name, revision }),
  ],
  [
    /^(?:cancelled by )?service (\S+): scaled to (\d+) replicas$/,
    (t, name, replicas) => t("step.serviceScaled", { name, replicas }),
  ],
  // Why a metric that scales a service has no value.
  [
    /^`(scaling\.metrics\[\d+\])`: ([\s\S]+)$/,
    (t, at, why = "") => `${at}${t("common.colon")}${translateMessage(why, t)}`,
  ],
  [
    /^(\d{3} [A-Z][A-Za-z -]+): ([\s\S]+)$/,
    (t, status, why = "") => `${status}${t("common.colon")}${translateMessage(why, t)}`,
  ],
  [/^Prometheus does not answer: ([\s\S]+)$/, (t, why) => t("scaling.noAnswer", { why })],
  [/^the URL is invalid: ([\s\S]+)$/, (t, why) => t("scaling.invalidUrl", { why })],
  [/^the answer ended early: ([\s\S]+)$/, (t, why) => t("scaling.answerEnded", { why })],
  [/^the answer is too long: the query must return one number$/, (t) => t("scaling.answerTooLong")],
  [/^the answer is not in the format of Prometheus$/, (t) => t("scaling.foreignAnswer")],
  [/^the query failed: ([\s\S]+)$/, (t, why) => t("scaling.queryFailed", { why })],
  [/^the query has no result$/, (t) => t("scaling.noResult")],
  [
    /^the query has (\d+) results: aggregate them, for example with `sum`$/,
    (t, count) => t("scaling.severalResults", { count: Number(count) }),
  ],
  [/^the query must return one current number, not a range$/, (t) => t("scaling.wrongResult")],
  [/^no replica is healthy and measured$/, (t) => t("scaling.noneMeasured")],
  [/^the result is not a (?:finite )?number$/, (t) => t("scaling.notANumber")],
  [
    /^`([^`]+)` does not have a public address: an administrator can allow its network in `server\.private_networks`$/,
    (t, host) => t("scaling.privateAddress", { host }),
  ],
  [/^cancelled by ([\s\S]+)$/, (t, name) => t("step.cancelledBy", { name })],
  [PREEMPTED_BY, (t, job) => t("step.preemptedBy", { job })],
  [
    /^(?:this execution was here before|the worker has already run this execution)\b.*$/,
    (t) => t("step.ranBefore"),
  ],
  // A worker that refuses an execution sends a code before its message.
  [/^stopped: the worker's supervisor was stopped\b.*$/, (t) => t("declined.supervisor_stopped")],
  [
    /^(no_room|disk_full|stopped)(?:: .*)?$/,
    (t, code) => t(`declined.${code as "no_room" | "disk_full" | "stopped"}`),
  ],
  // Containers and requests.
  [
    /^the worker does not have the image `([^`]+)`, and `pull` is `never`$/,
    (t, image) => t("step.imageMissing", { image }),
  ],
  [/^cannot pull the image `([^`]+)`: ([\s\S]+)$/, (t, image, why) => t("step.notPulled", { image, why })],
  [/^the container was removed while it ran$/, (t) => t("step.containerRemoved")],
  // Sandboxes.
  [
    /^cannot create the sandbox: ([\s\S]+?)(?:; check that the kernel allows [^(]+\((.+)\))?$/,
    (t, why, settings = "") =>
      settings
        ? t("step.sandboxForbidden", { why, settings: settings.replaceAll("`", "") })
        : t("step.notSandboxed", { why }),
  ],
  [
    /^cannot enter the working directory `([^`]+)` in the sandbox: ([\s\S]+)$/,
    (t, directory, why) => t("step.notEntered", { directory, why }),
  ],
  [
    /^the first process of the sandbox ended without a report: ([\s\S]+)$/,
    (t, why) => t("step.sandboxLost", { why }),
  ],
  [
    /^`([^`]+)` cannot be combined with the network `([^`]+)` of the sandbox\b.*$/,
    (t, field, network) => t("step.networkConflict", { field, network }),
  ],
  [
    /^`([^`]+)` has a `command`, which would run outside the sandbox\b.*$/,
    (t, field) => t("step.commandConflict", { field }),
  ],
  [/^cannot connect to `([^`]+)`: ([\s\S]+)$/, (t, server, why) => t("step.notConnected", { server, why })],
  [
    /^no complete response from `([^`]+)` within (\S+)$/,
    (t, server, timeout) => t("step.noResponse", { server, timeout }),
  ],
  [
    /^the request to `([^`]+)` failed: ([\s\S]+)$/,
    (t, server, why) => t("step.requestFailed", { server, why }),
  ],
  [
    /^the response has status (\d{3}[^:]*)(?:: expected (.+))?$/,
    (t, status, expected) =>
      expected ? t("step.unexpectedStatus", { status, expected }) : t("step.hasStatus", { status }),
  ],
  [
    /^the response does not satisfy `([^`]+)`: `([\s\S]+)` is false$/,
    (t, field, condition) => t("step.unexpectedResponse", { field, condition }),
  ],
  [
    /^polling failed (\d+) times in a row: ([\s\S]+)$/,
    (t, count, why = "") => t("step.pollFailed", { count: Number(count), why: translateMessage(why, t) }),
  ],
  // Why the end of a source started no run.
  [/^ended after (\S+): expected at most (\S+)$/, (t, took, within) => t("step.endedLate", { took, within })],
  [
    /^(job|workflow) (\S+) ended more than (\S+) later$/,
    (t, kind, name, window) =>
      t("step.endedOutside", { source: t(`trigger.source.${kind as "job"}`, { name }), window }),
  ],
  // Problems of a worker and of a server.
  [/^disk almost full$/, (t) => t("trouble.disk")],
  [/^memory almost exhausted$/, (t) => t("trouble.memory")],
  [/^cannot start tasks: (\d+) programs\b.*$/, (t, count) => t("trouble.slow", { count: Number(count) })],
  [/^no (?:answer|response) within (\d+) ?s$/, (t, seconds) => t("trouble.noAnswer", { seconds })],
  [/^the wall clock (?:leapt|jumped) ahead by ([^,:]+)[,:].*$/, (t, by) => t("trouble.clockLeapt", { by })],
  [/^engine time is (\S+) ahead of the (?:wall )?clock\b.*$/, (t, by) => t("trouble.clockAhead", { by })],
];

/**
 * Returns the detail of a transition: the user who requested it, or the step that made a run fail. Null if there is
 * none.
 */
export function transitionDetail({ cause, detail }: RunHistoryEntry, t: TFunction): string | null {
  if (!detail) return null;
  const paused = cause === "pause_requested" ? PAUSED_BY.exec(detail) : null;
  if (paused) return `${paused[1]}${paused[2] ?? ""}`;
  const step = FAILED_STEP.exec(detail);
  if (!step) return detail;
  const [, name = "", , message] = step;
  const words = t("run.failedStep", { name });
  return message ? `${words}${t("common.colon")}${translateMessage(message, t)}` : words;
}

/** Returns the ID of the job that preempted an execution, from the transition of its job; null for other transitions. */
export function preemptingJob({ cause, detail }: Pick<JobEvent, "cause" | "detail">): string | null {
  return cause === "preempted" ? (PREEMPTED_BY.exec(detail ?? "")?.[1] ?? null) : null;
}

/** Translates a message of the server; an unknown message stays unchanged. */
export function translateMessage(message: string, t: TFunction): string {
  return translateKnown(message, t) ?? message;
}

function translateKnown(message: string, t: TFunction): string | null {
  for (const [form, say] of MESSAGE_PATTERNS) {
    const found = form.exec(message);
    if (found) return say(t, ...found.slice(1).map((part: string | undefined) => part ?? ""));
  }
  return null;
}

/**
 * Returns the result of a job in one line: its translated message, or the text of its error code followed by the
 * message.
 */
export function resultText(
  result: JobResult | null | undefined,
  t: TFunction,
  language = i18next.language,
): string | null {
  const message = result?.message;
  const words = message ? translateKnown(message, t) : null;
  if (words !== null) return words;
  const code = result?.error;
  if (!code || !(code in english.result)) return message ?? null;
  const name = t(`result.${code as "exit_code"}`);
  if (!message) return name;
  return language === "en" ? message : `${name}${t("common.colon")}${message}`;
}

/** Returns the error of a failure group: its exit code, or the text of its error code or cause. */
export function failureError({ error, exit_code: code }: FailureGroup, t: TFunction): string {
  if (code != null) return t("failureGroup.exitCode", { code });
  if (error in english.result) return t(`result.${error as "exit_code"}`);
  return error in english.cause ? t(`cause.${error as "deadline_passed"}`) : error;
}

/**
 * Returns the newest message of a failure group in one line, and its error, which is null if the message says it: if the
 * message is one of Belfry's own, or absent.
 */
export function failureText(group: FailureGroup, t: TFunction): { message: string; error: string | null } {
  const error = failureError(group, t);
  if (group.message === "") return { message: error, error: null };
  const words = translateKnown(group.message, t);
  return words === null ? { message: group.message, error } : { message: words, error: null };
}

/** Returns why a step or an element has its status: its cause, then its message. */
export function stepReasonText(
  { cause, message }: Pick<RunStepState, "cause" | "message">,
  t: TFunction,
): string {
  const words = cause ? t(`stepCause.${cause}`) : "";
  if (!message) return words;
  return words ? `${words}${t("common.colon")}${translateMessage(message, t)}` : translateMessage(message, t);
}

/** Returns the attempt number and the maximum, such as `2 of 3`. */
export function attemptText({ number, max }: Pick<RunAttempt, "number" | "max">, t: TFunction): string {
  return t("run.attemptOf", { number, max });
}
