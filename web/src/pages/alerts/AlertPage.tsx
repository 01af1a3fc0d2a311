/** An alert: its times, jobs and runs, and the notifications about it. */

import { useQueries, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { ChevronRight } from "lucide-react";
import { useTranslation } from "react-i18next";

import { alertQuery, alertRulesQuery, notificationsQuery } from "../../api/alerts";
import type { Alert } from "../../api/schema";
import { ApiError } from "../../api/errors";
import { jobQuery } from "../../api/queries";
import { runQuery } from "../../api/workflows";
import { alertSentence, conditionSentence, subjectName } from "../../lib/alerts";
import { usePreferences } from "../../lib/preferences";
import { resultText, translateMessage } from "../../lib/serverMessages";
import { usePageTitle } from "../../lib/title";
import { Card, ErrorBox, KeyValueList, Loading, Page } from "../../ui/kit";
import { RunBadge, StatusBadge } from "../../ui/Status";
import { AbsoluteTime, RelativeTime } from "../../ui/Time";
import { Actions } from "./Actions";
import style from "./alerts.module.css";
import { ActorLine } from "./AlertsPage";
import { NotificationTable } from "./NotificationTable";
import { AlertBadge, SeverityBadge, SilencedBadge, SubjectLink } from "./words";

const route = getRouteApi("/alerts/$id");
/** Newest notifications about the alert that are listed. */
const NOTIFICATIONS_MAX = 50;

export function AlertPage() {
  const { t } = useTranslation();
  const { id } = route.useParams();
  const { data: alert, error, refetch } = useQuery(alertQuery(Number(id)));
  usePageTitle(alert ? `${subjectName(alert, t)} · ${t("alert.one")}` : t("nav.alerts"));
  if (alert) return <Shown alert={alert} />;
  return (
    <Page title={t("nav.alerts")}>
      {error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={8} />}
    </Page>
  );
}

function Shown({ alert }: { alert: Alert }) {
  const { t } = useTranslation();
  const { jobs = [], runs = [], detail } = alert;
  return (
    <Page
      title={
        <div className={style.crumbs}>
          <Link to="/alerts" className="quiet">
            {t("nav.alerts")}
          </Link>
          <ChevronRight size={14} className="quiet" aria-hidden />
          <h1 className="clip">{subjectName(alert, t)}</h1>
          <SeverityBadge severity={alert.severity} />
          <AlertBadge status={alert.status} />
          {alert.silenced && <SilencedBadge />}
        </div>
      }
      actions={<Actions alert={alert} />}
    >
      <div className={style.columns}>
        <div className={style.main}>
          <Card title={t("alert.what")}>
            <p>
              <strong>{alertSentence(alert, t)}</strong>
            </p>
            {detail && <pre className={style.detail}>{translateMessage(detail, t)}</pre>}
            <ActorLine alert={alert} />
          </Card>
          {jobs.length > 0 && (
            <Card title={t("alert.jobs")} flush>
              <Jobs ids={[...jobs].reverse()} />
            </Card>
          )}
          {runs.length > 0 && (
            <Card title={t("alert.runs")} flush>
              <Runs ids={[...runs].reverse()} />
            </Card>
          )}
          <Card title={t("alert.notifications")} flush>
            <Notifications alert={alert} />
          </Card>
        </div>
        <div className={style.aside}>
          <Details alert={alert} />
          <Rule alert={alert} />
        </div>
      </div>
    </Page>
  );
}

const RESOLUTIONS = ["recovered", "resolved_by_user", "rule_changed", "stale"] as const;

function Details({ alert }: { alert: Alert }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const { resolved_at: resolvedAt, resolved_by: by, notified_at: notifiedAt } = alert;
  const reason = RESOLUTIONS.find((each) => each === by);
  return (
    <Card title={t("alert.details")}>
      <KeyValueList
        rows={[
          [t(`alertSubject.kind.${alert.subject.kind}`), <SubjectLink key="" alert={alert} />],
          [t("alertRule.namespace"), alert.namespace],
          [t("alert.occurrences"), alert.count.toLocaleString(language)],
          [t("alert.firstAt"), <AbsoluteTime key="" at={alert.opened_at} />],
          [t("alert.lastAt"), <AbsoluteTime key="" at={alert.last_at} />],
          notifiedAt ? [t("alert.notifiedAt"), <AbsoluteTime key="" at={notifiedAt} />] : null,
          alert.escalated_at
            ? [t("alert.escalatedAt"), <AbsoluteTime key="" at={alert.escalated_at} />]
            : null,
          resolvedAt ? [t("alert.resolvedAt"), <AbsoluteTime key="" at={resolvedAt} />] : null,
          by ? [t("alert.resolvedBy"), reason ? t(`alert.resolution.${reason}`) : by] : null,
          ["ID", <code key="">{alert.id}</code>],
        ]}
      />
    </Card>
  );
}

/** The rule of the alert, unless it was deleted. */
function Rule({ alert: { namespace, rule: name } }: { alert: Alert }) {
  const { t } = useTranslation();
  const { data } = useQuery(alertRulesQuery(namespace));
  const rule = data?.items.find((each) => each.name === name);
  return (
    <Card title={t("alert.rule")}>
      <div className={style.rule}>
        <Link to="/alerts/rules" search={{ namespace }}>
          <code>{name}</code>
        </Link>
        {data && !rule && <p className="quiet">{t("alert.ruleDeleted")}</p>}
        {rule && (
          <>
            <p>{conditionSentence(rule.when, t)}</p>
            {rule.description && <p className="quiet">{rule.description}</p>}
            {rule.runbook && (
              <a href={rule.runbook} target="_blank" rel="noreferrer" className={style.link}>
                {t("alert.runbook")}
              </a>
            )}
          </>
        )}
      </div>
    </Card>
  );
}

/** The newest jobs of the alert. A job may be deleted before its alert. */
function Jobs({ ids }: { ids: string[] }) {
  const { t } = useTranslation();
  const jobs = useQueries({ queries: ids.map((id) => jobQuery(id)) });
  return (
    <ul className={style.list} aria-label={t("alert.jobs")} data-testid="alert-jobs">
      {ids.map((id, i) => {
        const job = jobs[i]?.data;
        if (!job) return <Unknown key={id} id={id} error={jobs[i]?.error} />;
        return (
          <li key={id}>
            <StatusBadge status={job.status} plain />
            <span className={style.named}>
              <Link to="/jobs/$id" params={{ id }}>
                {job.name}
              </Link>
              <span className="quiet clip">{job.status === "failed" && resultText(job.result, t)}</span>
            </span>
            <span className="quiet">
              <RelativeTime at={job.finished_at ?? job.created_at} />
            </span>
          </li>
        );
      })}
    </ul>
  );
}

function Runs({ ids }: { ids: string[] }) {
  const { t } = useTranslation();
  const runs = useQueries({ queries: ids.map((id) => runQuery(id)) });
  return (
    <ul className={style.list} aria-label={t("alert.runs")}>
      {ids.map((id, i) => {
        const run = runs[i]?.data;
        if (!run) return <Unknown key={id} id={id} error={runs[i]?.error} />;
        return (
          <li key={id}>
            <RunBadge status={run.status} plain />
            <span className={style.named}>
              <Link to="/runs/$id" params={{ id }}>
                {run.number > 0 ? `${run.workflow} #${run.number}` : run.workflow}
              </Link>
            </span>
            <span className="quiet">
              <RelativeTime at={run.finished_at ?? run.created_at} />
            </span>
          </li>
        );
      })}
    </ul>
  );
}

/** An object that is not loaded yet, or that was deleted. */
function Unknown({ id, error }: { id: string; error: unknown }) {
  const { t } = useTranslation();
  const isDeleted = error != null && ApiError.from(error).status === 404;
  return (
    <li className="quiet">
      <span>{isDeleted ? t("failureGroup.deletedJob") : "–"}</span>
      <code className="clip">{id}</code>
      <span />
    </li>
  );
}

/** Notifications that name the alert. A notification names at most 20 alerts. */
function Notifications({ alert: { id, namespace } }: { alert: Alert }) {
  const { t } = useTranslation();
  const { data, error, refetch } = useQuery(notificationsQuery({ namespace, alert: id }, NOTIFICATIONS_MAX));
  if (!data) {
    return (
      <div className={style.padded}>
        {error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={2} />}
      </div>
    );
  }
  if (data.items.length === 0) {
    return <p className={`${style.padded} quiet`}>{t("alert.noNotifications")}</p>;
  }
  return <NotificationTable notifications={data.items} inCard />;
}
