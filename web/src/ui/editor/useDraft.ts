/** State of a spec editor: the text, its parsed spec, and the result of the server's validation. */

import type { Diagnostic } from "@codemirror/lint";
import { useEffect, useMemo, useState } from "react";

import { ApiError } from "../../api/errors";
import { setMember, type Parsed, parseSpec, rangeOf } from "../../lib/spec";

const CHECK_DELAY_MS = 350;

export type Verdict = "checking" | "fine" | ApiError;

export interface Draft<T> extends Parsed<T> {
  /** YAML or JSON. */
  text: string;
  verdict: Verdict;
  /** Last validation error; kept until the server has validated the changed spec. */
  apiError: ApiError | null;
  diagnostics: Diagnostic[];
  isValid: boolean;
  change: (text: string) => void;
  /** Sets one member, or removes it if `value` is undefined; the rest of the text is kept. */
  set: (path: string[], value: unknown) => void;
}

/** `check` throws an ApiError for an invalid spec; it must be the same function in every render. */
export function useDraft<T extends object>(
  initial: string,
  check: (spec: T, signal: AbortSignal) => Promise<unknown>,
): Draft<T> {
  const [text, setText] = useState(initial);
  const { spec, error } = useMemo(() => parseSpec<T>(text), [text]);
  const verdict = useVerdict(spec, check);
  const apiError = verdict instanceof ApiError ? verdict : null;
  const diagnostics = useMemo((): Diagnostic[] => {
    if (error) return [{ from: error.from, to: error.to, severity: "error", message: error.message }];
    return (apiError?.fields ?? []).map((field) => {
      const [from, to] = rangeOf(text, field.path);
      return { from, to, severity: "error", message: `${field.path}: ${field.detail}` };
    });
  }, [error, apiError, text]);
  // Uses the latest text: one action may set several members.
  const set = (path: string[], value: unknown) => setText((before) => setMember(before, path, value));
  const isValid = spec !== null && verdict === "fine";
  return { text, spec, error, verdict, apiError, diagnostics, isValid, change: setText, set };
}

/** Validates a spec on the server, a moment after its last change. */
function useVerdict<T extends object>(
  spec: T | null,
  check: (spec: T, signal: AbortSignal) => Promise<unknown>,
): Verdict {
  const [verdict, setVerdict] = useState<Verdict>("checking");
  const key = spec && JSON.stringify(spec);
  useEffect(() => {
    if (key === null) return;
    const abort = new AbortController();
    setVerdict((before) => (before instanceof ApiError ? before : "checking"));
    const timer = setTimeout(() => {
      check(JSON.parse(key) as T, abort.signal).then(
        () => setVerdict("fine"),
        (error: unknown) => {
          if (!abort.signal.aborted) setVerdict(ApiError.from(error));
        },
      );
    }, CHECK_DELAY_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key, check]);
  return verdict;
}
