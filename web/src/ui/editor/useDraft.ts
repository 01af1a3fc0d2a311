/** A spec while it is written: its text, what the text says, and what the server says to that. */

import type { Diagnostic } from "@codemirror/lint";
import { useEffect, useMemo, useState } from "react";

import { Refusal } from "../../api/problem";
import { edited, type Parsed, parseSpec, rangeOf } from "../../lib/spec";

const CHECK_AFTER_MS = 350;

export type Verdict = "checking" | "fine" | Refusal;

export interface Draft<T> extends Parsed<T> {
  /** YAML, or JSON, which is YAML. */
  text: string;
  verdict: Verdict;
  /** The last refusal; it stays until the server has answered to a change. */
  refusal: Refusal | null;
  diagnostics: Diagnostic[];
  isFine: boolean;
  change: (text: string) => void;
  /** Sets one member, or takes it out; the rest of the text stays as it was written. */
  set: (path: string[], value: unknown) => void;
}

/** `check` throws a Refusal for what the server would not take; it must not change between renders. */
export function useDraft<T extends object>(
  start: string,
  check: (spec: T, signal: AbortSignal) => Promise<unknown>,
): Draft<T> {
  const [text, setText] = useState(start);
  const { spec, error } = useMemo(() => parseSpec<T>(text), [text]);
  const verdict = useVerdict(spec, check);
  const refusal = verdict instanceof Refusal ? verdict : null;
  const diagnostics = useMemo((): Diagnostic[] => {
    if (error) return [{ from: error.from, to: error.to, severity: "error", message: error.message }];
    return (refusal?.fields ?? []).map((field) => {
      const [from, to] = rangeOf(text, field.path);
      return { from, to, severity: "error", message: `${field.path}: ${field.detail}` };
    });
  }, [error, refusal, text]);
  // From what the text is by then: one act may set several members.
  const set = (path: string[], value: unknown) => setText((before) => edited(before, path, value));
  const isFine = spec !== null && verdict === "fine";
  return { text, spec, error, verdict, refusal, diagnostics, isFine, change: setText, set };
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
    setVerdict((before) => (before instanceof Refusal ? before : "checking"));
    const timer = setTimeout(() => {
      check(JSON.parse(key) as T, abort.signal).then(
        () => setVerdict("fine"),
        (error: unknown) => {
          if (!abort.signal.aborted) setVerdict(Refusal.from(error));
        },
      );
    }, CHECK_AFTER_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key, check]);
  return verdict;
}
