/** List of runs, newest first: status, progress, and who started them. */

import { Button } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";

import { pagedRunsQuery, type RunsFilter } from "../../api/workflows";
import type { StepCounts, WorkflowRun } from "../../api/schema";
import { isRunEnded, progressOf, STEP_STATUSES, stepTone } from "../../lib/runs";
import { transitionDetail } from "../../lib/serverMessages";
import { Loading, ErrorBox } from "../../ui/kit";
import { RunStateBadge } from "../../ui/Status";
import { RelativeTime, Elapsed } from "../../ui/Time";
import style from "./runs.module.css";

interface Props {
  filter: RunsFilter;
  /** Placeholder of an empty list. */
  empty: ReactNode;
  /** Whether all runs belong to one workflow. */
  isSingleWorkflow?: boolean;
}

export function RunList({ filter, empty, isSingleWorkflow }: Props) {
  const { t } = useTranslation();
  const list = useInfiniteQuery(pagedRunsQuery(filter));
  const rows = list.data?.pages.flatMap((page) => page.items);
  if (list.error && !rows) return <ErrorBox error={list.error} onRetry={() => void list.refetch()} />;
  if (!rows) return <Loading rows={8} />;
  if (rows.length === 0) return empty;
  return (
    <div
      className={style.table}
      role="table"
      aria-label={t("nav.runs")}
      data-one={isSingleWorkflow || undefined}
    >
      <div role="rowgroup" data-testid="run-rows">
        {rows.map((run) => (
          <RunRow key={run.id} run={run} isSingleWorkflow={isSingleWorkflow} />
        ))}
      </div>
      {list.hasNextPage && (
        <div className={style.more}>
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
  );
}

function RunRow({ run, isSingleWorkflow }: { run: WorkflowRun; isSingleWorkflow?: boolean }) {
  const { t } = useTranslation();
  const isOver = isRunEnded(run.status);
  const failure = run.status === "failed" && run.last_transition && transitionDetail(run.last_transition, t);
  return (
    <div className={style.row} role="row">
      <span role="cell">
        <RunStateBadge run={run} approvals={run.approvals?.length ?? 0} plain />
      </span>
      <span role="cell" className={style.name}>
        <span className="clip">
          <Link to="/runs/$id" params={{ id: run.id }} className={style.open}>
            {!isSingleWorkflow && <strong>{run.workflow} </strong>}
            <span className="num">
              {run.number > 0 ? `#${run.number}` : run.caller ? t("run.called") : t("run.standalone")}
            </span>
          </Link>
          {run.namespace !== "default" && <span className="quiet"> · {run.namespace}</span>}
        </span>
        <span className="quiet clip">
          {run.origin ? t("run.bySchedule", { name: run.origin.name }) : run.actor}
          {run.note && ` · ${run.note}`}
        </span>
        {failure && <span className={`${style.failure} clip`}>{failure}</span>}
      </span>
      <span role="cell" className={style.progress}>
        <Progress counts={run.steps} />
      </span>
      <span role="cell" className={`${style.when} quiet`}>
        <RelativeTime at={run.created_at} light />
      </span>
      <span role="cell" className={style.took}>
        {run.started_at ? <Elapsed from={run.started_at} to={isOver ? run.finished_at : null} /> : "–"}
      </span>
    </div>
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
