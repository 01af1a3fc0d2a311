/** The workflow runs page, with filters. */

import { Button } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { TFunction } from "i18next";
import { SearchX, Workflow, X } from "lucide-react";
import { useTranslation } from "react-i18next";

import { unwrap, api } from "../../api/client";
import type { RunStatus, WorkflowRun } from "../../api/schema";
import { pagedRunsQuery, runsParameters } from "../../api/workflows";
import { useHasNamespaces } from "../../app/namespace";
import type { RunsSearch } from "../../app/router";
import { EXPORT_PAGE, type ExportSource } from "../../lib/export";
import { RUN_STATUSES, totalOf } from "../../lib/runs";
import { usePreferences } from "../../lib/preferences";
import { formatExact } from "../../lib/time";
import { usePageTitle } from "../../lib/title";
import { ViewStore } from "../../lib/savedViews";
import { ColumnsMenu } from "../../ui/ColumnsMenu";
import { ExportMenu } from "../../ui/ExportMenu";
import { FilterField } from "../../ui/FilterField";
import style from "../../ui/filters.module.css";
import { EmptyState, Page } from "../../ui/kit";
import { ViewBar } from "../../ui/ViewBar";
import { Sections } from "../workflows/Sections";
import { COLUMNS, isDefaultColumn, RunList, TABLE } from "./RunList";

const route = getRouteApi("/runs");
const savedViews = new ViewStore<RunsSearch>("belfry.run-views");
const VIEWS = [
  { key: "all", search: {} },
  { key: "active", search: { status: "waiting,running,paused,stopping" } },
  { key: "failed", search: { status: "failed" } },
  { key: "succeeded", search: { status: "succeeded" } },
] as const;

export function RunsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.runs"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const change = (next: RunsSearch) => void navigate({ search: next, replace: true });
  const { data } = useInfiniteQuery(pagedRunsQuery(search));
  const hasNamespaces = useHasNamespaces(
    search.namespace,
    data?.pages.flatMap((page) => page.items),
  );
  const isFiltered = Object.values(search).some((value) => value !== undefined);
  const empty = isFiltered ? (
    <EmptyState
      icon={SearchX}
      title={t("run.nothingMatches")}
      action={
        <Button variant="default" renderRoot={(props) => <Link to="/runs" {...props} />}>
          {t("jobs.clearFilters")}
        </Button>
      }
    />
  ) : (
    <EmptyState icon={Workflow} title={t("run.none")}>
      {t("run.noneText")}
    </EmptyState>
  );
  return (
    <Page
      title={t("nav.runs")}
      actions={
        <>
          <ColumnsMenu
            table={TABLE}
            columns={COLUMNS.filter(({ rank }) => rank > 0).map(({ name }) => ({
              name,
              label: t(`run.columns.${name}`),
              isDefault: isDefaultColumn(name, hasNamespaces),
            }))}
          />
          <ExportMenu name="runs" source={exportSource(search)} />
        </>
      }
    >
      <Sections />
      <ViewBar
        builtIn={VIEWS.map(({ key, search: view }) => ({
          label: t(`jobs.view.${key}`),
          search: { ...view, namespace: search.namespace },
        }))}
        views={savedViews}
        search={search}
        isSame={(a, b) => JSON.stringify(filterKey(a)) === JSON.stringify(filterKey(b))}
        onChange={change}
      />
      <Filters search={search} onChange={change} />
      <RunList filter={search} empty={empty} />
    </Page>
  );
}

function exportSource(filter: RunsSearch): ExportSource<WorkflowRun> {
  return {
    read: (cursor, signal) => {
      const params = { query: { ...runsParameters(filter), limit: EXPORT_PAGE, cursor } };
      return unwrap(api.GET("/api/v1/runs", { params, signal }));
    },
    columns: CSV_COLUMNS,
  };
}

const CSV_COLUMNS: ExportSource<WorkflowRun>["columns"] = [
  ["id", (run) => run.id],
  ["workflow", (run) => run.workflow],
  ["number", (run) => run.number],
  ["namespace", (run) => run.namespace],
  ["status", (run) => run.status],
  ["cause", (run) => run.last_transition?.cause],
  ["detail", (run) => run.last_transition?.detail],
  ["actor", (run) => run.actor],
  ["note", (run) => run.note],
  ["schedule", (run) => run.origin?.name],
  ["steps", (run) => totalOf(run.steps)],
  ["steps_failed", (run) => run.steps.failed ?? 0],
  ["created_at", (run) => run.created_at],
  ["started_at", (run) => run.started_at],
  ["finished_at", (run) => run.finished_at],
];

function filterKey({ status, workflow, namespace, schedule, after, before }: RunsSearch) {
  return [status, workflow, namespace, schedule, after, before];
}

function Filters({ search, onChange }: { search: RunsSearch; onChange: (search: RunsSearch) => void }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const selectedStatuses = RUN_STATUSES.filter((status) => search.status?.split(",").includes(status));
  const toggle = (status: RunStatus) => {
    const next = selectedStatuses.includes(status)
      ? selectedStatuses.filter((other) => other !== status)
      : RUN_STATUSES.filter((each) => each === status || selectedStatuses.includes(each));
    onChange({ ...search, status: next.join(",") || undefined });
  };
  return (
    <div className={style.filters}>
      <FilterField
        label={t("run.workflow")}
        value={search.workflow}
        onChange={(workflow) => onChange({ ...search, workflow })}
        isFirst
      />
      <FilterField
        label={t("job.details.namespace")}
        value={search.namespace}
        onChange={(namespace) => onChange({ ...search, namespace })}
      />
      {search.schedule && (
        <FilterField
          label={t("run.schedule")}
          value={search.schedule}
          onChange={(schedule) => onChange({ ...search, schedule })}
        />
      )}
      {(search.after || search.before) && (
        <Button
          variant="default"
          rightSection={<X size={12} aria-hidden />}
          aria-label={t("jobs.removeFilter", { filter: t("run.createdFilter") })}
          onClick={() => onChange({ ...search, after: undefined, before: undefined })}
        >
          {rangeText(search, t, (at) => formatExact(at, language, zone))}
        </Button>
      )}
      <div className={style.chips} role="group" aria-label={t("run.status")}>
        {RUN_STATUSES.map((status) => (
          <button
            key={status}
            type="button"
            aria-pressed={selectedStatuses.includes(status)}
            onClick={() => toggle(status)}
          >
            {t(`runStatus.${status}`)}
          </button>
        ))}
      </div>
    </div>
  );
}

/** Returns the range of the creation as a text. */
function rangeText({ after, before }: RunsSearch, t: TFunction, format: (at: string) => string): string {
  const from = after && `${t("jobs.keys.after")} ${format(after)}`;
  const until = before && `${t("jobs.keys.before")} ${format(before)}`;
  return [from, until].filter(Boolean).join(" · ");
}
