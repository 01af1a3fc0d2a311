/** Starts a backfill; shows the planned runs first. */

import { Accordion, Button, Group, Modal, NumberInput, Select, Switch, TextInput } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import { planBackfill, startBackfill } from "../../api/schedules";
import type { BackfillPlan, Reprocess, Schedule, StartBackfill } from "../../api/schema";
import { usePreferences } from "../../lib/preferences";
import { formatExact, parseWallTime, toWallTime, zoneName } from "../../lib/time";
import { notify } from "../../ui/notify";
import { Loading, ErrorBox } from "../../ui/kit";
import style from "./backfill.module.css";

const PLAN_DELAY_MS = 300;
const DAY = 86_400_000;
const TIMES_SHOWN = 6;

interface Props {
  schedule: Schedule;
  onClose: () => void;
}

export function BackfillDialog({ schedule, onClose }: Props) {
  const { t } = useTranslation();
  const { zone } = usePreferences();
  const navigate = useNavigate();
  const [opened] = useState(() => Date.now());
  const [from, setFrom] = useState(() => toWallTime(opened - DAY, zone));
  const [until, setUntil] = useState(() => toWallTime(opened, zone));
  const [options, setOptions] = useState<Omit<StartBackfill, "from" | "until">>({ concurrency: 1 });
  const [busy, setBusy] = useState(false);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const set = (part: Partial<StartBackfill>) => setOptions((before) => ({ ...before, ...part }));
  const isComplete = from !== "" && until !== "";
  const request: StartBackfill | null = isComplete
    ? {
        ...options,
        from: new Date(parseWallTime(from, zone)).toISOString(),
        until: new Date(Math.min(parseWallTime(until, zone), opened)).toISOString(),
      }
    : null;
  const plan = usePlan(schedule.id, request);

  const start = async () => {
    if (!request) return;
    setBusy(true);
    setApiError(null);
    try {
      await startBackfill(schedule.id, request);
      notify(t("backfill.started"));
      onClose();
      void navigate({
        to: "/schedules/$id",
        params: { id: schedule.id },
        search: { tab: "backfills" },
        replace: true,
      });
    } catch (error) {
      setApiError(ApiError.from(error));
      setBusy(false);
    }
  };

  const count = plan && !(plan instanceof ApiError) ? plan.scheduled_times.length : 0;
  return (
    <Modal opened onClose={onClose} title={t("backfill.title", { name: schedule.name })} size={560}>
      <form
        className={style.form}
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        <div className={style.pair}>
          <TextInput
            type="datetime-local"
            label={t("backfill.from")}
            value={from}
            onChange={(event) => setFrom(event.currentTarget.value)}
          />
          <TextInput
            type="datetime-local"
            label={t("backfill.until")}
            value={until}
            onChange={(event) => setUntil(event.currentTarget.value)}
          />
        </div>
        <p className={style.zone}>{t("backfill.zone", { zone: zoneName(zone) })}</p>
        <div className={style.pair}>
          <Select
            label={t("backfill.reprocess")}
            value={options.reprocess ?? "none"}
            onChange={(value) => set({ reprocess: value ?? undefined })}
            data={(["none", "failed", "all"] as const satisfies readonly Reprocess[]).map((value) => ({
              value,
              label: t(`reprocess.${value}`),
            }))}
            allowDeselect={false}
          />
          <NumberInput
            label={t("backfill.concurrency")}
            min={1}
            max={1_000}
            value={options.concurrency ?? 1}
            onChange={(value) => set({ concurrency: value === "" ? undefined : Number(value) })}
          />
        </div>
        <Accordion chevronPosition="left" classNames={{ root: style.more, content: style.moreContent }}>
          <Accordion.Item value="more">
            <Accordion.Control>{t("common.more")}</Accordion.Control>
            <Accordion.Panel>
              <div className={style.pair}>
                <NumberInput
                  label={t("submit.priority")}
                  min={0}
                  max={100}
                  placeholder="10"
                  value={options.priority ?? ""}
                  onChange={(value) => set({ priority: value === "" ? undefined : Number(value) })}
                />
                <Select
                  label={t("policy.overlap")}
                  value={options.overlap ?? "buffer_all"}
                  onChange={(value) => set({ overlap: value ?? undefined })}
                  data={(["buffer_all", "allow_all"] as const).map((value) => ({
                    value,
                    label: t(`backfillOverlap.${value}`),
                  }))}
                  allowDeselect={false}
                />
              </div>
              <TextInput
                label={t("queue.note")}
                placeholder={t("common.optional")}
                value={options.note ?? ""}
                onChange={(event) => set({ note: event.currentTarget.value || undefined })}
              />
              <Switch
                label={t("backfill.newestFirst")}
                checked={options.newest_first ?? false}
                onChange={(event) => set({ newest_first: event.currentTarget.checked || undefined })}
              />
            </Accordion.Panel>
          </Accordion.Item>
        </Accordion>
        <Plan plan={plan} />
        {apiError && <ErrorBox error={apiError} />}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            {t("common.back")}
          </Button>
          <Button type="submit" loading={busy} disabled={count === 0}>
            {t("backfill.startCount", { count })}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}

/** Returns the server's plan, a moment after the last change; null while it is unknown. */
function usePlan(id: string, wanted: StartBackfill | null): BackfillPlan | ApiError | null {
  const [plan, setPlan] = useState<BackfillPlan | ApiError | null>(null);
  const key = wanted && JSON.stringify(wanted);
  useEffect(() => {
    if (key === null) return;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      planBackfill(id, JSON.parse(key) as StartBackfill, abort.signal).then(setPlan, (error: unknown) => {
        if (!abort.signal.aborted) setPlan(ApiError.from(error));
      });
    }, PLAN_DELAY_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [id, key]);
  return plan;
}

function Plan({ plan }: { plan: BackfillPlan | ApiError | null }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  if (plan instanceof ApiError) return <ErrorBox error={plan} />;
  if (!plan) return <Loading rows={2} />;
  const reasons = new Map<string, number>();
  for (const { reason } of plan.left_out) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  return (
    <div className={style.plan} role="status" data-testid="plan">
      <strong>{t("backfill.plan", { count: plan.scheduled_times.length })}</strong>
      {plan.scheduled_times.length > 0 && (
        <ul>
          {plan.scheduled_times.slice(0, TIMES_SHOWN).map((at) => (
            <li key={at} className="num">
              {formatExact(at, language, zone)}
            </li>
          ))}
          {plan.scheduled_times.length > TIMES_SHOWN && (
            <li className="quiet">
              {t("backfill.more", { count: plan.scheduled_times.length - TIMES_SHOWN })}
            </li>
          )}
        </ul>
      )}
      {plan.left_out_count > 0 && (
        <p className="quiet">
          {t("backfill.leftOut", { count: plan.left_out_count })}{" "}
          {[...reasons]
            .map(([reason, count]) => `${t(`leftOut.${reason as "excluded"}`)} ${count}`)
            .join(t("common.listSeparator"))}
        </p>
      )}
    </div>
  );
}
