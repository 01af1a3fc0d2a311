/** The table of jobs. Only visible rows are DOM elements, so scrolling costs the same at any length. */

import { Checkbox } from "@mantine/core";
import { Link, useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, type MouseEvent, useCallback, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { useWorkerName } from "../../api/queries";
import type { Job } from "../../api/schema";
import { isTyping } from "../../app/Shortcuts";
import type { Column } from "../../lib/columns";
import { useNarrow } from "../../lib/narrow";
import { usePreferences } from "../../lib/preferences";
import { DEFAULT_CLASS } from "../../lib/priorityClasses";
import { resultText } from "../../lib/serverMessages";
import { useScrollbar } from "../../lib/scrollbar";
import { isLive, isScheduled } from "../../lib/statuses";
import { Labels } from "../../ui/kit";
import { RowCheckbox } from "../../ui/RowCheckbox";
import { OverdueIcon, StatusBadge } from "../../ui/Status";
import { RelativeTime, Elapsed } from "../../ui/Time";
import { useColumns } from "../../ui/useColumns";
import style from "./jobs.module.css";

const ROW_HEIGHT = 36;
const ROW_HEIGHT_NARROW = 62;
/** The next page is requested when only this number of rows is left below. */
const PREFETCH_ROWS = 40;

export const COLUMNS = [
  { name: "status", width: 104, rank: 0 },
  { name: "name", width: 220, grows: true, rank: 0 },
  { name: "namespace", width: 100, rank: 2 },
  { name: "queue", width: 96, rank: 4 },
  { name: "owner", width: 84, rank: 5 },
  { name: "worker", width: 100, rank: 6 },
  { name: "priority", width: 64, rank: 7 },
  { name: "priorityClass", width: 96, rank: 7 },
  { name: "tries", width: 56, rank: 3 },
  { name: "submitted", width: 108, rank: 1 },
  { name: "finished", width: 108, rank: 8 },
  { name: "took", width: 72, rank: 1 },
] as const satisfies readonly Column[];
export type JobColumn = (typeof COLUMNS)[number]["name"];
/** Key of the choice of columns. */
export const TABLE = "jobs";
const HIDDEN = new Set<JobColumn>(["priority", "priorityClass", "finished"]);

/** Returns whether a column is shown by default. */
export function isDefaultColumn(name: JobColumn, hasNamespaces: boolean): boolean {
  return name === "namespace" ? hasNamespaces : !HIDDEN.has(name);
}

const LAYOUT = { table: TABLE, columns: COLUMNS, gap: 12, reserved: 2 * 16 + 18 + 12 + 16 };

interface Props {
  jobs: readonly Job[];
  /** Whether the jobs may have different namespaces. */
  hasNamespaces: boolean;
  selected: ReadonlySet<string>;
  onSelect: (selected: ReadonlySet<string>) => void;
  onPickLabel: (label: string) => void;
  onEnd: () => void;
  hasMore: boolean;
}

export function JobTable({ jobs, hasNamespaces, selected, onSelect, onPickLabel, onEnd, hasMore }: Props) {
  const { t } = useTranslation();
  const narrow = useNarrow();
  const navigate = useNavigate();
  const scroller = useRef<HTMLDivElement>(null);
  const columns = useColumns<JobColumn>(scroller, LAYOUT, (name) => isDefaultColumn(name, hasNamespaces));
  const hasLabels = usePreferences().columns[TABLE]?.labels ?? true;
  const [cursor, setCursor] = useState(-1);
  const lastPicked = useRef(-1);
  const virtual = useVirtualizer({
    count: jobs.length + (hasMore ? 1 : 0),
    getScrollElement: () => scroller.current,
    estimateSize: () => (narrow ? ROW_HEIGHT_NARROW : ROW_HEIGHT),
    getItemKey: (index) => jobs[index]?.id ?? "more",
    overscan: 12,
  });
  useEffect(() => virtual.measure(), [narrow, virtual]);
  const scrollbar = useScrollbar(scroller);

  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (hasMore && last >= jobs.length - PREFETCH_ROWS) onEnd();
  }, [last, jobs.length, hasMore, onEnd]);

  const pick = (index: number, withRange: boolean) => {
    const job = jobs[index];
    if (!job) return;
    const next = new Set(selected);
    const isOn = !selected.has(job.id);
    const [from, to] =
      withRange && lastPicked.current >= 0
        ? [lastPicked.current, index].sort((a, b) => a - b)
        : [index, index];
    for (const each of jobs.slice(from, (to ?? index) + 1)) {
      if (isOn) next.add(each.id);
      else next.delete(each.id);
    }
    lastPicked.current = index;
    onSelect(next);
  };

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector('[role="dialog"]')) return;
      const job = jobs[cursor];
      if (event.key === "j" || event.key === "k") {
        const next = Math.max(0, Math.min(jobs.length - 1, cursor + (event.key === "j" ? 1 : -1)));
        setCursor(next);
        virtual.scrollToIndex(next);
      } else if (event.key === "x" && job) pick(cursor, event.shiftKey);
      else if (event.key === "Enter" && job && document.activeElement === document.body) {
        void navigate({ to: "/jobs/$id", params: { id: job.id } });
      } else if (event.key === "Escape") onSelect(new Set());
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });

  // Rows are memoized, so their callbacks must be stable.
  const latestPick = useRef(pick);
  latestPick.current = pick;
  const onPick = useCallback((index: number, range: boolean) => latestPick.current(index, range), []);
  const onOpen = useCallback((id: string) => void navigate({ to: "/jobs/$id", params: { id } }), [navigate]);
  const workerName = useWorkerName();
  const names = columns.shown.map(({ name }) => name).join(" ");

  const all = jobs.length > 0 && jobs.every((job) => selected.has(job.id));
  return (
    <div
      className={style.table}
      style={columns.style}
      data-labels={hasLabels}
      role="table"
      aria-label={t("nav.jobs")}
      aria-rowcount={hasMore ? -1 : jobs.length}
    >
      <div className={`${style.row} ${style.headRow}`} role="row" style={{ paddingRight: 16 + scrollbar }}>
        <span role="columnheader">
          <Checkbox
            aria-label={t("bulk.selectAll")}
            checked={all}
            indeterminate={!all && selected.size > 0}
            onChange={() => onSelect(all ? new Set() : new Set(jobs.map((job) => job.id)))}
          />
        </span>
        {columns.shown.map(({ name }) => (
          <span key={name} role="columnheader" className={style[name]}>
            {t(`jobs.columns.${name}`)}
          </span>
        ))}
      </div>
      <div ref={scroller} className={style.scroller} role="rowgroup" tabIndex={0} data-testid="job-rows">
        <div style={{ height: virtual.getTotalSize(), position: "relative" }} role="presentation">
          {items.map((item) => {
            const job = jobs[item.index];
            if (!job) {
              const place = { transform: `translateY(${item.start}px)`, height: item.size };
              return (
                <div key="more" className={style.more} style={place} role="row">
                  <span role="cell">{t("common.loading")}</span>
                </div>
              );
            }
            return (
              <Row
                key={item.key}
                job={job}
                index={item.index}
                start={item.start}
                size={item.size}
                hasCursor={item.index === cursor}
                isSelected={selected.has(job.id)}
                columns={names}
                worker={workerName(job.worker_id)}
                onPick={onPick}
                onOpen={onOpen}
                onPickLabel={onPickLabel}
              />
            );
          })}
        </div>
      </div>
    </div>
  );
}

