/** What starts runs of a workflow without a user: its triggers with their status, and the schedules that name it. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CirclePause } from "lucide-react";
import { useTranslation } from "react-i18next";

import { SCHEDULES_MAX, schedulesOfWorkflowQuery } from "../../api/schedules";
import type { TriggerRefusal, TriggerSpec, TriggerStatus, Workflow } from "../../api/schema";
import { runQuery } from "../../api/workflows";
import { translateMessage } from "../../lib/serverMessages";
import { missingSources, type Source, sourcesOf } from "../../lib/triggers";
import { EndedLink } from "../../ui/Ended";
import { Card, KeyValueList, Labels } from "../../ui/kit";
import { RunBadge, ToneBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import { ScheduleBadge } from "../schedules/ScheduleBadge";
import style from "./workflow.module.css";

export function TriggersCard({ workflow }: { workflow: Workflow }) {
  const { t } = useTranslation();
  const triggers = workflow.spec?.triggers ?? [];
  if (triggers.length === 0) return null;
  return (
    <Card title={t("trigger.title")} flush>
      <ul className={style.starters} data-testid="triggers">
        {triggers.map((trigger, i) => (
          <li key={i}>
            <Trigger trigger={trigger} status={workflow.triggers?.[i]} namespace={workflow.namespace} />
          </li>
        ))}
      </ul>
    </Card>
  );
}

interface TriggerProps {
  trigger: TriggerSpec;
  status: TriggerStatus | undefined;
  namespace: string;
}

function Trigger({ trigger, status, namespace }: TriggerProps) {
  const { t } = useTranslation();
  const sources = sourcesOf(trigger, status);
  const missing = missingSources(sources);
  return (
    <>
      {sources.map((source, i) => (
        <SourceLine key={i} source={source} namespace={namespace} isWaiting={missing > 0} />
      ))}
      {trigger.window && sources.length > 1 && (
        <p className="quiet">{t("trigger.window", { window: trigger.window })}</p>
      )}
      {trigger.paused && (
        <span className={style.line}>
          <ToneBadge tone="cancelled" icon={CirclePause} word={t("scheduleStatus.paused")} />
        </span>
      )}
      {status && (
        <KeyValueList
          rows={[
            missing > 0 && [t("trigger.waitsFor"), t("trigger.sources", { count: missing })],
            [
              t("workflow.columns.last"),
              status.last_run ? (
                <LastRun key="" id={status.last_run} />
              ) : (
                <span key="" className="quiet">
                  –
                </span>
              ),
            ],
            status.runs > 0 && [
              t("nav.runs"),
              <span key="" className="num">
                {status.runs.toLocaleString()}
              </span>,
            ],
            status.last_refusal
              ? [
                  t("trigger.refused"),
                  <Refusal key="" refusal={status.last_refusal} count={status.refused} />,
                ]
              : null,
          ]}
        />
      )}
    </>
  );
}

function SourceLine(props: { source: Source; namespace: string; isWaiting: boolean }) {
  const { t } = useTranslation();
  const { kind, name, on, labels, within, ended } = props.source;
  return (
    <div className={style.source}>
      <p>
        {t(`trigger.kind.${kind}`)}{" "}
        {kind === "job" ? (
          <Link to="/jobs/named/$name" params={{ name }} search={{ namespace: props.namespace }}>
            {name}
          </Link>
        ) : (
          <Link to="/workflows/$id" params={{ id: name }} search={{ namespace: props.namespace }}>
            {name}
          </Link>
        )}{" "}
        {t(`trigger.on.${on}`)}
      </p>
      <Labels labels={labels} />
      {within && <p className="quiet">{t("trigger.within", { within })}</p>}
      {props.isWaiting &&
        (ended ? <EndedLink ended={ended} /> : <span className="quiet">{t("trigger.notEnded")}</span>)}
    </div>
  );
}

/** The newest run that a trigger started. Only its id is shown if the run was deleted. */
function LastRun({ id }: { id: string }) {
  const { data } = useQuery({ ...runQuery(id), retry: false });
  if (!data) return <code className="quiet">…{id.slice(-8)}</code>;
  return (
    <span className={style.line}>
      <Link to="/runs/$id" params={{ id }} className="num">
        #{data.number}
      </Link>
      <RunBadge status={data.status} plain />
      <span className="quiet">
        <RelativeTime at={data.created_at} />
      </span>
    </span>
  );
}

/** How many ends started no run, the newest one, and why. */
function Refusal({ refusal, count }: { refusal: TriggerRefusal; count: number }) {
  const { t } = useTranslation();
  return (
    <div className={style.source}>
      <span className="num">{t("trigger.times", { count })}</span>
      <EndedLink ended={refusal.ended} />
      <p>{t(`triggerRefusal.${refusal.reason}`)}</p>
      {refusal.detail && <p className="quiet">{translateMessage(refusal.detail, t)}</p>}
    </div>
  );
}

export function SchedulesCard({ workflow }: { workflow: Workflow }) {
  const { t } = useTranslation();
  const { data } = useQuery(schedulesOfWorkflowQuery(workflow.name, workflow.namespace));
  if (!data || data.items.length === 0) return null;
  return (
    <Card title={t("nav.schedules")} flush>
      <ul className={style.starters} data-testid="schedules">
        {data.items.map(({ id, name, when, zone, status }) => (
          <li key={id}>
            <span className={style.line}>
              <Link to="/schedules/$id" params={{ id }}>
                {name}
              </Link>
              {status !== "active" && <ScheduleBadge status={status} />}
            </span>
            <span className="quiet">
              <code>{when}</code>
              {zone !== "UTC" && ` ${zone}`}
            </span>
          </li>
        ))}
      </ul>
      {data.isPartial && (
        <p className={`${style.stepAbout} quiet`}>{t("trigger.partial", { count: SCHEDULES_MAX })}</p>
      )}
    </Card>
  );
}
