/** Grid of the newest runs: a column per run, a row per step. */

import { useQueries, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Workflow as WorkflowIcon } from "lucide-react";
import { useMemo, useRef } from "react";
import { useTranslation } from "react-i18next";

import type { RunStep, Workflow, WorkflowRun } from "../../api/schema";
import { runsQuery, stepsQuery } from "../../api/workflows";
import type { DagNode } from "../../lib/dag/graph";
import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import { isRunEnded, stepTone } from "../../lib/runs";
import { formatExact } from "../../lib/time";
import { EmptyState, Loading, ErrorBox } from "../../ui/kit";
import style from "./grid.module.css";

const RUNS_SHOWN = 25;
const ROW_HEIGHT = 26;

export function RunsGrid({ workflow, nodes }: { workflow: Workflow; nodes: readonly DagNode[] }) {
  const { t } = useTranslation();
  const { data, error, refetch } = useQuery(runsQuery({ workflow: workflow.id }, RUNS_SHOWN));
  if (error && !data) return <ErrorBox error={error} onRetry={() => void refetch()} />;
  if (!data) {
    return (
      <div className={style.padded}>
        <Loading rows={8} />
      </div>
    );
  }
  if (data.items.length === 0) {
    return (
      <EmptyState icon={WorkflowIcon} title={t("run.none")}>
        {t("run.noneOfWorkflow")}
      </EmptyState>
    );
  }
  return <Grid runs={[...data.items].reverse()} nodes={nodes} />;
}

/** `runs` is newest last. */
function Grid({ runs, nodes }: { runs: readonly WorkflowRun[]; nodes: readonly DagNode[] }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const scroller = useRef<HTMLDivElement>(null);
  const read = useQueries({ queries: runs.map((run) => stepsQuery(run.id, isRunEnded(run.status))) });
  const steps = read.map(({ data }) => data?.steps);
  const columns = useMemo(
    () => steps.map((of) => new Map(of?.map((step) => [step.name, step]))),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- each element is stable until it is refetched
    steps,
  );
  // Removed steps of earlier generations come last.
  const names = useMemo(() => {
    const all = new Set(nodes.map(({ name }) => name));
    for (const column of columns) for (const name of column.keys()) all.add(name);
    return [...all];
  }, [nodes, columns]);
  const longest = Math.max(1, ...runs.map(runDuration));
  const virtual = useVirtualizer({
    count: names.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
  });

  return (
    <div
      ref={scroller}
      className={style.scroller}
      tabIndex={0}
      role="table"
      aria-label={t("workflow.tabs.grid")}
      aria-rowcount={names.length}
      data-testid="grid"
    >
      <div className={`${style.row} ${style.head}`} role="row">
        <span role="columnheader" className={style.name}>
          <span className="unseen">{t("workflow.columns.steps")}</span>
        </span>
        {runs.map((run) => (
          <span key={run.id} role="columnheader" className={style.run}>
            <Link
              to="/runs/$id"
              params={{ id: run.id }}
              data-status={run.status}
              title={`#${run.number} · ${t(`runStatus.${run.status}`)} · ${formatExact(run.created_at, language, zone)} · ${formatDuration(runDuration(run))}`}
              aria-label={`#${run.number} ${t(`runStatus.${run.status}`)}`}
            >
              <i style={{ height: `${12 + 88 * Math.sqrt(runDuration(run) / longest)}%` }} />
            </Link>
            <small className="num">{run.number}</small>
          </span>
        ))}
      </div>
      <div style={{ height: virtual.getTotalSize(), position: "relative" }} role="rowgroup">
        {virtual.getVirtualItems().map((item) => {
          const name = names[item.index] ?? "";
          return (
            <div
              key={name}
              className={style.row}
              role="row"
              style={{ height: ROW_HEIGHT, transform: `translateY(${item.start}px)`, position: "absolute" }}
            >
              <span role="rowheader" className={`${style.name} clip`} title={name}>
                {name}
              </span>
              {runs.map((run, i) => (
                <Cell key={run.id} run={run} step={columns[i]?.get(name)} />
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Cell({ run, step }: { run: WorkflowRun; step: RunStep | undefined }) {
  const { t } = useTranslation();
  if (!step) return <span role="cell" className={style.cell} />;
  const took =
    step.started_at && step.finished_at
      ? ` · ${formatDuration(Date.parse(step.finished_at) - Date.parse(step.started_at))}`
      : "";
  const words = `#${run.number} ${step.name}: ${t(`stepStatus.${step.status}`)}${took}`;
  return (
    <span role="cell" className={style.cell}>
      <Link
        to="/runs/$id"
        params={{ id: run.id }}
        search={{ step: step.name }}
        data-tone={stepTone(step.status)}
        data-status={step.status}
        title={words}
        aria-label={words}
      />
    </span>
  );
}

function runDuration({ started_at: from, finished_at: to }: WorkflowRun): number {
  if (!from) return 0;
  return (to ? Date.parse(to) : Date.now()) - Date.parse(from);
}