interface RowProps {
  job: Job;
  index: number;
  start: number;
  size: number;
  hasCursor: boolean;
  isSelected: boolean;
  /** Names of the shown columns, separated by spaces: a list would be new at each render. */
  columns: string;
  worker: string;
  onPick: (index: number, range: boolean) => void;
  onOpen: (id: string) => void;
  onPickLabel: (label: string) => void;
}

const Row = memo(function Row(props: RowProps) {
  const { job, index, start, size, hasCursor, isSelected, columns, worker, onPick, onOpen, onPickLabel } =
    props;
  const { t } = useTranslation();
  const open = (event: MouseEvent) => {
    if ((event.target as HTMLElement).closest("a, button, input, label")) return;
    if (getSelection()?.toString()) return;
    onOpen(job.id);
  };
  return (
    <div
      className={style.row}
      style={{ transform: `translateY(${start}px)`, height: size }}
      role="row"
      data-at={hasCursor || undefined}
      data-selected={isSelected || undefined}
      onClick={open}
    >
      <span role="cell">
        <RowCheckbox
          label={t("bulk.select", { name: job.name })}
          checked={isSelected}
          onPick={(withRange) => onPick(index, withRange)}
        />
      </span>
      {columns.split(" ").map((name) => (
        <Cell key={name} name={name as JobColumn} job={job} worker={worker} onPickLabel={onPickLabel} />
      ))}
    </div>
  );
});

