/** The live event feed. */

import { Button, SegmentedControl, TextInput } from "@mantine/core";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Activity, Pause, Play, Search } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { feed } from "../../api/feed";
import { useWorkerName } from "../../api/queries";
import type { FeedEvent } from "../../api/schema";
import { useNarrow } from "../../lib/narrow";
import { usePreferences } from "../../lib/preferences";
import { formatClock, formatExact } from "../../lib/time";
import { usePageTitle } from "../../lib/title";
import { EmptyState, Page } from "../../ui/kit";
import { StatusBadge } from "../../ui/Status";
import style from "./events.module.css";

const route = getRouteApi("/events");
const TYPES = [
  "all",
  "job",
  "execution",
  "schedule",
  "backfill",
  "workflow",
  "run",
  "step",
  "service",
  "rollout",
  "worker",
  "queue",
] as const;
const ROW_HEIGHT = 32;
const ROW_HEIGHT_NARROW = 78;

/** Returns the recent events; while paused, those at the time of the pause. */
function useEvents(paused: boolean): readonly FeedEvent[] {
  const [events, setEvents] = useState(feed.recent);
  useEffect(() => {
    if (paused) return;
    setEvents(feed.recent);
    return feed.onBatch(() => setEvents(feed.recent));
  }, [paused]);
  return events;
}

/** Returns the searchable text of an event's field. */
function fieldText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function EventsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.events"));
  const { type = "all", find = "" } = route.useSearch();
  const navigate = route.useNavigate();
  const [paused, setPaused] = useState(false);
  const events = useEvents(paused);
  const scroller = useRef<HTMLDivElement>(null);
  const isNarrow = useNarrow();

  const matching = useMemo(() => {
    const query = find.toLowerCase();
    return events.filter((event) => {
      if (type !== "all" && !event.type.startsWith(`${type}.`)) return false;
      return (
        query === "" || Object.values(event).some((value) => fieldText(value).toLowerCase().includes(query))
      );
    });
  }, [events, type, find]);
  const virtual = useVirtualizer({
    count: matching.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => (isNarrow ? ROW_HEIGHT_NARROW : ROW_HEIGHT),
    getItemKey: (index) => matching[index]?.seq ?? index,
    overscan: 12,
  });
  useEffect(() => virtual.measure(), [isNarrow, virtual]);

  return (
    <Page
      title={t("nav.events")}
      fill
      actions={
        <Button
          variant="default"
          leftSection={paused ? <Play size={13} /> : <Pause size={13} />}
          onClick={() => setPaused(!paused)}
          aria-pressed={paused}
        >
          {paused ? t("event.resume") : t("event.pause")}
        </Button>
      }
    >
      <div className={style.bar}>
        <SegmentedControl
          aria-label={t("event.type")}
          value={type}
          onChange={(value) =>
            void navigate({
              search: { type: value === "all" ? undefined : value, find: find || undefined },
              replace: true,
            })
          }
          data={TYPES.map((value) => ({ value, label: t(`event.types.${value}`) }))}
        />
        <TextInput
          leftSection={<Search size={13} />}
          placeholder={t("event.find")}
          aria-label={t("event.find")}
          value={find}
          onChange={(event) =>
            void navigate({
              search: {
                type: type === "all" ? undefined : type,
                find: event.currentTarget.value || undefined,
              },
              replace: true,
            })
          }
          w={260}
        />
      </div>
      {matching.length === 0 ? (
        <EmptyState icon={Activity} title={t("event.none")}>
          {t("event.noneText")}
        </EmptyState>
      ) : (
        <div
          className={style.list}
          ref={scroller}
          tabIndex={0}
          role="log"
          aria-live="off"
          aria-label={t("nav.events")}
        >
          <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
            {virtual.getVirtualItems().map((item) => {
              const event = matching[item.index];
              if (!event) return null;
              return (
                <div
                  key={item.key}
                  className={style.row}
                  style={{ transform: `translateY(${item.start}px)` }}
                >
                  <EventDetails event={event} />
                </div>
              );
            })}
          </div>
        </div>
      )}
    </Page>
  );
}

function EventDetails({ event }: { event: FeedEvent }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const workerName = useWorkerName();
  return (
    <>
      <time className={style.at} dateTime={event.at} title={formatExact(event.at, language, zone)}>
        {formatClock(event.at, language, zone)}
      </time>
      <span className={style.what}>
        {event.to ? <StatusBadge status={event.to} plain /> : <code>{event.type}</code>}
      </span>
      <span className={`${style.words} clip`}>
        {event.cause && t(`cause.${event.cause}`)}
        {event.outcome && t(`outcome.${event.outcome}`)}
        {event.finish_by && t("job.overdueSince", { at: formatExact(event.finish_by, language, zone) })}
        {event.scheduled_for && ` · ${formatExact(event.scheduled_for, language, zone)}`}
        {event.worker_status && t(`workerStatus.${event.worker_status}`)}
        {event.worker_admission && ` · ${t(`admission.${event.worker_admission}`)}`}
        {event.health && t(`healthStatus.${event.health}`)}
        {event.revision != null && t("event.revision", { revision: event.revision })}
        {event.available != null &&
          t("event.available", { available: event.available, replicas: event.replicas ?? 0 })}
        {event.schedule_id && event.job_id && (
          <Link to="/schedules/$id" params={{ id: event.schedule_id }} className="quiet">
            {` · ${t("event.ofSchedule")}`}
          </Link>
        )}
        {event.queue && (
          <Link to="/jobs" search={{ queue: event.queue }}>
            {event.queue}
          </Link>
        )}
      </span>
      <span className={`${style.object} clip`}>
        {event.schedule_id && !event.job_id && (
          <Link to="/schedules/$id" params={{ id: event.schedule_id }}>
            {event.schedule ?? event.schedule_id}
          </Link>
        )}
        {event.calendar && (
          <Link
            to="/calendars/$name"
            params={{ name: event.calendar }}
            search={{ namespace: event.namespace ?? undefined }}
          >
            {event.calendar}
          </Link>
        )}
        {event.workflow_id && !event.run_id && (
          <Link to="/workflows/$id" params={{ id: event.workflow_id }}>
            {event.workflow ?? event.workflow_id}
          </Link>
        )}
        {event.service && event.namespace && (
          <Link to="/services/$namespace/$name" params={{ namespace: event.namespace, name: event.service }}>
            {event.service}
          </Link>
        )}
        {event.run_id && !event.type.startsWith("job.") && (
          <Link to="/runs/$id" params={{ id: event.run_id }} search={{ step: event.step ?? undefined }}>
            {event.workflow} {event.step ?? <span className="mono">{event.run_id}</span>}
          </Link>
        )}
        {event.job_id && !event.type.startsWith("step.") && (
          <Link to="/jobs/$id" params={{ id: event.job_id }} className="mono">
            {event.job_id}
          </Link>
        )}
      </span>
      <span className={`${style.worker} clip`}>
        {event.worker_id && (
          <Link to="/workers/$id" params={{ id: event.worker_id }}>
            {workerName(event.worker_id)}
          </Link>
        )}
      </span>
    </>
  );
}
