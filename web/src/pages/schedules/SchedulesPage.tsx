/** The schedules page: next firing, recent runs, actions. */

import { Button, Checkbox, Select, TextInput } from "@mantine/core";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { CalendarClock, Pause, Play, Plus, Search, SearchX, X, Zap } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { SCHEDULES_MAX, type SchedulesFilter } from "../../api/schedules";
import type { Schedule, ScheduleStatus } from "../../api/schema";
import { useHasNamespaces } from "../../app/namespace";
import type { SchedulesSearch } from "../../app/router";
import { useNarrow } from "../../lib/narrow";
import { forEachId } from "../../lib/bulk";
import { type BulkAction, isApplicable, SORTS } from "../../lib/schedules";
import { useScrollbar } from "../../lib/scrollbar";
import { useFilterShortcut } from "../../lib/filterShortcut";
import { usePageTitle } from "../../lib/title";
import { ViewStore } from "../../lib/savedViews";
import { AllowedSomewhere, useCan, useCanSomewhere } from "../../ui/Allowed";
import { BulkBar } from "../../ui/BulkBar";
import { BulkDialog, type Target } from "../../ui/BulkDialog";
import { EmptyState, Loading, Page, ErrorBox, Snippet } from "../../ui/kit";
import { useSelection } from "../../ui/useSelection";
import { ViewBar } from "../../ui/ViewBar";
import { runAction, findApplicable } from "./bulk";
import { ScheduleRow } from "./ScheduleRow";
import filters from "../../ui/filters.module.css";
import style from "./schedules.module.css";
import { Sections } from "./Sections";
import { useVisibleDetails, useSchedules } from "./useSchedules";

const route = getRouteApi("/schedules");
const STATUSES = ["active", "paused", "completed"] as const satisfies readonly ScheduleStatus[];
const COLUMNS = ["name", "namespace", "next", "last", "runs", "success", "usual", "actions"] as const;
const savedViews = new ViewStore<SchedulesSearch>("belfry.schedule-views");
const VIEWS = [
  { key: "all", search: {} },
  { key: "active", search: { status: "active" } },
  { key: "paused", search: { status: "paused" } },
  { key: "completed", search: { status: "completed" } },
  { key: "troubled", search: { sort: "health" } },
] as const;
const ACTIONS = [
  { action: "pause", icon: Pause },
  { action: "resume", icon: Play },
  { action: "trigger", icon: Zap },
] as const;
/** Label of the reason field of each bulk action; null if it has none. */
const REASON_LABELS = { pause: "queue.note", resume: null, trigger: "schedule.reason" } as const;
/** The next page is requested when only this number of rows is left below. */
const PREFETCH_ROWS = 40;
/** Columns hidden on narrow pages, with their headers. */
const HIDDEN_WHEN_NARROW = new Set<string>(["namespace", "last", "usual"]);
const ROW_HEIGHT = 52;
const ROW_HEIGHT_NARROW = 78;

