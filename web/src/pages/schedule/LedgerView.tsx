/** The ledger of a schedule: for each scheduled time the job or run that was created, or why there is none. */

import { Button, Select } from "@mantine/core";
import { useInfiniteQuery, keepPreviousData } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { BookOpenText, Check, Clock, History, Minus, X } from "lucide-react";
import { useTranslation } from "react-i18next";

import { fetchLedger } from "../../api/schedules";
import type { FiringOutcome, LedgerEntry, Schedule } from "../../api/schema";
import type { ScheduleSearch } from "../../app/router";
import { CAUSES, OUTCOMES, parseOutcomes, outcomeTone } from "../../lib/outcomes";
import { reasonText } from "../../lib/codeTexts";
import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import { formatExact, inZones, type Zone } from "../../lib/time";
import { EmptyState, Loading, ErrorBox } from "../../ui/kit";
import { RunBadge, StatusBadge, ToneBadge } from "../../ui/Status";
import filters from "../../ui/filters.module.css";
import frame from "../../ui/list.module.css";
import style from "./ledger.module.css";

/** Delay from which a late firing is labelled. */
const DELAY_SHOWN_MS = 1_000;

interface Props {
  schedule: Schedule;
  search: ScheduleSearch;
  onChange: (part: Partial<ScheduleSearch>) => void;
}

export function LedgerView({ schedule, search, onChange }: Props) {
  const { t } = useTranslation();
  const outcome = parseOutcomes(search.outcome);
  const cause = CAUSES.find((each) => each === search.cause);
  const { backfill } = search;
  const ledger = useInfiniteQuery({
    queryKey: ["schedule", schedule.id, "ledger", { outcome, cause, backfill }],
    queryFn: ({ pageParam }) => fetchLedger(schedule.id, { outcome, cause, backfill }, pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    placeholderData: keepPreviousData,
  });
  const counts = ledger.data?.pages[0]?.counts ?? {};
  const entries = ledger.data?.pages.flatMap((page) => page.items);
  const known = OUTCOMES.filter((each) => counts[each] !== undefined || outcome.includes(each));
  const toggle = (each: FiringOutcome) => {
    const next = outcome.includes(each) ? outcome.filter((other) => other !== each) : [...outcome, each];
    onChange({ outcome: next.join(",") || undefined });
  };

  return (
    <div>
      <div className={style.bar}>
        <div className={`${filters.chips} ${style.outcomes}`} role="group" aria-label={t("ledger.outcome")}>
          {known.map((each) => (
            <button
              key={each}
              type="button"
              aria-pressed={outcome.includes(each)}
              data-tone={outcomeTone(each)}
              onClick={() => toggle(each)}
            >
              {t(`outcome.${each}`)} <span className="num">{counts[each]?.toLocaleString() ?? "–"}</span>
            </button>
          ))}
        </div>
        {backfill && (
          <Button
            variant="default"
            rightSection={<X size={12} />}
            onClick={() => onChange({ backfill: undefined })}
          >
            {t("ledger.ofBackfill", { id: `…${backfill.slice(-6)}` })}
          </Button>
        )}
        <Select
          aria-label={t("ledger.cause")}
          placeholder={t("ledger.anyCause")}
          value={cause ?? null}
          onChange={(value) => onChange({ cause: value ?? undefined })}
          data={CAUSES.map((value) => ({ value, label: t(`firingCause.${value}`) }))}
          clearable
          className={style.cause}
        />
      </div>
      {ledger.error && !entries && <ErrorBox error={ledger.error} onRetry={() => void ledger.refetch()} />}
      {!entries && !ledger.error && (
        <div className={style.padded}>
          <Loading rows={6} />
        </div>
      )}
      {entries?.length === 0 && (
        <EmptyState icon={BookOpenText} title={t("ledger.none")}>
          {t("ledger.noneText")}
        </EmptyState>
      )}
      <ol className={style.entries} data-testid="ledger">
        {entries?.map((entry) => (
          <Entry
            key={`${entry.scheduled_for} ${entry.cause} ${entry.generation}`}
            entry={entry}
            scheduleZone={schedule.zone}
          />
        ))}
      </ol>
      {ledger.hasNextPage && (
        <div className={frame.more}>
          <Button
            variant="default"
            loading={ledger.isFetchingNextPage}
            onClick={() => void ledger.fetchNextPage()}
          >
            {t("ledger.more")}
          </Button>
        </div>
      )}
    </div>
  );
}

const ICONS = {
  succeeded: Check,
  retrying: History,
  waiting: Clock,
  cancelled: Minus,
  expired: Minus,
  failed: X,
};

function Entry({ entry, scheduleZone }: { entry: LedgerEntry; scheduleZone: Zone }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const tone = outcomeTone(entry.outcome);
  const delay = Date.parse(entry.decided_at) - Date.parse(entry.scheduled_for);
  const created = entry.outcome === "fired" || entry.outcome === "fired_late";
  return (
    <li data-outcome={entry.outcome}>
      <span className={style.at}>
        <time
          dateTime={entry.scheduled_for}
          title={`${inZones(entry.scheduled_for, language, [scheduleZone, "local"])}\n${t("ledger.decided", { at: formatExact(entry.decided_at, language, zone), tzdb: entry.tzdb })}`}
          className="num"
        >
          {formatExact(entry.scheduled_for, language, zone)}
        </time>
        {entry.count > 1 && (
          <span className="quiet num">
            {t("ledger.until", { at: formatExact(entry.last, language, zone) })}
          </span>
        )}
      </span>
      <span className={style.outcome}>
        <ToneBadge
          tone={tone}
          icon={ICONS[tone as keyof typeof ICONS]}
          word={t(`outcome.${entry.outcome}`)}
          plain
        />
        {entry.count > 1 && (
          <strong className="num">
            {entry.exact ? "×" : "≥ "}
            {entry.count.toLocaleString()}
          </strong>
        )}
      </span>
      <span className={style.why}>
        {entry.cause !== "timer" && <span>{t(`firingCause.${entry.cause}`)}</span>}
        {created && entry.cause !== "backfill" && delay > DELAY_SHOWN_MS && (
          <span className="quiet">{t("ledger.lag", { length: formatDuration(delay) })}</span>
        )}
        {entry.detail && <span className="quiet">{reasonText(entry, t)}</span>}
      </span>
      <span className={style.job}>
        {entry.job_id && (
          <Link
            to="/jobs/$id"
            params={{ id: entry.job_id }}
            aria-label={`${t("ledger.run", { id: entry.job_id })}${entry.job_status ? `: ${t(`status.${entry.job_status}`)}` : ""}`}
          >
            {entry.job_status ? (
              <StatusBadge status={entry.job_status} plain />
            ) : (
              <code>…{entry.job_id.slice(-8)}</code>
            )}
          </Link>
        )}
        {entry.run_id && (
          <Link
            to="/runs/$id"
            params={{ id: entry.run_id }}
            aria-label={`${t("ledger.run", { id: entry.run_id })}${entry.run_status ? `: ${t(`runStatus.${entry.run_status}`)}` : ""}`}
          >
            {entry.run_status ? (
              <RunBadge status={entry.run_status} plain />
            ) : (
              <code>…{entry.run_id.slice(-8)}</code>
            )}
          </Link>
        )}
      </span>
    </li>
  );
}
