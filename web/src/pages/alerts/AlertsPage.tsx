/** The inbox: open alerts, with filters and actions. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { BellPlus, CircleCheck, SearchX } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { alertRulesQuery, alertsQuery } from "../../api/alerts";
import type { Alert } from "../../api/schema";
import { useHasNamespaces } from "../../app/namespace";
import {
  actOf,
  ALERT_STATUSES,
  alertSentence,
  type AlertsSearch,
  alertStatusesOf,
  isOpen,
  sampleCommand,
  SEVERITIES,
  withAlertStatus,
} from "../../lib/alerts";
import { usePreferences } from "../../lib/preferences";
import { translateMessage } from "../../lib/serverMessages";
import { usePageTitle } from "../../lib/title";
import { AllowedSomewhere } from "../../ui/Allowed";
import { FilterField } from "../../ui/FilterField";
import filters from "../../ui/filters.module.css";
import { EmptyState, ErrorBox, Loading, Page, Snippet } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { RelativeTime } from "../../ui/Time";
import { Actions } from "./Actions";
import style from "./alerts.module.css";
import { useNewNamespace } from "./NamespaceInput";
import { Sections } from "./Sections";
import { AlertBadge, SeverityBadge, SilencedBadge, SubjectLink } from "./words";

const route = getRouteApi("/alerts");
const COLUMNS = ["severity", "alert", "status", "count", "since", "last", "actions"] as const;
/** Alerts that are read at first, and at most. */
const PAGE = 100;
const PAGE_MAX = 1_000;

export function AlertsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.alerts"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [limit, setLimit] = useState(PAGE);
  const list = useQuery(alertsQuery(search, limit));
  const { data, error } = list;
  const rows = data?.items;
  const hasNamespaces = useHasNamespaces(search.namespace, rows);
  const change = (next: AlertsSearch) => void navigate({ search: next, replace: true });

  return (
    <Page
      title={t("nav.alerts")}
      actions={data && <span className="quiet num">{t("alert.open", { count: data.open })}</span>}
    >
      <Sections />
      <Filters search={search} onChange={change} />
      {error && !rows && <ErrorBox error={error} onRetry={() => void list.refetch()} />}
      {!rows && !error && <Loading rows={6} />}
      {rows?.length === 0 && <Empty search={search} />}
      {rows && rows.length > 0 && (
        <div className={frame.table} role="table" aria-label={t("nav.alerts")}>
          <div className={`${frame.row} ${frame.head} ${style.alert}`} role="row">
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader" className={style[column]}>
                <span className={column === "actions" ? "unseen" : undefined}>
                  {t(`alert.columns.${column}`)}
                </span>
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="alert-rows">
            {rows.map((alert) => (
              <Row key={alert.id} alert={alert} hasNamespace={hasNamespaces} />
            ))}
          </div>
          {data?.more && (
            <div className={frame.more}>
              {limit < PAGE_MAX ? (
                <Button variant="default" loading={list.isFetching} onClick={() => setLimit(PAGE_MAX)}>
                  {t("common.more")}
                </Button>
              ) : (
                <span className="quiet">{t("alert.more")}</span>
              )}
            </div>
          )}
        </div>
      )}
    </Page>
  );
}

function Row({ alert, hasNamespace }: { alert: Alert; hasNamespace: boolean }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const { id, namespace, severity, status, count, opened_at: since, last_at: last } = alert;
  return (
    <div className={`${frame.row} ${style.alert}`} role="row" data-status={status}>
      <span role="cell" className={style.severity}>
        <SeverityBadge severity={severity} plain />
      </span>
      <span role="cell" className={style.what}>
        <span className={style.subject}>
          <SubjectLink alert={alert} className={`${frame.above} ${style.name} clip`} />
          <span className="quiet">{t(`alertSubject.kind.${alert.subject.kind}`)}</span>
          {hasNamespace && <span className="quiet clip">{namespace}</span>}
        </span>
        <Link to="/alerts/$id" params={{ id: String(id) }} className={`${frame.open} ${style.sentence}`}>
          {alertSentence(alert, t)}
        </Link>
        <ServerText alert={alert} />
        <ActorLine alert={alert} />
      </span>
      <span role="cell" className={style.status}>
        <AlertBadge status={status} plain />
        {alert.silenced && isOpen(alert) && <SilencedBadge />}
      </span>
      <span role="cell" className={`${style.count} num`}>
        {count.toLocaleString(language)}
      </span>
      <span role="cell" className={`${style.since} quiet`}>
        <span className={style.caption}>{t("alert.columns.since")} </span>
        <RelativeTime at={since} light />
      </span>
      <span role="cell" className={`${style.last} quiet`}>
        <span className={style.caption}>{t("alert.columns.last")} </span>
        <RelativeTime at={last} light />
      </span>
      <span role="cell" className={`${style.actions} ${frame.above}`}>
        <Actions alert={alert} inRow />
      </span>
    </div>
  );
}

