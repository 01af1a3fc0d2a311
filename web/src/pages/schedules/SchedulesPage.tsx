/** All schedules: when they fire next, how their last runs went, and what can be done about them. */

import { Button, SegmentedControl, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { CalendarClock, Plus, Search, SearchX, X } from "lucide-react";
import { useMemo, useRef } from "react";
import { useTranslation } from "react-i18next";

import { SCHEDULES_MAX, schedulesQuery } from "../../api/schedules";
import type { Schedule, ScheduleStatus } from "../../api/schema";
import type { SchedulesSearch } from "../../app/router";
import { useNarrow } from "../../lib/narrow";
import { sorted, SORTS } from "../../lib/schedules";
import { useSlash } from "../../lib/slash";
import { usePageTitle } from "../../lib/title";
import { Empty, Loading, Page, ProblemBox, Snippet } from "../../ui/kit";
import { ScheduleRow } from "./ScheduleRow";
import style from "./schedules.module.css";
import { Sections } from "./Sections";

const route = getRouteApi("/schedules");
const STATUSES = ["active", "paused", "completed"] as const satisfies readonly ScheduleStatus[];
const COLUMNS = ["name", "next", "last", "runs", "success", "usual", "actions"] as const;
const ROW = 52;
const ROW_NARROW = 78;

export function SchedulesPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.schedules"));
  const search = route.useSearch();
  const status = STATUSES.find((each) => each === search.status);
  const { text, owner, namespace, label } = search;
  const { data, error, refetch } = useQuery(schedulesQuery({ status, text, owner, namespace, label }));
  const sort = SORTS.find((each) => each === search.sort) ?? "next";
  const rows = useMemo(() => data && sorted(data.items, sort), [data, sort]);
  const isFiltered = Boolean(status ?? text ?? owner ?? namespace ?? label);

  return (
    <Page
      title={t("nav.schedules")}
      fill
      actions={
        <Button
          renderRoot={(props) => <Link to="/schedules/new" {...props} />}
          leftSection={<Plus size={14} />}
        >
          {t("schedule.new")}
        </Button>
      }
    >
      <Sections />
      <Filters search={search} />
      {error && !data && <ProblemBox error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading rows={8} />}
      {rows?.length === 0 && (isFiltered ? <NothingMatches /> : <NoSchedules />)}
      {rows && rows.length > 0 && <Table rows={rows} />}
      {data?.next_cursor && <p className={style.capped}>{t("schedule.capped", { count: SCHEDULES_MAX })}</p>}
    </Page>
  );
}

function Filters({ search }: { search: SchedulesSearch }) {
  const { t } = useTranslation();
  const navigate = route.useNavigate();
  const input = useRef<HTMLInputElement>(null);
  useSlash(input);
  const change = (part: Partial<SchedulesSearch>) =>
    void navigate({ search: (before: SchedulesSearch) => ({ ...before, ...part }), replace: true });
  const others = [
    ...(search.owner ? [["owner", search.owner] as const] : []),
    ...(search.namespace ? [["namespace", search.namespace] as const] : []),
    ...(search.label ?? []).map((label) => ["label", label] as const),
  ];
  return (
    <div className={style.filters}>
      <SegmentedControl
        aria-label={t("schedule.status")}
        value={search.status ?? "all"}
        onChange={(value) => change({ status: value === "all" ? undefined : value })}
        data={[
          { value: "all", label: t("schedule.all") },
          ...STATUSES.map((value) => ({ value, label: t(`scheduleStatus.${value}`) })),
        ]}
      />
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
        data={SORTS.map((value) => ({ value, label: t(`schedule.sorts.${value}`) }))}
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

function Table({ rows }: { rows: readonly Schedule[] }) {
  const { t } = useTranslation();
  const scroller = useRef<HTMLDivElement>(null);
  const height = useNarrow() ? ROW_NARROW : ROW;
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    getItemKey: (index) => rows[index]?.id ?? index,
    overscan: 4,
  });
  return (
    <div className={style.table} role="table" aria-label={t("nav.schedules")} aria-rowcount={rows.length}>
      <div className={`${style.row} ${style.head}`} role="row">
        {COLUMNS.map((column) => (
          <span key={column} role="columnheader">
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
          {virtual.getVirtualItems().map((item) => {
            const schedule = rows[item.index];
            return (
              schedule && (
                <ScheduleRow
                  key={schedule.id}
                  schedule={schedule}
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
    <Empty
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
    <Empty icon={CalendarClock} title={t("schedule.none")}>
      <p>{t("schedule.noneText")}</p>
      <br />
      <Snippet text="belfry schedule create beat --every 15m -- echo 'still here'" />
    </Empty>
  );
}
