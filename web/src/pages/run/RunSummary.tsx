/** Summary of a run. */

import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { CirclePause, OctagonX, Play, RotateCcw } from "lucide-react";
import { useTranslation } from "react-i18next";

import type { WorkflowRun } from "../../api/schema";
import { resumeRun } from "../../api/workflows";
import { isRunEnded } from "../../lib/runs";
import { transitionDetail, attemptText } from "../../lib/serverMessages";
import { startedByText } from "../../lib/triggers";
import { EndedLink, StartedRuns } from "../../ui/Ended";
import { runAction } from "../../ui/notify";
import { Card, CopyButton, KeyValueList } from "../../ui/kit";
import { RelativeTime, AbsoluteTime, Elapsed } from "../../ui/Time";
import banner from "../schedule/schedule.module.css";
import style from "./run.module.css";

export function RunSummary({ run }: { run: WorkflowRun }) {
  const { t } = useTranslation();
  const { origin, caller, trigger } = run;
  return (
    <div className={style.side}>
      <Card title={t("run.details.title")}>
        <KeyValueList
          rows={[
            [t("run.details.actor"), trigger ? startedByText(trigger, t) : run.actor],
            run.note ? [t("run.details.note"), run.note] : null,
            [t("run.details.created"), <RelativeTime key="" at={run.created_at} />],
            run.started_at && run.started_at !== run.created_at
              ? [t("run.details.turn"), <RelativeTime key="" at={run.started_at} />]
              : null,
            run.started_at
              ? [
                  isRunEnded(run.status) ? t("job.details.took") : t("job.details.soFar"),
                  <Elapsed
                    key=""
                    from={run.started_at}
                    to={isRunEnded(run.status) ? run.finished_at : null}
                  />,
                ]
              : null,
            run.attempt ? [t("run.details.try"), attemptText(run.attempt, t)] : null,
            run.finished_at
              ? [t("job.details.finished"), <RelativeTime key="" at={run.finished_at} />]
              : null,
            !isRunEnded(run.status) && [t("run.details.section"), t(`section.${run.section}`)],
            [t("job.details.namespace"), run.namespace],
            run.generation > 0 && [
              t("schedule.generation"),
              <span key="" className="num">
                {run.generation}
              </span>,
            ],
            run.priority != null
              ? [
                  t("job.details.priority"),
                  <span key="" className="num">
                    {run.priority}
                  </span>,
                ]
              : null,
            caller
              ? [
                  t("run.details.caller"),
                  <Link key="" to="/runs/$id" params={{ id: caller.run }} className="mono">
                    …{caller.run.slice(-8)}
                  </Link>,
                ]
              : null,
            run.retry_of
              ? [
                  t("job.details.retryOf"),
                  <Link key="" to="/runs/$id" params={{ id: run.retry_of }} className="mono">
                    …{run.retry_of.slice(-8)}
                  </Link>,
                ]
              : null,
            run.started_runs?.length
              ? [t("trigger.startedRuns"), <StartedRuns key="" ids={run.started_runs} />]
              : null,
            [
              t("nav.jobs"),
              <Link key="" to="/jobs" search={{ run: run.id }}>
                {t("job.origin.all")}
              </Link>,
            ],
          ]}
        />
      </Card>
      {origin && (
        <Card title={t("job.origin.title")}>
          <KeyValueList
            rows={[
              [
                t("job.origin.schedule"),
                <Link key="" to="/schedules/$id" params={{ id: origin.schedule }}>
                  {origin.name}
                </Link>,
              ],
              [t("job.origin.nominal"), <AbsoluteTime key="" at={origin.scheduled_for} />],
              [t("job.origin.cause"), t(`firingCause.${origin.cause}`)],
            ]}
          />
        </Card>
      )}
      {trigger && (
        <Card title={t("trigger.startedBy")}>
          <div className={style.ends} data-testid="trigger">
            {trigger.ended.map((ended, i) => (
              <EndedLink key={i} ended={ended} />
            ))}
          </div>
          {trigger.chain.length > 1 && (
            <KeyValueList rows={[[t("trigger.chain"), trigger.chain.join(" → ")]]} />
          )}
        </Card>
      )}
      <JsonCard title={t("workflow.parameters")} value={run.parameters} />
      <JsonCard title={t("run.output")} value={run.output} />
    </div>
  );
}

/** JSON data with a copy button. */
export function JsonCard({ title, value }: { title: string; value: unknown }) {
  const { t } = useTranslation();
  const isEmpty = value === undefined || value === null || JSON.stringify(value) === "{}";
  if (isEmpty) return null;
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return (
    <Card title={title} aside={<CopyButton text={text} label={t("common.copy")} />}>
      <pre className={style.values} tabIndex={0}>
        {text}
      </pre>
    </Card>
  );
}

/** Banner of a run that is paused, stopping, or waiting for its next attempt. */
export function RunBanner({ run }: { run: WorkflowRun }) {
  const { t } = useTranslation();
  const name = run.workflow;
  if (run.status === "stopping" && run.stopping) {
    return (
      <div className={banner.banner} data-bad role="status">
        <OctagonX size={16} aria-hidden />
        <div>
          <strong>{t("run.stopping")}</strong> {t(`runCause.${run.stopping}`)}
        </div>
      </div>
    );
  }
  if (run.status === "retrying" && run.attempt?.next_at) {
    const failed = run.history?.at(-1);
    return (
      <div className={banner.banner} role="status" data-testid="retrying">
        <RotateCcw size={16} aria-hidden />
        <div>
          <strong>{t("run.retries")}</strong> {attemptText(run.attempt, t)}{" "}
          <span className="quiet">
            <RelativeTime at={run.attempt.next_at} />
          </span>
          {failed && (
            <q>{[t(`runCause.${failed.cause}`), transitionDetail(failed, t)].filter(Boolean).join(" · ")}</q>
          )}
        </div>
      </div>
    );
  }
  if (!run.pause || isRunEnded(run.status)) return null;
  return (
    <div className={banner.banner} role="status">
      <CirclePause size={16} aria-hidden />
      <div>
        <strong>{t("schedule.pausedBy", { name: run.pause.by })}</strong>{" "}
        <span className="quiet">
          <RelativeTime at={run.pause.at} />
        </span>
        {run.pause.note && <q>{run.pause.note}</q>}
      </div>
      <Button
        variant="default"
        leftSection={<Play size={13} />}
        onClick={() => void runAction(() => resumeRun(run.id), t("run.resumed", { name }))}
      >
        {t("schedule.resume")}
      </Button>
    </div>
  );
}
