/** Backfills of a schedule, with their progress. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Ban, Check, History, LoaderCircle } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { backfillsQuery, cancelBackfill } from "../../api/schedules";
import type { Backfill, BackfillStatus, Schedule } from "../../api/schema";
import { usePreferences } from "../../lib/preferences";
import { formatExact } from "../../lib/time";
import { Allowed } from "../../ui/Allowed";
import { runAction } from "../../ui/notify";
import { EmptyState, Loading, ErrorBox } from "../../ui/kit";
import { ToneBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import { BackfillDialog } from "./BackfillDialog";
import style from "./backfill.module.css";

const STATUS_BADGES = {
  running: { tone: "running", icon: LoaderCircle },
  completed: { tone: "succeeded", icon: Check },
  cancelled: { tone: "cancelled", icon: Ban },
} as const satisfies Record<BackfillStatus, object>;

export function Backfills({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const [starting, setStarting] = useState(false);
  const { data, error } = useQuery(backfillsQuery(schedule.id));
  return (
    <div className={style.list} data-testid="backfills">
      {error && !data && <ErrorBox error={error} />}
      {!data && !error && <Loading />}
      {data?.items.length === 0 && (
        <EmptyState
          icon={History}
          title={t("backfill.none")}
          action={
            <Allowed verb="operate" on="schedules" in={schedule.namespace}>
              <Button variant="default" onClick={() => setStarting(true)}>
                {t("backfill.start")}
              </Button>
            </Allowed>
          }
        >
          {t("backfill.noneText")}
        </EmptyState>
      )}
      {data?.items.map((backfill) => (
        <BackfillItem key={backfill.id} backfill={backfill} namespace={schedule.namespace} />
      ))}
      {starting && <BackfillDialog schedule={schedule} onClose={() => setStarting(false)} />}
    </div>
  );
}

function BackfillItem({ backfill, namespace }: { backfill: Backfill; namespace: string }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const { total, succeeded, failed, started } = backfill;
  const part = (count: number) => ({ width: `${total > 0 ? (count / total) * 100 : 0}%` });
  return (
    <section className={style.item}>
      <header>
        <ToneBadge {...STATUS_BADGES[backfill.status]} word={t(`backfillStatus.${backfill.status}`)} />
        <strong className="num">
          {formatExact(backfill.from, language, zone)} – {formatExact(backfill.until, language, zone)}
        </strong>
        <span className={`${style.by} quiet`}>
          {backfill.created_by} · <RelativeTime at={backfill.created_at} />
        </span>
      </header>
      <div
        className={style.progress}
        role="progressbar"
        aria-label={t("bulk.progress")}
        aria-valuemin={0}
        aria-valuemax={total}
        aria-valuenow={succeeded + failed}
      >
        <i data-result="succeeded" style={part(succeeded)} />
        <i data-result="failed" style={part(failed)} />
        <i data-result="running" style={part(Math.max(0, started - succeeded - failed))} />
      </div>
      <footer>
        <span className="num">{t("backfill.done", { done: succeeded + failed, total })}</span>
        {failed > 0 && (
          <Link
            to="/jobs"
            search={{ backfill: backfill.id, status: "failed,cancelled,expired" }}
            className={`${style.failed} num`}
          >
            {t("backfill.failed", { count: failed })}
          </Link>
        )}
        {backfill.note && <q className="quiet">{backfill.note}</q>}
        <Link to="/jobs" search={{ backfill: backfill.id }} className={style.runs}>
          {t("schedule.allRuns")}
        </Link>
        {backfill.status === "running" && (
          <Allowed verb="operate" on="schedules" in={namespace}>
            <Button
              variant="default"
              leftSection={<Ban size={13} />}
              onClick={() => void runAction(() => cancelBackfill(backfill), t("backfill.cancelled"))}
            >
              {t("backfill.cancel")}
            </Button>
          </Allowed>
        )}
      </footer>
    </section>
  );
}
