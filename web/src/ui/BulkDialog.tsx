/** Says how many an action concerns before it is done, and how far it has come. */

import { Button, Group, Modal, Progress as Bar, Stack, Text, TextInput } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { Refusal } from "../api/problem";
import { actOnAll, BULK_MAX, type Progress } from "../lib/bulk";
import { say } from "./act";
import { ProblemBox } from "./kit";

/** These, or those that are found. */
export type Target = { ids: readonly string[] } | { find: (signal: AbortSignal) => Promise<string[]> };

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
  onClose: () => void;
  onDone: () => void;
}

export function BulkDialog({ target, title, words, field, red, act, onClose, onDone }: Props) {
  const { t } = useTranslation();
  const [ids, setIds] = useState<readonly string[] | null>("ids" in target ? target.ids : null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [progress, setProgress] = useState<Progress | null>(null);
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
    setProgress({ done: 0, failed: 0 });
    const acted = await actOnAll(ids, (id) => act(id, text.trim()), setProgress, abort.signal);
    const { done, failed } = acted;
    say(failed === 0 ? words.done(done) : t("bulk.someFailed", { done, failed }));
    onDone();
  };
  const close = () => {
    abort.abort();
    onClose();
  };

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
            </>
          )}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={close}>
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
