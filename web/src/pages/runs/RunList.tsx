/** List of runs, newest first: status, progress, and who started them. */

import { Button, VisuallyHidden } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { TFunction } from "i18next";
import { type ReactNode, useRef } from "react";
import { useTranslation } from "react-i18next";

import { pagedRunsQuery, type RunsFilter } from "../../api/workflows";
import type { StepCounts, WorkflowRun } from "../../api/schema";
import { useHasNamespaces } from "../../app/namespace";
import type { Column } from "../../lib/columns";
import { useNarrow } from "../../lib/narrow";
import { isRunEnded, progressOf, STEP_STATUSES, stepTone } from "../../lib/runs";
import { transitionDetail } from "../../lib/serverMessages";
import { startedByText } from "../../lib/triggers";
import { CompareBar } from "../../ui/CompareBar";
import { RowCheckbox } from "../../ui/RowCheckbox";
import { Loading, ErrorBox } from "../../ui/kit";
import { RunStateBadge } from "../../ui/Status";
import { RelativeTime, Elapsed } from "../../ui/Time";
import { useColumns } from "../../ui/useColumns";
import { type Selection, useSelection } from "../../ui/useSelection";
import frame from "../../ui/list.module.css";
import style from "./runs.module.css";

export const COLUMNS = [
  { name: "status", width: 144, rank: 0 },
  { name: "name", width: 180, grows: true, rank: 0 },
  { name: "namespace", width: 100, rank: 1 },
  { name: "progress", width: 150, rank: 3 },
  { name: "created", width: 110, rank: 1 },
  { name: "finished", width: 110, rank: 4 },
  { name: "took", width: 76, rank: 2 },
] as const satisfies readonly Column[];
export type RunColumn = (typeof COLUMNS)[number]["name"];
/** Key of the choice of columns. */
export const TABLE = "runs";

/** Returns whether a column is shown by default. */
export function isDefaultColumn(name: RunColumn, hasNamespaces: boolean): boolean {
  return name === "namespace" ? hasNamespaces : name !== "finished";
}

const LAYOUT = { table: TABLE, columns: COLUMNS, gap: 16, reserved: 2 * 16 + 18 + 16 };

interface Props {
  filter: RunsFilter;
  /** Placeholder of an empty list. */
  empty: ReactNode;
  /** Whether all runs belong to one workflow. */
  isSingleWorkflow?: boolean;
}

export function RunList({ filter, empty, isSingleWorkflow }: Props) {
  const { t } = useTranslation();
  const selection = useSelection(filter);
  const list = useInfiniteQuery(pagedRunsQuery(filter));
  const rows = list.data?.pages.flatMap((page) => page.items);
  if (list.error && !rows) return <ErrorBox error={list.error} onRetry={() => void list.refetch()} />;
  if (!rows) return <Loading rows={8} />;
  if (rows.length === 0) return empty;
  return (
    <>
      <CompareBar selection={selection} />
      <RunTable
        rows={rows}
        namespace={filter.namespace}
        isSingleWorkflow={isSingleWorkflow}
        selection={selection}
      >
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
      </RunTable>
    </>
  );
}

interface TableProps {
  rows: readonly WorkflowRun[];
  /** Namespace of the filter. */
  namespace: string | undefined;
  isSingleWorkflow: boolean | undefined;
  selection: Selection;
  children: ReactNode;
}

function RunTable({ rows, namespace, isSingleWorkflow, selection, children }: TableProps) {
  const { t } = useTranslation();
  const table = useRef<HTMLDivElement>(null);
  const hasNamespaces = useHasNamespaces(namespace, rows) && !isSingleWorkflow;
  const columns = useColumns<RunColumn>(table, LAYOUT, (name) => isDefaultColumn(name, hasNamespaces));
  // A narrow page has no columns.
  const isNarrow = useNarrow();
  const isNamespaceInName = isNarrow || !columns.has("namespace");
  return (
    <div ref={table} className={frame.table} style={columns.style} role="table" aria-label={t("nav.runs")}>
      <div className={`${frame.row} ${frame.head} ${style.row}`} role="row" data-head>
        <span role="columnheader">
          <VisuallyHidden>{t("bulk.label")}</VisuallyHidden>
        </span>
        {columns.shown.map(({ name }) => (
          <span key={name} role="columnheader" className={style[name]}>
            {t(`run.columns.${name}`)}
          </span>
        ))}
      </div>
      <div role="rowgroup" data-testid="run-rows">
        {rows.map((run) => (
          <div
            key={run.id}
            className={`${frame.row} ${style.row}`}
            role="row"
            data-selected={selection.ids.has(run.id) || undefined}
          >
            <span role="cell" className={`${frame.above} ${style.pick}`}>
              <RowCheckbox
                label={t("bulk.select", { name: titleOf(run) })}
                checked={selection.ids.has(run.id)}
                onPick={() => selection.toggle(run.id)}
              />
            </span>
            {columns.shown.map(({ name }) => (
              <Cell
                key={name}
                name={name}
                run={run}
                isSingleWorkflow={isSingleWorkflow}
                isNamespaceInName={isNamespaceInName}
              />
            ))}
          </div>
        ))}
      </div>
      {children}
    </div>
  );
}

