/** Statistics, policies and details of a schedule. */

import { Link, useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";

import type { Schedule, ScheduleSpec } from "../../api/schema";
import { effectivePolicies } from "../../lib/guarantees";
import { formatDuration, parseDuration } from "../../lib/quantities";
import { Card, KeyValueList, Id, Labels } from "../../ui/kit";
import { RelativeTime } from "../../ui/Time";
import { AllRunsLink } from "../schedules/ScheduleRunBars";
import { SuccessRate } from "../schedules/ScheduleRow";
import style from "./schedule.module.css";

export function ScheduleStatistics({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const { statistics, health } = schedule;
  const length = (text: string | null | undefined) =>
    text ? formatDuration(parseDuration(text) ?? 0) : null;
  const medianDuration = length(statistics.duration_p50);
  const figures: Array<[string, ReactNode]> = [
    [t("schedule.figures.next"), <RelativeTime key="" at={schedule.next_at} />],
    [t("schedule.figures.success"), <SuccessRate key="" schedule={schedule} />],
    [
      t("schedule.figures.usual"),
      medianDuration ? (
        <span key="" className="num">
          {medianDuration}{" "}
          <small className="quiet">
            {t("schedule.figures.p95", { length: length(statistics.duration_p95) })}
          </small>
        </span>
      ) : (
        "–"
      ),
    ],
    [
      t("schedule.figures.runs"),
      <AllRunsLink key="" schedule={schedule} className="num">
        {(statistics.succeeded + statistics.failed).toLocaleString()}
      </AllRunsLink>,
    ],
    [
      t("schedule.figures.open"),
      <AllRunsLink key="" schedule={schedule} activeOnly className="num">
        {health?.open_runs ?? 0}
      </AllRunsLink>,
    ],
    [
      t("schedule.figures.skipped"),
      <span key="" className="num">
        {schedule.skipped.toLocaleString()}
      </span>,
    ],
  ];
  return (
    <dl className={style.figures}>
      {figures.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Policies({ spec }: { spec: ScheduleSpec }) {
  const { t } = useTranslation();
  const { overlap, missed, expect, jitter } = spec;
  const { overlap: overlapPolicy, missed: missedPolicy } = effectivePolicies(spec);
  const finishBy = spec.job?.finish_by;
  const limit = overlap?.limit ?? 1;
  return (
    <Card title={t("schedule.policies")}>
      <KeyValueList
        rows={[
          spec.guarantee ? [t("policy.guarantee"), t(`guarantee.${spec.guarantee}`)] : null,
          [
            t("policy.overlap"),
            `${t(`overlap.${overlapPolicy}`)}${limit > 1 && overlapPolicy !== "allow_all" ? ` (≥ ${limit})` : ""}`,
          ],
          [t("policy.missed"), t(`missed.${missedPolicy}`)],
          missed?.catch_up_window && missedPolicy !== "skip"
            ? [t("policy.catchUpWindow"), missed.catch_up_window]
            : null,
          spec.start_deadline ? [t("policy.startDeadline"), spec.start_deadline] : null,
          finishBy?.after
            ? [
                t("job.details.finishBy"),
                <span key="">
                  {finishBy.after}{" "}
                  <small className="quiet">· {t(`finishAction.${finishBy.action ?? "fail"}`)}</small>
                </span>,
              ]
            : null,
          jitter ? [t("policy.jitter"), `≤ ${jitter.max}`] : null,
          expect?.start_within ? [t("policy.startWithin"), expect.start_within] : null,
          expect?.run_within ? [t("policy.runWithin"), expect.run_within] : null,
          spec.pause_after_failures
            ? [t("policy.pauseAfter"), t("policy.failures", { count: spec.pause_after_failures })]
            : null,
          spec.max_firings ? [t("policy.maxFirings"), spec.max_firings.toLocaleString()] : null,
          spec.reserve_ahead ? [t("policy.reserveAhead"), spec.reserve_ahead] : null,
        ]}
      />
    </Card>
  );
}

export function ScheduleSummary({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  return (
    <Card title={t("schedule.about")}>
      <KeyValueList
        rows={[
          ["ID", <Id key="" id={schedule.id} />],
          [t("job.details.namespace"), schedule.namespace],
          schedule.owner
            ? [
                t("job.details.owner"),
                <Link key="" to="/schedules" search={{ owner: schedule.owner }}>
                  {schedule.owner}
                </Link>,
              ]
            : null,
          Object.keys(schedule.labels ?? {}).length > 0 && [
            t("job.details.labels"),
            <Labels
              key=""
              labels={schedule.labels}
              onPick={(label) => void navigate({ to: "/schedules", search: { label: [label] } })}
            />,
          ],
          [
            t("schedule.generation"),
            <span key="" className="num">
              {schedule.generation}
            </span>,
          ],
          [t("schedule.updated"), <RelativeTime key="" at={schedule.updated_at} />],
          [t("schedule.created"), <RelativeTime key="" at={schedule.created_at} />],
        ]}
      />
    </Card>
  );
}
