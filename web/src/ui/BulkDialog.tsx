/** Dialog of a bulk action: shows the number of objects before it starts, then the progress and the errors. */

import { Button, Group, Modal, Progress as Bar, Stack, Text, TextInput } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../api/errors";
import {
  type BatchAction,
  type BulkResult,
  runBulk,
  BULK_MAX,
  groupErrors,
  type Progress,
  type RetryPolicy,
} from "../lib/bulk";
import { notify } from "./notify";
import { ErrorBox } from "./kit";
import { errorText } from "./errorText";
import style from "./bulk.module.css";

/** Ids, or a function that finds them. */
export type Target =
  { ids: readonly string[] } | { find: (signal: AbortSignal) => Promise<readonly string[]> };

interface Props {
  target: Target;
  title: string;
  /** Texts before, on the button, and after the action. */
  texts: {
    none: string;
    confirm: (count: number) => string;
    act: (count: number) => string;
    done: (count: number) => string;
  };
  /** Label of an additional text field; none by default. */
  field?: string;
  red?: boolean;
  /** `text` is that of the field. */
  act: (ids: readonly string[], text: string) => ReturnType<BatchAction>;
  /** Retry policy for temporary failures. Called when the action starts. */
  retryPolicy?: (signal: AbortSignal) => RetryPolicy;
  /** Text while some ids wait for a retry. */
  waitingText?: (count: number) => string;
  onClose: () => void;
  /** Called with the ids that failed or were not attempted, so that the user can try again. */
  onDone: (left: ReadonlySet<string>) => void;
}

export function BulkDialog(props: Props) {
  const { target, title, texts, field, red, act, retryPolicy, waitingText, onClose, onDone } = props;
  const { t } = useTranslation();
  const [ids, setIds] = useState<readonly string[] | null>("ids" in target ? target.ids : null);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const [progress, setProgress] = useState<Progress | null>(null);
  const [outcome, setOutcome] = useState<BulkResult | null>(null);
  const [text, setText] = useState("");
  const [abort] = useState(() => new AbortController());

  useEffect(() => {
    if (!("find" in target)) return;
    const reading = new AbortController();
    target.find(reading.signal).then(setIds, (error: unknown) => {
      if (!reading.signal.aborted) setApiError(ApiError.from(error));
    });
    return () => reading.abort();
  }, [target]);

  const count = ids?.length ?? 0;
  const start = async () => {
    if (!ids) return;
    setProgress({ done: 0, failed: 0, waiting: 0 });
    const { signal } = abort;
    const acted = await runBulk(
      ids,
      (some) => act(some, text.trim()),
      setProgress,
      signal,
      retryPolicy?.(signal),
    );
    // Releases the listeners of the retry policy.
    abort.abort();
    const remaining = new Set([...acted.errors.keys(), ...acted.notAttempted]);
    if (remaining.size === 0) notify(texts.done(acted.done));
    else setOutcome(acted);
    onDone(remaining);
  };
  const close = () => {
    abort.abort();
    onClose();
  };

  if (outcome) return <Result acted={outcome} title={title} onClose={onClose} />;
  return (
    <Modal opened onClose={close} title={title} size={420}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (count > 0 && !progress) void start();
        }}
      >
        <Stack gap="md">
          {apiError && <ErrorBox error={apiError} />}
          {!apiError && !progress && (
            <Text size="sm" aria-live="polite">
              {ids === null && t("bulk.counting")}
              {ids !== null && count === 0 && texts.none}
              {count > 0 && texts.confirm(count)}
              {count >= BULK_MAX && ` ${t("bulk.capped", { max: BULK_MAX })}`}
            </Text>
          )}
          {field && !progress && count > 0 && (
            <TextInput
              label={field}
              placeholder={t("common.optional")}
              value={text}
              onChange={(event) => setText(event.currentTarget.value)}
            />
          )}
          {progress && (
            <>
              <Bar
                value={((progress.done + progress.failed) / Math.max(1, count)) * 100}
                aria-label={t("bulk.progress")}
              />
              <Text size="sm" className="num">
                {progress.done + progress.failed} / {count}
              </Text>
              {progress.waiting > 0 && waitingText && (
                <Text size="sm" role="status">
                  {waitingText(progress.waiting)}
                </Text>
              )}
            </>
          )}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={progress ? () => abort.abort() : close}>
              {progress ? t("bulk.stop") : t("common.back")}
            </Button>
            {!progress && (
              <Button
                type="submit"
                color={red ? "red" : undefined}
                disabled={count === 0}
                loading={ids === null && !apiError}
              >
                {texts.act(count)}
              </Button>
            )}
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

/** Result with errors: each error code once, with its count. */
function Result({ acted, title, onClose }: { acted: BulkResult; title: string; onClose: () => void }) {
  const { t } = useTranslation();
  const { done, errors, notAttempted } = acted;
  return (
    <Modal opened onClose={onClose} title={title} size={560}>
      <Stack gap="md">
        <Text size="sm" role="status">
          {t("bulk.someFailed", { done, failed: errors.size })}
          {notAttempted.length > 0 && t("bulk.notAttempted", { count: notAttempted.length })}{" "}
          {t("bulk.stillSelected")}
        </Text>
        <ul className={style.refusals} data-testid="refusals">
          {groupErrors(errors.values()).map(({ example, count }) => {
            const { title, hint } = errorText(example, t);
            return (
              <li key={example.code}>
                <strong className="num">{count}</strong>
                <div>
                  <p>{title}</p>
                  {hint && <p className="quiet">{hint}</p>}
                  <code>{example.code}</code>
                </div>
              </li>
            );
          })}
        </ul>
        <Group justify="flex-end">
          <Button onClick={onClose}>{t("common.close")}</Button>
        </Group>
      </Stack>
    </Modal>
  );
}