interface CellProps {
  name: JobColumn;
  job: Job;
  worker: string;
  onPickLabel: (label: string) => void;
}

function Cell({ name, job, worker, onPickLabel }: CellProps) {
  const { t } = useTranslation();
  switch (name) {
    case "status":
      return (
        <span role="cell" className={style.status}>
          <StatusBadge status={job.status} />
          {job.overdue && isLive(job.status) && <OverdueIcon job={job} />}
        </span>
      );
    case "name":
      return <NameCell job={job} onPickLabel={onPickLabel} />;
    case "worker":
      return (
        <span role="cell" className={`${style.worker} clip`}>
          {worker || <span className="quiet">–</span>}
        </span>
      );
    case "tries":
      return (
        <span role="cell" className={`${style.tries} num`}>
          {job.executions}
        </span>
      );
    case "submitted":
      return (
        <span role="cell" className={style.submitted}>
          {isScheduled(job) ? t("jobs.due") : null}{" "}
          <RelativeTime at={isScheduled(job) ? job.due_at : job.created_at} light />
        </span>
      );
    case "took":
      return (
        <span role="cell" className={style.took}>
          <Elapsed from={job.started_at} to={isLive(job.status) ? null : job.finished_at} />
        </span>
      );
    case "priority":
      return (
        <span role="cell" className={`${style.priority} num`}>
          {job.priority}
        </span>
      );
    case "priorityClass":
      return (
        <span role="cell" className={style.priorityClass}>
          {t(`priorityClass.${job.priority_class ?? DEFAULT_CLASS}`)}
        </span>
      );
    case "finished":
      return (
        <span role="cell" className={style.finished}>
          {job.finished_at ? <RelativeTime at={job.finished_at} light /> : "–"}
        </span>
      );
    case "namespace":
    case "queue":
    case "owner":
      return (
        <span role="cell" className={`${style[name]} clip`}>
          {job[name]}
        </span>
      );
  }
}

/** Returns all labels of a job, because the list may cut them off. */
function labelsText(labels: Job["labels"]): string | undefined {
  const texts = Object.entries(labels ?? {}).map(([key, value]) => (value === "" ? key : `${key}=${value}`));
  return texts.length > 0 ? texts.join("\n") : undefined;
}

function NameCell({ job, onPickLabel }: Pick<CellProps, "job" | "onPickLabel">) {
  const { t } = useTranslation();
  const message = job.status === "failed" || job.status === "retrying" ? resultText(job.result, t) : null;
  return (
    <span role="cell" className={style.name}>
      <Link to="/jobs/$id" params={{ id: job.id }} className={`${style.link} clip`}>
        {job.name}
      </Link>
      <span className={style.labels} title={labelsText(job.labels)}>
        <Labels labels={job.labels} onPick={onPickLabel} />
      </span>
      {message && (
        <span className={`${style.message} clip`} title={message}>
          {message}
        </span>
      )}
    </span>
  );
}
