/** The workflows page: owner, recent runs, start. */

import { ActionIcon, Button, TextInput, Tooltip } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Play, Plus, Search, SearchX, Workflow as WorkflowIcon, X } from "lucide-react";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { workflowsQuery } from "../../api/workflows";
import type { Workflow } from "../../api/schema";
import { useHasNamespaces } from "../../app/namespace";
import type { WorkflowsSearch } from "../../app/router";
import { useFilterShortcut } from "../../lib/filterShortcut";
import { usePageTitle } from "../../lib/title";
import { Allowed, AllowedSomewhere } from "../../ui/Allowed";
import { EmptyState, Labels, Loading, Page, ErrorBox, Snippet } from "../../ui/kit";
import { RunBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import { RunBars } from "./RunBars";
import { Sections } from "./Sections";
import { StartDialog } from "./StartDialog";
import filters from "../../ui/filters.module.css";
import frame from "../../ui/list.module.css";
import style from "./workflows.module.css";

const route = getRouteApi("/workflows");
const COLUMNS = ["name", "namespace", "owner", "steps", "last", "runs", "actions"] as const;

export function WorkflowsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.workflows"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const list = useInfiniteQuery(workflowsQuery(search));
  const rows = list.data?.pages.flatMap((page) => page.items);
  const hasNamespaces = useHasNamespaces(search.namespace, rows);
  const [starting, setStarting] = useState<Workflow | null>(null);
  const change = (next: WorkflowsSearch) => void navigate({ search: next, replace: true });
  const isFiltered = Object.values(search).some((value) => value !== undefined);

  return (
    <Page
      title={t("nav.workflows")}
      actions={
        <AllowedSomewhere verb="change" on="workflows">
          <Button
            renderRoot={(props) => <Link to="/workflows/new" {...props} />}
            leftSection={<Plus size={14} />}
          >
            {t("workflow.new")}
          </Button>
        </AllowedSomewhere>
      }
    >
      <Sections />
      <Filters search={search} onChange={change} />
      {list.error && !rows && <ErrorBox error={list.error} onRetry={() => void list.refetch()} />}
      {!rows && !list.error && <Loading rows={8} />}
      {rows?.length === 0 && (isFiltered ? <NothingMatches /> : <NoWorkflows />)}
      {rows && rows.length > 0 && (
        <div
          className={frame.table}
          data-namespaces={hasNamespaces || undefined}
          role="table"
          aria-label={t("nav.workflows")}
        >
          <div className={`${frame.row} ${frame.head} ${style.row}`} role="row" data-head>
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader" className={style[column]}>
                {column === "actions" ? (
                  <span className="unseen">{t("workflow.columns.actions")}</span>
                ) : (
                  t(`workflow.columns.${column}`)
                )}
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="workflow-rows">
            {rows.map((workflow) => (
              <Row
                key={workflow.id}
                workflow={workflow}
                onLabel={(label) =>
                  change({ ...search, label: [...new Set([...(search.label ?? []), label])] })
                }
                onStart={() => setStarting(workflow)}
              />
            ))}
          </div>
          {list.hasNextPage && (
            <div className={frame.more}>
              <Button
                variant="default"
                loading={list.isFetchingNextPage}
                onClick={() => void list.fetchNextPage()}
              >
                {t("common.more")}
              </Button>
            </div>
          )}
        </div>
      )}
      {starting && <StartDialog workflow={starting} onClose={() => setStarting(null)} />}
    </Page>
  );
}

interface RowProps {
  workflow: Workflow;
  onLabel: (label: string) => void;
  onStart: () => void;
}

function Row({ workflow, onLabel, onStart }: RowProps) {
  const { t } = useTranslation();
  const { id, name, namespace, owner, labels, recent } = workflow;
  const last = recent?.[0];
  return (
    <div className={`${frame.row} ${style.row}`} role="row">
      <span role="cell" className={style.name}>
        <Link to="/workflows/$id" params={{ id }} className={style.title}>
          {name}
        </Link>
        <span className={style.under}>
          {namespace !== "default" && <span className={`${style.ofName} quiet`}>{namespace}</span>}
          <Labels labels={labels} onPick={onLabel} />
          {workflow.description && <span className={`${style.about} quiet`}>{workflow.description}</span>}
        </span>
      </span>
      <span role="cell" className={`${style.namespace} quiet clip`}>
        {namespace}
      </span>
      <span role="cell" className={`${style.owner} clip`}>
        {owner ?? <span className="quiet">–</span>}
      </span>
      <span role="cell" className={`${style.steps} num`}>
        {workflow.steps.toLocaleString()}
      </span>
      <span role="cell" className={style.last}>
        {last ? (
          <Link to="/runs/$id" params={{ id: last.id }}>
            <RunBadge status={last.status} plain />
            <span className="quiet">
              <RelativeTime at={last.finished_at ?? last.created_at} light />
            </span>
          </Link>
        ) : (
          <span className="quiet">{t("workflow.neverRan")}</span>
        )}
      </span>
      <span role="cell" className={style.runs}>
        <RunBars runs={recent ?? []} />
      </span>
      <span role="cell" className={style.actions}>
        <Allowed verb="operate" on="runs" in={namespace}>
          <Tooltip label={t("workflow.start")}>
            <ActionIcon aria-label={t("workflow.startOf", { name })} onClick={onStart}>
              <Play size={15} />
            </ActionIcon>
          </Tooltip>
        </Allowed>
      </span>
    </div>
  );
}

function Filters({
  search,
  onChange,
}: {
  search: WorkflowsSearch;
  onChange: (search: WorkflowsSearch) => void;
}) {
  const { t } = useTranslation();
  const input = useRef<HTMLInputElement>(null);
  useFilterShortcut(input);
  const others = [
    ...(search.owner ? [["owner", search.owner] as const] : []),
    ...(search.namespace ? [["namespace", search.namespace] as const] : []),
    ...(search.label ?? []).map((label) => ["label", label] as const),
  ];
  const without = (key: string, value: string) => {
    const label = search.label?.filter((each) => each !== value);
    onChange(
      key === "label"
        ? { ...search, label: label?.length ? label : undefined }
        : { ...search, [key]: undefined },
    );
  };
  return (
    <div className={filters.filters}>
      <TextInput
        ref={input}
        leftSection={<Search size={13} />}
        placeholder={t("workflow.find")}
        aria-label={t("workflow.find")}
        value={search.text ?? ""}
        onChange={(event) => onChange({ ...search, text: event.currentTarget.value || undefined })}
        className={style.find}
      />
      {others.map(([key, value]) => (
        <Button
          key={key + value}
          variant="default"
          rightSection={<X size={12} />}
          aria-label={t("jobs.removeFilter", { filter: value })}
          onClick={() => without(key, value)}
        >
          <span className="quiet">{t(`jobs.keys.${key}`)}</span>&nbsp;{value}
        </Button>
      ))}
    </div>
  );
}

function NothingMatches() {
  const { t } = useTranslation();
  return (
    <EmptyState
      icon={SearchX}
      title={t("workflow.nothingMatches")}
      action={
        <Button variant="default" renderRoot={(props) => <Link to="/workflows" {...props} />}>
          {t("jobs.clearFilters")}
        </Button>
      }
    />
  );
}

function NoWorkflows() {
  const { t } = useTranslation();
  return (
    <EmptyState icon={WorkflowIcon} title={t("workflow.none")}>
      <p>{t("workflow.noneText")}</p>
      <br />
      <Snippet text="belfry apply -f workflow.yaml" />
    </EmptyState>
  );
}