export function SchedulesPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.schedules"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const sort = SORTS.find((each) => each === search.sort) ?? "next";
  const filter = filterOf(search);
  const { rows, error, isPaged, hasMore, more, refetch } = useSchedules(filter, sort);
  const hasNamespaces = useHasNamespaces(search.namespace, rows);
  const selection = useSelection(filter);
  const can = useCan();
  const canOperate = useCanSomewhere()("operate", "schedules");
  const applies = (action: BulkAction, schedule: Schedule) =>
    isApplicable(action, schedule) && can("operate", "schedules", schedule.namespace);
  const [bulk, setBulk] = useState<{ action: BulkAction; target: Target } | null>(null);
  const selectedSchedules = useMemo(
    () => rows?.filter(({ id }) => selection.ids.has(id)) ?? [],
    [rows, selection.ids],
  );
  const field = bulk && REASON_LABELS[bulk.action];
  const isFiltered = Object.values(filter).some((value) => value !== undefined);
  const change = (next: SchedulesSearch) => void navigate({ search: next, replace: true });

  return (
    <Page
      title={t("nav.schedules")}
      fill
      actions={
        <AllowedSomewhere verb="change" on="schedules">
          <Button
            renderRoot={(props) => <Link to="/schedules/new" {...props} />}
            leftSection={<Plus size={14} />}
          >
            {t("schedule.new")}
          </Button>
        </AllowedSomewhere>
      }
    >
      <Sections />
      <ViewBar
        builtIn={VIEWS.map(({ key, search: view }) => ({
          label: t(`schedule.view.${key}`),
          search: { ...view, namespace: search.namespace },
        }))}
        views={savedViews}
        search={search}
        isSame={isSameSearch}
        onChange={change}
      />
      <Filters search={search} isPaged={isPaged} onChange={(part) => change({ ...search, ...part })} />
      {error && !rows && <ErrorBox error={error} onRetry={refetch} />}
      {!rows && !error && <Loading rows={8} />}
      {rows?.length === 0 && (isFiltered ? <NothingMatches /> : <NoSchedules />)}
      {isPaged && <p className={style.note}>{t("schedule.pagedNote", { count: SCHEDULES_MAX })}</p>}
      {rows && rows.length > 0 && (
        <>
          <BulkBar
            choices={(canOperate ? ACTIONS : []).map(({ action, icon }) => {
              const count = selectedSchedules.filter((schedule) => applies(action, schedule)).length;
              const labels = { some: t(`bulk.${action}.some`, { count }), all: t(`schedule.${action}`) };
              return { action, icon, count, labels };
            })}
            selected={selectedSchedules.length}
            hasMore={selectedSchedules.length === rows.length && hasMore}
            onClear={selection.clear}
            onBulk={(action, all) => {
              const ids = selectedSchedules
                .filter((schedule) => applies(action, schedule))
                .map(({ id }) => id);
              const find = (signal: AbortSignal) => findApplicable(action, filter, signal);
              setBulk({ action, target: all ? { find } : { ids } });
            }}
          />
          <Table
            rows={rows}
            hasNamespaces={hasNamespaces}
            selected={selection.ids}
            onSelect={selection.select}
            hasMore={hasMore}
            onEnd={more}
          />
        </>
      )}
      {bulk && (
        <BulkDialog
          target={bulk.target}
          title={t(`bulk.${bulk.action}.title`)}
          texts={{
            none: t(`bulk.${bulk.action}.none`),
            confirm: (count) => t(`bulk.${bulk.action}.ask`, { count }),
            act: (count) => t(`bulk.${bulk.action}.some`, { count }),
            done: (count) => t(`bulk.${bulk.action}.done`, { count }),
          }}
          field={field ? t(field) : undefined}
          act={(ids, why) => forEachId((id) => runAction(bulk.action, id, why))(ids)}
          onClose={() => setBulk(null)}
          onDone={(left) => {
            if (left.size === 0) setBulk(null);
            selection.keep(left);
          }}
        />
      )}
    </Page>
  );
}

function filterOf({ status, text, owner, namespace, label }: SchedulesSearch): SchedulesFilter {
  return { status: STATUSES.find((each) => each === status), text, owner, namespace, label };
}

/** Returns whether two searches show the same rows in the same order. */
function isSameSearch(a: SchedulesSearch, b: SchedulesSearch): boolean {
  const shown = (search: SchedulesSearch) => JSON.stringify([filterOf(search), search.sort ?? "next"]);
  return shown(a) === shown(b);
}

function Filters(props: {
  search: SchedulesSearch;
  isPaged: boolean;
  onChange: (part: Partial<SchedulesSearch>) => void;
}) {
  const { search, isPaged, onChange: change } = props;
  const { t } = useTranslation();
  const input = useRef<HTMLInputElement>(null);
  useFilterShortcut(input);
  const others = [
    ...(search.owner ? [["owner", search.owner] as const] : []),
    ...(search.namespace ? [["namespace", search.namespace] as const] : []),
    ...(search.label ?? []).map((label) => ["label", label] as const),
  ];
  return (
    <div className={filters.filters}>
      <TextInput
        ref={input}
        leftSection={<Search size={13} />}
        placeholder={t("schedule.find")}
        aria-label={t("schedule.find")}
        value={search.text ?? ""}
        onChange={(event) => change({ text: event.currentTarget.value || undefined })}
        className={style.find}
      />
      <Select
        aria-label={t("schedule.sort")}
        value={search.sort ?? "next"}
        onChange={(value) => change({ sort: value === "next" ? undefined : (value ?? undefined) })}
        // Lists with more rows support only the server's orders.
        data={SORTS.map((value) => ({
          value,
          label: t(`schedule.sorts.${value}`),
          disabled: isPaged && value !== "next" && value !== "newest",
        }))}
        allowDeselect={false}
        className={style.sort}
      />
      {others.map(([key, value]) => (
        <Button
          key={key + value}
          variant="default"
          rightSection={<X size={12} />}
          aria-label={t("jobs.removeFilter", { filter: value })}
          onClick={() =>
            change(
              key === "label"
                ? { label: search.label?.filter((each) => each !== value) }
                : { [key]: undefined },
            )
          }
        >
          <span className="quiet">{t(`jobs.keys.${key}`)}</span>&nbsp;{value}
        </Button>
      ))}
    </div>
  );
}