/** The rule, and the error message of the last failed job. */
function ServerText({ alert: { rule, detail } }: { alert: Alert }) {
  const { t } = useTranslation();
  return (
    <span className={style.under}>
      <span className={`${style.ofRule} clip`}>
        {t("alert.rule")} <code>{rule}</code>
      </span>
      {detail && <span className="clip">{translateMessage(detail, t)}</span>}
    </span>
  );
}

/** The user who acknowledged or resolved the alert, with the comment. */
export function ActorLine({ alert }: { alert: Alert }) {
  const { t } = useTranslation();
  const act = actOf(alert);
  const { actor, comment } = alert;
  if (!act || !actor) return null;
  return (
    <span className={style.under}>
      <span>{t(`alert.by.${act}`, { name: actor })}</span>
      {comment && <q className="clip">{comment}</q>}
    </span>
  );
}

function Filters(props: { search: AlertsSearch; onChange: (search: AlertsSearch) => void }) {
  const { t } = useTranslation();
  const { search, onChange } = props;
  const shown = alertStatusesOf(search);
  return (
    <div className={filters.filters}>
      <FilterField
        label={t("alert.subject")}
        value={search.subject}
        onChange={(subject) => onChange({ ...search, subject })}
        isFirst
      />
      <FilterField
        label={t("alert.rule")}
        value={search.rule}
        onChange={(rule) => onChange({ ...search, rule })}
      />
      <div className={filters.chips} role="group" aria-label={t("alert.columns.status")}>
        {ALERT_STATUSES.map((status) => (
          <button
            key={status}
            type="button"
            aria-pressed={shown.includes(status)}
            onClick={() => onChange(withAlertStatus(search, status))}
          >
            {t(`alertStatus.${status}`)}
          </button>
        ))}
      </div>
      <div className={filters.chips} role="group" aria-label={t("alert.columns.severity")}>
        {SEVERITIES.map((severity) => {
          const isChosen = severity === search.severity;
          return (
            <button
              key={severity}
              type="button"
              aria-pressed={isChosen}
              onClick={() => onChange({ ...search, severity: isChosen ? undefined : severity })}
            >
              {t(`severity.${severity}`)}
            </button>
          );
        })}
      </div>
    </div>
  );
}

function Empty({ search }: { search: AlertsSearch }) {
  const { t } = useTranslation();
  const { namespace, status, severity, rule, subject } = search;
  const rules = useQuery(alertRulesQuery(namespace)).data?.items;
  if ([status, severity, rule, subject].some((value) => value !== undefined)) {
    return (
      <EmptyState
        icon={SearchX}
        title={t("alert.nothingMatches")}
        action={
          <Button
            variant="default"
            renderRoot={(props) => <Link to="/alerts" search={{ namespace }} {...props} />}
          >
            {t("jobs.clearFilters")}
          </Button>
        }
      />
    );
  }
  if (rules?.length === 0) return <NoRules namespace={namespace} />;
  return (
    <EmptyState icon={CircleCheck} title={t("alert.none")}>
      {t("alert.noneText")}
    </EmptyState>
  );
}

/** What to do before the first rule exists. */
export function NoRules({ namespace }: { namespace?: string }) {
  const { t } = useTranslation();
  const newNamespace = useNewNamespace("change");
  return (
    <EmptyState
      icon={BellPlus}
      title={t("alert.noRules")}
      action={
        <AllowedSomewhere verb="change" on="alerts">
          <Button
            renderRoot={(props) => <Link to="/alerts/rules" search={{ namespace, edit: "+" }} {...props} />}
          >
            {t("alertRule.create")}
          </Button>
        </AllowedSomewhere>
      }
    >
      <p>{t("alert.noRulesText")}</p>
      <br />
      <Snippet text={sampleCommand(newNamespace)} />
    </EmptyState>
  );
}
