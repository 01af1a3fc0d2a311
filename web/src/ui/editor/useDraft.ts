/** A spec while it is written: its text, what the text says, and what the server says to that. */

import type { Diagnostic } from "@codemirror/lint";
import { useEffect, useMemo, useState } from "react";

import { ApiError } from "../../api/errors";
import { setMember, type Parsed, parseSpec, rangeOf } from "../../lib/spec";

const CHECK_DELAY_MS = 350;

export type Verdict = "checking" | "fine" | ApiError;

export interface Draft<T> extends Parsed<T> {
  /** YAML, or JSON, which is YAML. */
  text: string;
  verdict: Verdict;
  /** The last apiError; it stays until the server has answered to a change. */
  apiError: ApiError | null;
  diagnostics: Diagnostic[];
  isValid: boolean;
  change: (text: string) => void;
  /** Sets one member, or takes it out; the rest of the text stays as it was written. */
  set: (path: string[], value: unknown) => void;
}

/** `check` throws a Refusal for what the server would not take; it must not change between renders. */
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
  // From what the text is by then: one act may set several members.
  const set = (path: string[], value: unknown) => setText((before) => setMember(before, path, value));
  const isValid = spec !== null && verdict === "fine";
  return { text, spec, error, verdict, apiError, diagnostics, isValid, change: setText, set };
}

/** What the server says to a spec, a moment after its last change. */
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
