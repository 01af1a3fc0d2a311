/** The jobs page: filters, live rows, bulk actions. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Ban, ListChecks, Plus, RotateCcw, SearchX } from "lucide-react";
import { useCallback, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { unwrap, api } from "../../api/client";
import { countsQuery } from "../../api/queries";
import type { Job, JobStatus } from "../../api/schema";
import { useHasNamespaces } from "../../app/namespace";
import type { JobsSearch } from "../../app/router";
import type { BatchAction } from "../../lib/bulk";
import { EXPORT_PAGE, type ExportSource, labelsCell } from "../../lib/export";
import { isSameSearch, type JobsQuery, tokensOf, withToken } from "../../lib/filters";
import { useFilterShortcut } from "../../lib/filterShortcut";
import { usePageTitle } from "../../lib/title";
import { ViewStore as SavedViews } from "../../lib/savedViews";
import { AllowedSomewhere, useCan, useCanSomewhere } from "../../ui/Allowed";
import { BulkBar } from "../../ui/BulkBar";
import { BulkDialog, type Target } from "../../ui/BulkDialog";
import { ColumnsMenu } from "../../ui/ColumnsMenu";
import { ExportMenu } from "../../ui/ExportMenu";
import { CompareButton } from "../../ui/CompareButton";
import { EmptyState, Loading, Page, ErrorBox, Snippet } from "../../ui/kit";
import { useSelection } from "../../ui/useSelection";
import { ViewBar } from "../../ui/ViewBar";
import { batchAction, type BulkAction, findApplicable, inOrder, isApplicable, retryPolicyOf } from "./bulk";
import { FilterBar } from "./FilterBar";
import { COLUMNS, isDefaultColumn, JobTable, TABLE } from "./JobTable";
import { useJobs } from "./useJobs";

const route = getRouteApi("/jobs");

const savedViews = new SavedViews<JobsSearch>("belfry.views");

const ACTIONS = [
  { action: "cancel", icon: Ban },
  { action: "retry", icon: RotateCcw },
] as const;

const BUILT_IN = [
  { key: "all", search: {} },
  { key: "active", search: { status: "ready,waiting,running,retrying" } },
  { key: "failed", search: { status: "failed,expired" } },
  { key: "succeeded", search: { status: "succeeded" } },
] as const;

export function JobsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.jobs"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { rows, loading, apiError, more, refresh, query } = useJobs(search);
  const selection = useSelection(search);
  const can = useCan();
  const canOperate = useCanSomewhere()("operate", "jobs");
  const applies = (action: BulkAction, job: Job) =>
    isApplicable(action, job) && can("operate", "jobs", job.namespace);
  const [bulk, setBulk] = useState<{ action: BulkAction; act: BatchAction; target: Target } | null>(null);
  const selectedJobs = useMemo(
    () => rows.items.filter((job) => selection.ids.has(job.id)),
    [rows.items, selection.ids],
  );
  const input = useRef<HTMLInputElement>(null);
  const hasNamespaces = useHasNamespaces(search.namespace, rows.items);

  const change = useCallback((next: JobsSearch) => void navigate({ search: next }), [navigate]);

  useFilterShortcut(input);

  const isFiltered = tokensOf(search).length > 0;
  const isEmpty = !loading && !apiError && rows.items.length === 0;
  return (
    <Page
      title={t("nav.jobs")}
      fill
      actions={
        <>
          <ColumnsMenu
            table={TABLE}
            columns={[
              ...COLUMNS.filter(({ rank }) => rank > 0).map(({ name }) => ({
                name,
                label: t(`jobs.columns.${name}`),
                isDefault: isDefaultColumn(name, hasNamespaces),
              })),
              { name: "labels", label: t("job.details.labels"), isDefault: true },
            ]}
          />
          <ExportMenu name="jobs" source={exportSource(query)} />
        </>
      }
    >
      <JobViews search={search} onChange={change} />
      <FilterBar search={search} onChange={change} inputRef={input} />
      {apiError && <ErrorBox error={apiError} onRetry={refresh} />}
      {loading && rows.items.length === 0 && <Loading rows={10} />}
      {isEmpty && (isFiltered ? <NothingMatches onClear={() => change({})} /> : <NoJobs />)}
      {rows.items.length > 0 && (
        <>
          <BulkBar
            choices={(canOperate ? ACTIONS : []).map(({ action, icon }) => {
              const count = selectedJobs.filter((job) => applies(action, job)).length;
              const labels = { some: t(`bulk.${action}.some`, { count }), all: t(`job.${action}`) };
              return { action, icon, count, labels };
            })}
            selected={selection.ids.size}
            hasMore={selection.ids.size === rows.items.length && Boolean(rows.cursor)}
            extra={<CompareButton ids={selection.ids} />}
            onClear={selection.clear}
            onBulk={(action, all) => {
              const find = async (signal: AbortSignal) =>
                inOrder(action, await findApplicable(action, query, signal));
              const fit = selectedJobs.filter((job) => applies(action, job)).map(({ id }) => id);
              setBulk({
                action,
                act: batchAction(action, selection.key),
                target: all ? { find } : { ids: inOrder(action, fit) },
              });
            }}
          />
          <JobTable
            jobs={rows.items}
            hasNamespaces={hasNamespaces}
            selected={selection.ids}
            onSelect={selection.select}
            onPickLabel={(label) => change(withToken(search, { key: "label", value: label }))}
            onEnd={more}
            hasMore={Boolean(rows.cursor)}
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
          red={bulk.action === "cancel"}
          act={bulk.act}
          retryPolicy={bulk.action === "retry" ? retryPolicyOf : undefined}
          waitingText={(count) => t("bulk.retry.waiting", { count })}
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

function exportSource(query: JobsQuery): ExportSource<Job> {
  return {
    read: (cursor, signal) => {
      const params = { query: { ...query, limit: EXPORT_PAGE, cursor } };
      return unwrap(api.GET("/api/v1/jobs", { params, signal }));
    },
    columns: CSV_COLUMNS,
  };
}

const CSV_COLUMNS: ExportSource<Job>["columns"] = [
  ["id", (job) => job.id],
  ["name", (job) => job.name],
  ["namespace", (job) => job.namespace],
  ["status", (job) => job.status],
  ["queue", (job) => job.queue],
  ["priority", (job) => job.priority],
  ["priority_class", (job) => job.priority_class],
  ["owner", (job) => job.owner],
  ["labels", (job) => labelsCell(job.labels)],
  ["executions", (job) => job.executions],
  ["worker_id", (job) => job.worker_id],
  ["created_at", (job) => job.created_at],
  ["started_at", (job) => job.started_at],
  ["finished_at", (job) => job.finished_at],
  ["exit_code", (job) => job.result?.exit_code],
  ["error", (job) => job.result?.error],
  ["message", (job) => job.result?.message],
];

function JobViews({ search, onChange }: { search: JobsSearch; onChange: (search: JobsSearch) => void }) {
  const { t } = useTranslation();
  const counts = useQuery(countsQuery(search.namespace)).data;
  const count = (status?: string) => {
    if (!counts) return null;
    const statuses = (status?.split(",") ?? Object.keys(counts)) as JobStatus[];
    return statuses.reduce((sum, each) => sum + counts[each], 0);
  };
  const builtIn = BUILT_IN.map(({ key, search: view }) => ({
    label: t(`jobs.view.${key}`),
    search: { ...view, namespace: search.namespace },
    count: count("status" in view ? view.status : undefined),
  }));
  return (
    <ViewBar builtIn={builtIn} views={savedViews} search={search} isSame={isSameSearch} onChange={onChange} />
  );
}

function NothingMatches({ onClear }: { onClear: () => void }) {
  const { t } = useTranslation();
  return (
    <EmptyState
      icon={SearchX}
      title={t("jobs.nothingMatches")}
      action={
        <Button variant="default" onClick={onClear}>
          {t("jobs.clearFilters")}
        </Button>
      }
    />
  );
}

function NoJobs() {
  const { t } = useTranslation();
  return (
    <EmptyState
      icon={ListChecks}
      title={t("jobs.none")}
      action={
        <AllowedSomewhere verb="create" on="jobs">
          <Button component={Link} to="/submit" leftSection={<Plus size={14} />}>
            {t("nav.submit")}
          </Button>
        </AllowedSomewhere>
      }
    >
      <p>{t("jobs.noneText")}</p>
      <br />
      <Snippet text="belfry submit --follow -- echo 'hello from Belfry'" />
    </EmptyState>
  );
}
