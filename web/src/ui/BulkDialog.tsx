/** Says how many an action concerns before it is done, and how far it has come. */

import { Button, Group, Modal, Progress as Bar, Stack, Text, TextInput } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { Refusal } from "../api/problem";
import { type Acted, actOnAll, BULK_MAX, grouped, type Progress, type Turns } from "../lib/bulk";
import { say } from "./act";
import { ProblemBox } from "./kit";
import { wordsOf } from "./problem";
import style from "./bulk.module.css";

/** These, or those that are found. */
export type Target =
  { ids: readonly string[] } | { find: (signal: AbortSignal) => Promise<readonly string[]> };

interface Props {
  target: Target;
  title: string;
  /** What is said of so many, before, on the button, and after. */
  words: {
    none: string;
    ask: (count: number) => string;
    act: (count: number) => string;
    done: (count: number) => string;
  };
  /** What is asked for besides; nothing where absent. */
  field?: string;
  red?: boolean;
  act: (id: string, text: string) => Promise<unknown>;
  /** Refusals that pass by themselves: those are waited for. Called when the action begins. */
  turns?: (signal: AbortSignal) => Turns;
  /** What is said while some wait for their turn. */
  waitingWords?: (count: number) => string;
  onClose: () => void;
  /** What is not done, which may be tried again. */
  onDone: (left: ReadonlySet<string>) => void;
}

export function BulkDialog(props: Props) {
  const { target, title, words, field, red, act, turns, waitingWords, onClose, onDone } = props;
  const { t } = useTranslation();
  const [ids, setIds] = useState<readonly string[] | null>("ids" in target ? target.ids : null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [progress, setProgress] = useState<Progress | null>(null);
  const [outcome, setOutcome] = useState<Acted | null>(null);
  const [text, setText] = useState("");
  const [abort] = useState(() => new AbortController());

  useEffect(() => {
    if (!("find" in target)) return;
    const reading = new AbortController();
    target.find(reading.signal).then(setIds, (error: unknown) => {
      if (!reading.signal.aborted) setRefusal(Refusal.from(error));
    });
    return () => reading.abort();
  }, [target]);

  const count = ids?.length ?? 0;
  const start = async () => {
    if (!ids) return;
    setProgress({ done: 0, failed: 0, waiting: 0 });
    const { signal } = abort;
    const acted = await actOnAll(ids, (id) => act(id, text.trim()), setProgress, signal, turns?.(signal));
    // Nothing is waited for any more.
    abort.abort();
    const left = new Set([...acted.refused.keys(), ...acted.left]);
    if (left.size === 0) say(words.done(acted.done));
    else setOutcome(acted);
    onDone(left);
  };
  const close = () => {
    abort.abort();
    onClose();
  };

  if (outcome) return <Outcome acted={outcome} title={title} onClose={onClose} />;
  return (
    <Modal opened onClose={close} title={title} size={420}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (count > 0 && !progress) void start();
        }}
      >
        <Stack gap="md">
          {refusal && <ProblemBox error={refusal} />}
          {!refusal && !progress && (
            <Text size="sm" aria-live="polite">
              {ids === null && t("bulk.counting")}
              {ids !== null && count === 0 && words.none}
              {count > 0 && words.ask(count)}
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
              {progress.waiting > 0 && waitingWords && (
                <Text size="sm" role="status">
                  {waitingWords(progress.waiting)}
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
                loading={ids === null && !refusal}
              >
                {words.act(count)}
              </Button>
            )}
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

/** What was refused, and why: each reason once. */
function Outcome({ acted, title, onClose }: { acted: Acted; title: string; onClose: () => void }) {
  const { t } = useTranslation();
  const { done, refused, left } = acted;
  return (
    <Modal opened onClose={onClose} title={title} size={560}>
      <Stack gap="md">
        <Text size="sm" role="status">
          {t("bulk.someFailed", { done, failed: refused.size })}
          {left.length > 0 && t("bulk.notTried", { count: left.length })} {t("bulk.stillSelected")}
        </Text>
        <ul className={style.refusals} data-testid="refusals">
          {grouped(refused.values()).map(({ example, count }) => {
            const { title, hint } = wordsOf(example, t);
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
