/** A card with the history of a subject: ended jobs, delays, run times and levels in a range that the user chooses. */

import { SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";

import { seriesQuery, type SeriesSubject } from "../../api/statistics";
import { intervalsOf, type Range, RANGES, quantiles } from "../../lib/statistics";
import { useCan } from "../Allowed";
import { Card, ErrorBox, Loading } from "../kit";
import style from "./charts.module.css";
import { Durations, EndedJobs, Levels, SubmittedJobs } from "./Charts";

export type Chart = "submitted" | "ended" | "startDelay" | "runTime" | "levels";

interface HistoryProps {
  subject: SeriesSubject;
  charts: readonly Chart[];
  /** The range is part of the address of a page. */
  range: Range;
  onRange: (range: Range | undefined) => void;
}

/** Returns whether the statistics of a subject have jobs of all namespaces. */
function isOfCluster({ queue, worker_id }: SeriesSubject): boolean {
  return queue !== undefined || worker_id !== undefined;
}

/** The history; nothing if the caller may not read the jobs of all namespaces that it counts. */
export function HistoryCard(props: HistoryProps) {
  const { t } = useTranslation();
  const can = useCan();
  if (isOfCluster(props.subject) && !can("read", "jobs")) return null;
  return (
    <Card title={t("chart.history")} aside={<RangeSwitch {...props} />}>
      <History {...props} />
    </Card>
  );
}

export function RangeSwitch({ range, onRange }: Pick<HistoryProps, "range" | "onRange">) {
  const { t } = useTranslation();
  return (
    <SegmentedControl
      aria-label={t("chart.range")}
      value={range}
      // The default is not in the address.
      onChange={(chosen) => onRange(RANGES.slice(1).find((each) => each === chosen))}
      data={RANGES.map((value) => ({ value, label: t(`chart.rangeShort.${value}`) }))}
    />
  );
}

export function History({ subject, charts, range: chosen }: HistoryProps) {
  const { data, error, refetch } = useQuery(seriesQuery(subject, chosen));
  const intervals = useMemo(() => (data ? intervalsOf(data.series, data.range) : []), [data]);
  if (!data) {
    return error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={4} />;
  }
  const { total } = data.series;
  const props = { range: data.range, intervals };
  return (
    <div className={style.grid}>
      {charts.map((chart) => {
        switch (chart) {
          case "submitted":
            return <SubmittedJobs key={chart} {...props} total={total.submitted} />;
          case "ended": {
            const count = total.succeeded + total.failed + total.cancelled + total.expired;
            return <EndedJobs key={chart} {...props} total={count} />;
          }
          case "startDelay":
            return <Durations key={chart} {...props} kind={chart} total={quantiles(total.start_delay)} />;
          case "runTime":
            return <Durations key={chart} {...props} kind={chart} total={quantiles(total.run_time)} />;
          case "levels":
            return <Levels key={chart} {...props} hasWaiting={subject.worker_id === undefined} />;
        }
      })}
    </div>
  );
}
