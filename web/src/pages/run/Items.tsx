/** The elements of a step over a list that have ended, page by page. */

import { Button } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { RunItem, RunStep, WorkflowRun } from "../../api/schema";
import { itemsQuery } from "../../api/workflows";
import { Card, Loading, ProblemBox } from "../../ui/kit";
import { StepBadge } from "../../ui/Status";
import { Elapsed } from "../../ui/Time";
import style from "./run.module.css";

interface Props {
  run: WorkflowRun;
  step: RunStep;
  /** Whose log shows. */
  job: string | undefined;
  onJob: (job: string) => void;
}

export function Items({ run, step, job, onJob }: Props) {
  const { t } = useTranslation();
  const list = useInfiniteQuery(itemsQuery(run.id, step.name));
  const items = list.data?.pages.flatMap((page) => page.items);
  const { succeeded = 0, failed = 0 } = step.tally ?? {};
  return (
    <Card
      flush
      title={t("step.elements")}
      aside={
        step.total == null ? undefined : (
          <span className="num">{t("dag.tally", { over: succeeded + failed, total: step.total })}</span>
        )
      }
    >
      {list.error && !items && <ProblemBox error={list.error} onRetry={() => void list.refetch()} />}
      {!items && !list.error && (
        <div className={style.padded}>
          <Loading rows={3} />
        </div>
      )}
      {items?.length === 0 && <p className={style.nothing}>{t("step.noElements")}</p>}
      <ol className={style.items} data-testid="items">
        {items?.map((item) => (
          <Item
            key={item.index}
            item={item}
            isChosen={item.job_id != null && item.job_id === job}
            onJob={onJob}
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

function Item({ item, isChosen, onJob }: { item: RunItem; isChosen: boolean; onJob: (job: string) => void }) {
  const { t } = useTranslation();
  const { job_id: job, called } = item;
  return (
    <li data-chosen={isChosen || undefined}>
      <span className="num quiet">{item.index}</span>
      <StepBadge status={item.status} plain />
      <span className="clip quiet" title={item.message ?? undefined}>
        {item.message ?? (item.output === undefined ? "" : JSON.stringify(item.output))}
      </span>
      <span className="num quiet">
        {item.started_at && <Elapsed from={item.started_at} to={item.finished_at} />}
      </span>
      {job ? (
        <button type="button" className={style.linkish} aria-pressed={isChosen} onClick={() => onJob(job)}>
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
