/** Errors of API requests: refusals by the server, and failures of the connection. */

import type { FieldError, Problem } from "./schema";

/** Error of an API request. */
export class ApiError extends Error {
  /** Stable error code: one of the server's, or `unreachable`, `not_loaded`, or `unexpected`. */
  readonly code: string;
  /** HTTP status; 0 without a response. */
  readonly status: number;
  readonly hint: string | null;
  /** Request id, as in the server's log. */
  readonly instance: string | null;
  /** Invalid fields of the request. */
  readonly fields: readonly FieldError[];
  /** Delay after which the request may succeed, in ms; null if the server named none. */
  readonly retryAfterMs: number | null;

  constructor(
    code: string,
    status: number,
    detail: string,
    more: {
      hint?: string | null;
      instance?: string | null;
      fields?: readonly FieldError[];
      retryAfterMs?: number | null;
    } = {},
  ) {
    super(detail);
    this.name = "Refusal";
    this.code = code;
    this.status = status;
    this.hint = more.hint ?? null;
    this.instance = more.instance ?? null;
    this.fields = more.fields ?? [];
    this.retryAfterMs = more.retryAfterMs ?? null;
  }

  static of(problem: Problem, retryAfterMs: number | null = null): ApiError {
    return new ApiError(problem.code, problem.status, problem.detail, {
      hint: problem.hint,
      instance: problem.instance,
      fields: problem.errors,
      retryAfterMs,
    });
  }

  /** Creates an error from an unsuccessful response with any body. */
  static async ofResponse(response: Response): Promise<ApiError> {
    const text = await response.text().catch(() => "");
    return ApiError.ofBody(parseJson(text), response, text);
  }

  /** Creates an error from an unsuccessful response whose body was read. */
  static ofBody(body: unknown, { status, headers }: Response, text = ""): ApiError {
    return isProblem(body)
      ? ApiError.of(body, retryAfterMs(headers))
      : new ApiError("unexpected", status, text.slice(0, 300) || `HTTP ${status}`);
  }

  /** Converts any thrown value. */
  static from(error: unknown): ApiError {
    if (error instanceof ApiError) return error;
    if (error instanceof TypeError) return new ApiError("unreachable", 0, error.message);
    return new ApiError("unexpected", 0, error instanceof Error ? error.message : String(error));
  }
}

/** Returns the delay that a response names in seconds, in ms. The server sends no dates. */
function retryAfterMs(headers: Headers): number | null {
  const seconds = Number(headers.get("Retry-After") ?? NaN);
  return Number.isFinite(seconds) ? 1_000 * seconds : null;
}

/** Key of a localized message for an error; the server's message is shown for other errors. */
export type MessageKey =
  | "unreachable"
  | "unexpected"
  | "notLoaded"
  | "leaderless"
  | "outcomeUnknown"
  | "noOtherServer"
  | "loginFailed"
  | "loginThrottled"
  | "wrongCode"
  | "noInvitation";

export function messageKey({ code }: ApiError): MessageKey | null {
  switch (code) {
    case "unreachable":
    case "unexpected":
      return code;
    case "not_loaded":
      return "notLoaded";
    case "loading":
      return "leaderless";
    case "outcome_unknown":
      return "outcomeUnknown";
    case "no_other_server":
      return "noOtherServer";
    case "login_failed":
      return "loginFailed";
    case "login_throttled":
      return "loginThrottled";
    case "second_factor_required":
      return "wrongCode";
    case "invitation_not_found":
      return "noInvitation";
    default:
      return null;
  }
}

/** Matches hints of the server for API clients: they name headers, methods and fields of the API. */
const API_HINT =
  /`(Authorization|Allow|Content-Type|Retry-After|cursor|errors|overlap|repeat)\b|\b(GET|PUT|POST|PATCH)\b|`belfry auth|\bETag\b|\/docs\b|\/readyz/;

/** Keys of the dashboard's own hints, by error code. */
const HINTS = {
  unauthenticated: "token",
  forbidden: "askForRole",
  cross_site: "ownAddress",
  invalid_parameter: "address",
  invalid_header: "defect",
  invalid_cursor: "reload",
  not_found: "address",
  method_not_allowed: "defect",
  unsupported_media_type: "defect",
  checkpoint_not_found: "saved",
  failure_group_not_found: "gone",
  account_not_found: "gone",
  role_not_found: "gone",
  binding_not_found: "gone",
  token_not_found: "gone",
  audit_entry_not_found: "gone",
  alert_not_found: "gone",
  alert_rule_not_found: "gone",
  channel_not_found: "gone",
  silence_not_found: "gone",
  monitor_not_found: "gone",
  secret_not_found: "gone",
  alert_resolved: "reload",
  alert_lasting: "reload",
  worker_not_found: "gone",
  server_not_found: "gone",
  member_not_found: "gone",
  queue_not_found: "queue",
  namespace_not_found: "reload",
  artifact_not_found: "gone",
  schedule_not_found: "gone",
  backfill_not_found: "gone",
  calendar_not_found: "gone",
  workflow_not_found: "gone",
  service_not_found: "gone",
  revision_unavailable: "revisions",
  rollout_status: "reload",
  step_not_found: "gone",
  job_ended: "retry",
  run_ended: "retry",
  step_ended: "retryRun",
  approval_not_pending: "why",
  repeat_forbidden: "repeat",
  account_exists: "otherAccount",
  schedule_exists: "otherName",
  schedule_run_limit: "runs",
  version_mismatch: "reload",
  invalid_spec: "fields",
  client_limit: "later",
  submit_rate: "later",
  busy: "later",
  store_unavailable: "later",
} as const;

/** Returns the key of the hint that replaces the server's hint; null if the server's hint is shown. */
export function hintKey({ code, hint }: Pick<ApiError, "code" | "hint">) {
  if (!hint || !API_HINT.test(hint)) return null;
  return code in HINTS ? HINTS[code as keyof typeof HINTS] : null;
}

/** Returns whether the error is temporary, until another server has taken over. */
export function isTakeover({ status, code }: ApiError): boolean {
  return status === 503 && (code === "loading" || code === "outcome_unknown" || code === "stopping");
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export function isProblem(body: unknown): body is Problem {
  return typeof body === "object" && body !== null && "code" in body && "detail" in body && "status" in body;
}
