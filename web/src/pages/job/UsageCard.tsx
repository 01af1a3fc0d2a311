/** What an execution uses: measurements while it runs, statistics when it has ended; beside what the job requests. */

import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";

import type { Execution, Job, UsageSample } from "../../api/schema";
import { executionUsageQuery } from "../../api/usage";
import { formatBytes, parseBytes, parseCpu } from "../../lib/quantities";
import {
  type Distribution,
  formatUse,
  isOversized,
  MEASURED,
  type Measured,
  requestsOf,
  type UsageStatistics,
  usageSpans,
  usageStatistics,
  type Use,
} from "../../lib/usage";
import { useCan } from "../../ui/Allowed";
import { UsageChart } from "../../ui/charts/UsageChart";
import { Card, ErrorBox, KeyValueList, Loading } from "../../ui/kit";
import style from "./usage.module.css";

interface Props {
  job: Job;
  execution: Execution;
}

/** The card; nothing for an execution that did not start, or ended before it was measured. */
export function UsageCard({ job, execution }: Props) {
  const { t } = useTranslation();
  const can = useCan();
  const requests = requestsOf(job.spec);
  const statistics = usageStatistics(execution.usage);
  const isRunning = execution.status === "running" && can("read", "executions", job.namespace);
  if (!isRunning && !statistics) return null;
  return (
    <Card
      title={t("usage.title")}
      aside={job.executions > 1 && t("job.attempt", { number: execution.number })}
    >
      {isRunning ? (
        <CurrentUsage execution={execution.id} requests={requests} />
      ) : (
        statistics && <EndedUsage statistics={statistics} requests={requests} />
      )}
    </Card>
  );
}

function CurrentUsage({ execution, requests }: { execution: string; requests: Use | null }) {
  const { t } = useTranslation();
  const { data, error, refetch } = useQuery(executionUsageQuery(execution));
  if (!data) {
    return error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={3} />;
  }
  const newest = data.items.at(-1);
  if (!newest) return <p className="quiet">{t("usage.notMeasured")}</p>;
  const spans = usageSpans(data.items);
  return (
    <div className={style.running}>
      <Newest sample={newest} />
      {MEASURED.map((resource) => (
        <UsageChart key={resource} resource={resource} spans={spans} request={requests?.[resource] ?? null} />
      ))}
    </div>
  );
}

function Newest({ sample }: { sample: UsageSample }) {
  const { t } = useTranslation();
  const rate = (bytes: number) => t("usage.perSecond", { bytes: formatBytes(bytes) });
  const rows: Array<[name: string, value: string, testId?: string]> = [
    [t("usage.cpu"), formatUse("cpu", parseCpu(sample.cpu), t), "usage-cpu"],
    [t("usage.memory"), formatUse("memory", parseBytes(sample.memory), t), "usage-memory"],
    [t("usage.diskRead"), rate(sample.read_bytes_per_second)],
    [t("usage.diskWritten"), rate(sample.written_bytes_per_second)],
    [t("usage.processes"), sample.processes.toLocaleString()],
  ];
  return (
    <KeyValueList
      rows={rows.map(([name, value, testId]) => [
        name,
        <span key="" className="num" data-testid={testId}>
          {value}
        </span>,
      ])}
    />
  );
}

/** Rows of the statistics, after the request. */
const STATISTICS = ["mean", "p95", "max"] as const satisfies ReadonlyArray<keyof Distribution>;

function EndedUsage({ statistics, requests }: { statistics: UsageStatistics; requests: Use | null }) {
  const { t } = useTranslation();
  const row = (name: string, valueOf: (resource: Measured) => number | null | undefined) => (
    <tr key={name}>
      <th scope="row">{name}</th>
      {MEASURED.map((resource) => {
        const value = valueOf(resource);
        return (
          <td key={resource} className="num">
            {value == null ? <span className="quiet">–</span> : formatUse(resource, value, t)}
          </td>
        );
      })}
    </tr>
  );
  const oversized = MEASURED.filter(
    (resource) => requests && isOversized(resource, requests[resource], statistics),
  );
  return (
    <>
      <table className={style.statistics} data-testid="usage-statistics">
        <thead>
          <tr>
            <td />
            {MEASURED.map((resource) => (
              <th key={resource} scope="col">
                {t(`usage.${resource}`)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {requests && row(t("usage.request"), (resource) => requests[resource])}
          {STATISTICS.map((each) => row(t(`usage.${each}`), (resource) => statistics[resource][each]))}
        </tbody>
      </table>
      <KeyValueList
        rows={[
          [t("usage.diskRead"), formatBytes(statistics.readBytes)],
          [t("usage.diskWritten"), formatBytes(statistics.writtenBytes)],
        ]}
      />
      {oversized.map((resource) => (
        <p key={resource} className={style.hint}>
          {t(`usage.oversized.${resource}`, {
            request: formatUse(resource, requests?.[resource] ?? 0, t),
            used: formatUse(resource, statistics[resource].p95, t),
          })}
        </p>
      ))}
    </>
  );
}
