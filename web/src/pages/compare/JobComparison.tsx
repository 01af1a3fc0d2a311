/** Two jobs, or two executions of one job. */

import { NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import { jobExecutionsQuery, jobQuery, useWorkerName } from "../../api/queries";
import type { Execution, Job } from "../../api/schema";
import { comparedSpec, type CompareSearch } from "../../lib/compare";
import { formatBytes, formatDuration, parseDuration, peakMemory } from "../../lib/quantities";
import { resultText } from "../../lib/serverMessages";
import { isLive } from "../../lib/statuses";
import { Card, ErrorBox, Loading } from "../../ui/kit";
import { ExecutionBadge, executionTone, StatusBadge } from "../../ui/Status";
import { AbsoluteTime } from "../../ui/Time";
import { executionBars } from "../job/bars";
import { Differences } from "./Differences";
import { LogDiff } from "./LogDiff";
import { SideTable, type SideRow, TimeBars } from "./SideTable";

interface Props {
  a: string;
  b: string;
  search: CompareSearch;
  onChange: (part: CompareSearch) => void;
}

export function JobComparison({ a: idA, b: idB, search, onChange }: Props) {
  const { t } = useTranslation();
  const workerName = useWorkerName();
  const a = useSide(idA, search.execution_a);
  const b = useSide(idB, search.execution_b);
  const error = a.error ?? b.error;
  if (!a.side || !b.side) return error ? <ErrorBox error={error} /> : <Loading rows={8} />;
  const sides = [a.side, b.side] as const;
  const of = <T,>(value: (side: Side) => T) => [value(sides[0]), value(sides[1])] as const;
  const hasResult = sides.some(({ execution, job }) => resultText(resultOf(execution, job), t));
  const rows: SideRow[] = [
    { label: t("jobs.columns.status"), shown: of(({ job }) => <StatusBadge status={job.status} />) },
    {
      label: t("compare.execution"),
      shown: of(({ execution }) =>
        execution ? <ExecutionBadge status={execution.status} /> : <span className="quiet">–</span>,
      ),
    },
    hasResult && {
      label: t("job.result.title"),
      shown: of(({ execution, job }) => resultText(resultOf(execution, job), t)),
    },
    {
      label: t("job.result.exitCode"),
      shown: of(({ execution, job }) => resultOf(execution, job)?.exit_code ?? null),
    },
    {
      label: t("job.details.submitted"),
      shown: of(({ job }) => <AbsoluteTime key="" at={job.created_at} />),
    },
    {
      label: t("job.details.started"),
      shown: of(
        ({ execution }) => execution?.started_at && <AbsoluteTime key="" at={execution.started_at} />,
      ),
    },
    { label: t("job.details.waited"), numbers: of(({ waited }) => waited), format: formatDuration },
    { label: t("job.details.took"), numbers: of(({ ran }) => ran), format: formatDuration },
    // Executions of one job have the same total.
    idA !== idB && { label: t("compare.total"), numbers: of(({ total }) => total), format: formatDuration },
    { label: t("job.details.tries"), numbers: of(({ job }) => job.executions), format: String },
    {
      label: t("job.details.worker"),
      shown: of(({ execution }) => execution && workerName(execution.worker_id)),
    },
    {
      label: t("job.details.cpuTime"),
      numbers: of(({ execution }) => execution?.usage && parseDuration(execution.usage.cpu_time)),
      format: formatDuration,
    },
    {
      label: t("job.details.memory"),
      numbers: of(({ execution }) => peakMemory(execution?.usage)),
      format: formatBytes,
    },
    {
      label: t("compare.logSize"),
      numbers: of(({ execution }) => execution?.usage?.log_bytes),
      format: formatBytes,
    },
  ].filter((row) => row !== false);
  const heads = of(({ job, execution }) => (
    <Link
      key=""
      to="/jobs/$id"
      params={{ id: job.id }}
      search={{ execution: execution && String(execution.number) }}
    >
      {job.name} <span className="mono">…{job.id.slice(-8)}</span>
    </Link>
  ));
  const choices = sides.map(({ job, execution, executions }, i) => {
    if (executions.length < 2) return null;
    const key = i === 0 ? "execution_a" : "execution_b";
    return (
      <NativeSelect
        key={key}
        size="xs"
        aria-label={t("compare.executionOf", { name: `${job.name} …${job.id.slice(-8)}` })}
        value={execution?.number}
        onChange={(event) => onChange({ [key]: event.currentTarget.value })}
        data={executions.map(({ number }) => ({
          value: String(number),
          label: t("job.attempt", { number }),
        }))}
      />
    );
  });
  return (
    <>
      <Card title={t("compare.summary")} flush>
        <SideTable heads={heads} choices={[choices[0], choices[1]]} rows={rows} />
        <TimeBars
          sides={of(({ waited, ran, job, execution }) => ({
            waited: waited ?? 0,
            ran: ran ?? 0,
            tone: execution ? executionTone(execution.status) : job.status,
          }))}
        />
      </Card>
      <Differences
        title={t("job.tabs.spec")}
        same={idA === idB ? t("compare.sameJob") : t("compare.sameSpec")}
        values={of(({ job }) => job.spec && comparedSpec(job.spec))}
      />
      <Differences
        title={t("job.result.output")}
        values={of(({ execution, job }) => resultOf(execution, job)?.output)}
      />
      <LogDiff
        key={of(({ job, execution }) => `${job.id} ${execution?.number}`).join()}
        sides={of(({ job, execution }) => ({
          job: job.id,
          execution: execution?.number,
          isEnded: execution ? Boolean(execution.finished_at) : !isLive(job.status),
        }))}
        ignoresNumbers={search.numbers === "ignore"}
        onIgnore={(ignores) => onChange({ numbers: ignores ? "ignore" : undefined })}
      />
    </>
  );
}

interface Side {
  job: Job;
  execution: Execution | undefined;
  executions: readonly Execution[];
  waited: number | null;
  ran: number | null;
  total: number | null;
}

function useSide(id: string, number: string | undefined): { side: Side | null; error: unknown } {
  const job = useQuery(jobQuery(id));
  const list = useQuery(jobExecutionsQuery(id));
  const error = job.error ?? list.error;
  if (!job.data || !list.data) return { side: null, error };
  const executions = list.data.items;
  const chosen = number === undefined ? undefined : Number(number);
  const execution = executions.find((each) =>
    chosen === undefined ? each.id === job.data.execution_id : each.number === chosen,
  );
  const bar = executionBars(job.data, executions, null).bars.find(
    ({ execution: { id } }) => id === execution?.id,
  );
  const { created_at, finished_at } = job.data;
  return {
    side: {
      job: job.data,
      execution,
      executions,
      waited: bar && execution?.started_at ? bar.started - bar.waitingSince : null,
      ran: bar && execution?.finished_at ? bar.ended - bar.started : null,
      total: finished_at ? Date.parse(finished_at) - Date.parse(created_at) : null,
    },
    error,
  };
}

/** Returns the result of an execution; of a job that never started, its own. */
function resultOf(execution: Execution | undefined, job: Job) {
  return execution ? execution.result : job.result;
}
