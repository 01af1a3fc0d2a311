/** Says how many jobs an action concerns before it is done, and how far it has come. */

import { Button, Group, Modal, Progress as Bar, Stack, Text } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { Refusal } from "../../api/problem";
import type { JobsQuery } from "../../lib/filters";
import { say } from "../../ui/act";
import { ProblemBox } from "../../ui/kit";
import { actOnAll, BULK_MAX, type BulkAction, findFit, type Progress } from "./bulk";

/** These jobs, or all that match a query. */
export type Target = { ids: readonly string[] } | { query: JobsQuery };

export function BulkDialog(props: {
  action: BulkAction;
  target: Target;
  onClose: () => void;
  onDone: () => void;
}) {
  const { action, target, onClose, onDone } = props;
  const { t } = useTranslation();
  const [ids, setIds] = useState<readonly string[] | null>("ids" in target ? target.ids : null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [progress, setProgress] = useState<Progress | null>(null);
  const [abort] = useState(() => new AbortController());

  useEffect(() => {
    if (!("query" in target)) return;
    const reading = new AbortController();
    findFit(action, target.query, reading.signal).then(setIds, (error: unknown) => {
      if (!reading.signal.aborted) setRefusal(Refusal.from(error));
    });
    return () => reading.abort();
  }, [action, target]);

  const count = ids?.length ?? 0;
  const start = async () => {
    if (!ids) return;
    setProgress({ done: 0, failed: 0 });
    const { done, failed } = await actOnAll(action, ids, setProgress, abort.signal);
    say(failed === 0 ? t(`bulk.${action}.done`, { count: done }) : t("bulk.someFailed", { done, failed }));
    onDone();
  };
  const close = () => {
    abort.abort();
    onClose();
  };

  return (
    <Modal opened onClose={close} title={t(`bulk.${action}.title`)} size={420}>
      <Stack gap="md">
        {refusal && <ProblemBox error={refusal} />}
        {!refusal && !progress && (
          <Text size="sm" aria-live="polite">
            {ids === null && t("bulk.counting")}
            {ids !== null && count === 0 && t(`bulk.${action}.none`)}
            {count > 0 && t(`bulk.${action}.ask`, { count })}
            {count >= BULK_MAX && ` ${t("bulk.capped", { max: BULK_MAX })}`}
          </Text>
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
              color={action === "cancel" ? "red" : undefined}
              disabled={count === 0}
              loading={ids === null && !refusal}
              onClick={() => void start()}
            >
              {t(`bulk.${action}.act`, { count })}
            </Button>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}