function starterText({ origin, trigger, actor }: WorkflowRun, t: TFunction): string {
  if (origin) return t("run.bySchedule", { name: origin.name });
  return trigger ? startedByText(trigger, t) : actor;
}

function titleOf({ workflow, number }: WorkflowRun): string {
  return number > 0 ? `${workflow} #${number}` : workflow;
}

interface CellProps {
  name: RunColumn;
  run: WorkflowRun;
  isSingleWorkflow: boolean | undefined;
  isNamespaceInName: boolean;
}

function Cell({ name, ...props }: CellProps) {
  const { run } = props;
  switch (name) {
    case "status":
      return (
        <span role="cell" className={style.status}>
          <RunStateBadge run={run} approvals={run.approvals?.length ?? 0} plain />
        </span>
      );
    case "name":
      return <NameCell {...props} />;
    case "namespace":
      return (
        <span role="cell" className={`${style.namespace} quiet clip`}>
          {run.namespace}
        </span>
      );
    case "progress":
      return (
        <span role="cell" className={style.progress}>
          <Progress counts={run.steps} />
        </span>
      );
    case "created":
      return (
        <span role="cell" className={`${style.created} quiet`}>
          <RelativeTime at={run.created_at} light />
        </span>
      );
    case "finished":
      return (
        <span role="cell" className={`${style.finished} quiet`}>
          {run.finished_at ? <RelativeTime at={run.finished_at} light /> : "–"}
        </span>
      );
    case "took":
      return (
        <span role="cell" className={style.took}>
          {run.started_at ? (
            <Elapsed from={run.started_at} to={isRunEnded(run.status) ? run.finished_at : null} />
          ) : (
            "–"
          )}
        </span>
      );
  }
}

function NameCell({ run, isSingleWorkflow, isNamespaceInName }: Omit<CellProps, "name">) {
  const { t } = useTranslation();
  const failure = run.status === "failed" && run.last_transition && transitionDetail(run.last_transition, t);
  return (
    <span role="cell" className={style.name}>
      <span className={style.title}>
        <Link to="/runs/$id" params={{ id: run.id }} className={`${frame.open} ${style.link}`}>
          {!isSingleWorkflow && <strong className="clip">{run.workflow} </strong>}
          <span className="num">
            {run.number > 0 ? `#${run.number}` : run.caller ? t("run.called") : t("run.standalone")}
          </span>
        </Link>
        {isNamespaceInName && run.namespace !== "default" && (
          <span className="quiet"> · {run.namespace}</span>
        )}
      </span>
      <span className="quiet clip">
        {starterText(run, t)}
        {run.note && ` · ${run.note}`}
      </span>
      {failure && <span className={`${style.failure} clip`}>{failure}</span>}
    </span>
  );
}

/** Number of steps by status, as a bar and a tooltip. */
export function Progress({ counts, isWide }: { counts: StepCounts; isWide?: boolean }) {
  const { t } = useTranslation();
  const { ended, total } = progressOf(counts);
  const presentStatuses = STEP_STATUSES.filter((status) => (counts[status] ?? 0) > 0);
  const words = presentStatuses
    .map((status) => `${t(`stepStatus.${status}`)} ${counts[status] ?? 0}`)
    .join(" · ");
  return (
    <span className={style.progressBox} data-wide={isWide || undefined} title={words}>
      <span className={style.bar} role="img" aria-label={words}>
        {presentStatuses.map((status) => (
          <i
            key={status}
            data-status={status}
            data-tone={stepTone(status)}
            style={{ flexGrow: counts[status] ?? 0 }}
          />
        ))}
      </span>
      <span className="num">
        {ended.toLocaleString()} / {total.toLocaleString()}
      </span>
    </span>
  );
}
