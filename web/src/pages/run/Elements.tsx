/** Elements of a mapped step: those in progress, and the ended ones, paginated. */

import { Button } from "@mantine/core";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { RunElement, RunStep, WorkflowRun } from "../../api/schema";
import { workersQuery } from "../../api/queries";
import { elementsQuery, liveElementsQuery } from "../../api/workflows";
import { isStepEnded } from "../../lib/runs";
import { Card, Loading, ErrorBox } from "../../ui/kit";
import { translateMessage, stepReasonText } from "../../lib/serverMessages";
import { RunBadge, StatusBadge, StepBadge } from "../../ui/Status";
import { Elapsed } from "../../ui/Time";
import style from "./run.module.css";

interface Props {
  run: WorkflowRun;
  step: RunStep;
  /** Job whose log is shown. */
  job: string | undefined;
  onSelectJob: (job: string) => void;
}

export function Elements({ run, step, job, onSelectJob }: Props) {
  const { t } = useTranslation();
  const list = useInfiniteQuery(elementsQuery(run.id, step.name));
  const elements = list.data?.pages.flatMap((page) => page.items);
  const { succeeded = 0, failed = 0 } = step.element_counts ?? {};
  return (
    <Card
      flush
      title={t("step.elements")}
      aside={
        step.total == null ? undefined : (
          <span className="num">{t("dag.tally", { ended: succeeded + failed, total: step.total })}</span>
        )
      }
    >
      {list.error && !elements && <ErrorBox error={list.error} onRetry={() => void list.refetch()} />}
      {!elements && !list.error && (
        <div className={style.padded}>
          <Loading rows={3} />
        </div>
      )}
      {!isStepEnded(step.status) && (
        <LiveElements run={run} step={step} job={job} onSelectJob={onSelectJob} />
      )}
      {elements?.length === 0 && <p className={style.nothing}>{t("step.noElements")}</p>}
      <ol className={style.items} data-testid="items">
        {elements?.map((element) => (
          <ElementRow
            key={element.index}
            element={element}
            isSelected={element.job_id != null && element.job_id === job}
            onSelectJob={onSelectJob}
          />
        ))}
      </ol>
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
    </Card>
  );
}

/** Elements in progress, with worker and attempt. */
function LiveElements({ run, step, job, onSelectJob }: Props) {
  const { t } = useTranslation();
  const { data } = useQuery(liveElementsQuery(run.id, step.name, step.number));
  const workers = useQuery(workersQuery).data?.items ?? [];
  const nameOf = (id: string) => workers.find((worker) => worker.id === id)?.name ?? `…${id.slice(-8)}`;
  if (!data || data.items.length === 0) return null;
  return (
    <ol className={style.items} data-testid="live-items" aria-label={t("step.liveElements")}>
      {data.items.map(({ index, value, job: live, run: called }) => (
        <li key={live?.id ?? called?.id} data-chosen={(live && live.id === job) || undefined}>
          <span className="num quiet">{index ?? ""}</span>
          {live ? (
            <StatusBadge status={live.status} plain />
          ) : (
            called && <RunBadge status={called.status} plain />
          )}
          <span className="clip quiet" title={value}>
            {value}
            {live?.worker_id && (
              <>
                {" · "}
                <Link to="/workers/$id" params={{ id: live.worker_id }}>
                  {nameOf(live.worker_id)}
                </Link>
              </>
            )}
            {live && live.executions > 1 && ` · ${t("step.attempt", { count: live.executions })}`}
          </span>
          <span className="num quiet">
            {live?.started_at && <Elapsed from={live.started_at} to={null} />}
          </span>
          {live ? (
            <button
              type="button"
              className={style.linkish}
              aria-pressed={live.id === job}
              onClick={() => onSelectJob(live.id)}
            >
              {t("job.tabs.log")}
            </button>
          ) : called ? (
            <Link to="/runs/$id" params={{ id: called.id }}>
              {t("run.one")}
            </Link>
          ) : (
            <span />
          )}
        </li>
      ))}
      {data.more && <li className="quiet">{t("step.moreLive")}</li>}
    </ol>
  );
}

function ElementRow({
  element,
  isSelected,
  onSelectJob,
}: {
  element: RunElement;
  isSelected: boolean;
  onSelectJob: (job: string) => void;
}) {
  const { t } = useTranslation();
  const { job_id: job, called_run_id: called } = element;
  const isGood = element.status === "succeeded";
  return (
    <li data-chosen={isSelected || undefined}>
      <span className="num quiet">{element.index}</span>
      <StepBadge status={element.status} plain />
      <span className="clip quiet" title={element.message ?? undefined}>
        {isGood
          ? element.output === undefined
            ? ""
            : JSON.stringify(element.output)
          : element.message
            ? translateMessage(element.message, t)
            : stepReasonText(element, t)}
      </span>
      <span className="num quiet">
        {element.started_at && <Elapsed from={element.started_at} to={element.finished_at} />}
      </span>
      {job ? (
        <button
          type="button"
          className={style.linkish}
          aria-pressed={isSelected}
          onClick={() => onSelectJob(job)}
        >
          {t("job.tabs.log")}
        </button>
      ) : called ? (
        <Link to="/runs/$id" params={{ id: called }}>
          {t("run.one")}
        </Link>
      ) : (
        <span />
      )}
    </li>
  );
}