interface TableProps {
  rows: readonly Schedule[];
  hasNamespaces: boolean;
  selected: ReadonlySet<string>;
  onSelect: (selected: ReadonlySet<string>) => void;
  hasMore: boolean;
  onEnd: () => void;
}

function Table({ rows, hasNamespaces, selected, onSelect, hasMore, onEnd }: TableProps) {
  const { t } = useTranslation();
  const scroller = useRef<HTMLDivElement>(null);
  const lastPicked = useRef(-1);
  const height = useNarrow() ? ROW_HEIGHT_NARROW : ROW_HEIGHT;
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    getItemKey: (index) => rows[index]?.id ?? index,
    overscan: 4,
  });
  useEffect(() => virtual.measure(), [height, virtual]);
  const scrollbar = useScrollbar(scroller);
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  const details = useVisibleDetails(rows, items[0]?.index ?? 0, last);
  useEffect(() => {
    if (hasMore && last >= rows.length - PREFETCH_ROWS) onEnd();
  }, [last, rows.length, hasMore, onEnd]);

  const pick = (index: number, withRange: boolean) => {
    const from = withRange && lastPicked.current >= 0 ? lastPicked.current : index;
    const isOn = !selected.has(rows[index]?.id ?? "");
    const next = new Set(selected);
    for (const { id } of rows.slice(Math.min(from, index), Math.max(from, index) + 1)) {
      if (isOn) next.add(id);
      else next.delete(id);
    }
    lastPicked.current = index;
    onSelect(next);
  };
  const all = rows.every(({ id }) => selected.has(id));

  return (
    <div
      className={style.table}
      data-namespaces={hasNamespaces || undefined}
      role="table"
      aria-label={t("nav.schedules")}
      aria-rowcount={hasMore ? -1 : rows.length}
    >
      <div className={`${style.row} ${style.head}`} role="row" style={{ paddingRight: 16 + scrollbar }}>
        <span role="columnheader">
          <Checkbox
            aria-label={t("bulk.selectAll")}
            checked={all}
            indeterminate={!all && selected.size > 0}
            onChange={() => onSelect(all ? new Set() : new Set(rows.map(({ id }) => id)))}
          />
        </span>
        {COLUMNS.map((column) => (
          <span
            key={column}
            role="columnheader"
            className={HIDDEN_WHEN_NARROW.has(column) ? style[column] : undefined}
          >
            {column === "actions" ? (
              <span className={style.hidden}>{t("schedule.columns.actions")}</span>
            ) : (
              t(`schedule.columns.${column}`)
            )}
          </span>
        ))}
      </div>
      <div className={style.scroller} ref={scroller} role="rowgroup" tabIndex={0} data-testid="schedule-rows">
        <div style={{ height: virtual.getTotalSize(), position: "relative" }} role="presentation">
          {items.map((item) => {
            const schedule = rows[item.index];
            return (
              schedule && (
                <ScheduleRow
                  key={schedule.id}
                  schedule={details(schedule)}
                  isSelected={selected.has(schedule.id)}
                  onPick={(withRange) => pick(item.index, withRange)}
                  style={{ height, transform: `translateY(${item.start}px)` }}
                />
              )
            );
          })}
        </div>
      </div>
    </div>
  );
}

function NothingMatches() {
  const { t } = useTranslation();
  return (
    <EmptyState
      icon={SearchX}
      title={t("schedule.nothingMatches")}
      action={
        <Button variant="default" renderRoot={(props) => <Link to="/schedules" {...props} />}>
          {t("jobs.clearFilters")}
        </Button>
      }
    />
  );
}

function NoSchedules() {
  const { t } = useTranslation();
  return (
    <EmptyState icon={CalendarClock} title={t("schedule.none")}>
      <p>{t("schedule.noneText")}</p>
      <br />
      <Snippet text="belfry schedule create beat --every 15m -- echo 'still here'" />
    </EmptyState>
  );
}
