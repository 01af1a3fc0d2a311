/** Monitors of jobs that Belfry does not run: their status, their last pings and their open alerts. */

import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { HeartPulse, Pencil, Plus, TriangleAlert } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { alertRulesQuery } from "../../api/alerts";
import { monitorsQuery } from "../../api/monitors";
import type { Monitor } from "../../api/schema";
import { useHasNamespaces } from "../../app/namespace";
import { variantOf } from "../../lib/alerts";
import { timingText } from "../../lib/monitors";
import { usePreferences } from "../../lib/preferences";
import { usePageTitle } from "../../lib/title";
import { Allowed, AllowedSomewhere } from "../../ui/Allowed";
import { EmptyState, ErrorBox, Loading, Page } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { RelativeTime } from "../../ui/Time";
import style from "./alerts.module.css";
import { MonitorDialog } from "./MonitorDialog";
import { MonitorDelete } from "./MonitorActions";
import { Sections } from "./Sections";
import { MonitorBadge } from "./words";

const route = getRouteApi("/alerts/monitors");
const COLUMNS = ["name", "status", "last", "expected", "timing", "open", "actions"] as const;

const namespaceOf = ({ namespace = "default" }: Monitor) => namespace;

export function MonitorsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.monitors"));
  const { namespace } = route.useSearch();
  const { data, error, refetch } = useQuery(monitorsQuery(namespace));
  const monitors = data?.items;
  const hasNamespaces = useHasNamespaces(
    namespace,
    monitors?.map((monitor) => ({ namespace: namespaceOf(monitor) })),
  );
  // The monitor as it was when the dialog opened; null for a new one.
  const [edited, setEdited] = useState<Monitor | null | undefined>(undefined);
  const create = (
    <AllowedSomewhere verb="change" on="alerts">
      <Button leftSection={<Plus size={14} />} onClick={() => setEdited(null)}>
        {t("monitor.new")}
      </Button>
    </AllowedSomewhere>
  );
  return (
    <Page title={t("nav.alerts")} actions={create}>
      <Sections />
      {error && !monitors && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!monitors && !error && <Loading rows={5} />}
      {monitors?.length === 0 && (
        <EmptyState icon={HeartPulse} title={t("monitor.none")}>
          {t("monitor.noneText")}
        </EmptyState>
      )}
      {monitors && monitors.length > 0 && (
        <>
          <NoRule namespace={namespace} />
          <div className={frame.table} role="table" aria-label={t("nav.monitors")}>
            <div className={`${frame.row} ${frame.head} ${style.monitorRow}`} role="row">
              {COLUMNS.map((column) => (
                <span key={column} role="columnheader" className={style[column]}>
                  <span className={column === "actions" ? "unseen" : undefined}>
                    {t(`monitor.columns.${column}`)}
                  </span>
                </span>
              ))}
            </div>
            <div role="rowgroup" data-testid="monitor-rows">
              {monitors.map((monitor) => (
                <Row
                  key={`${namespaceOf(monitor)}/${monitor.name}`}
                  monitor={monitor}
                  hasNamespace={hasNamespaces}
                  onEdit={() => setEdited(monitor)}
                />
              ))}
            </div>
          </div>
        </>
      )}
      {edited !== undefined && <MonitorDialog monitor={edited} onClose={() => setEdited(undefined)} />}
    </Page>
  );
}

/** Says that no user is notified, if there is no rule about monitors. */
function NoRule({ namespace }: { namespace?: string }) {
  const { t } = useTranslation();
  const rules = useQuery(alertRulesQuery(namespace)).data?.items;
  if (!rules || rules.some(({ when, disabled }) => variantOf(when) === "monitor_down" && !disabled))
    return null;
  return (
    <div className={`${style.warning} ${style.noRule}`}>
      <TriangleAlert size={14} aria-hidden />
      <span>{t("monitor.noRule")}</span>
      <Link to="/alerts/rules" search={{ namespace, edit: "+" }} className={style.link}>
        {t("alertRule.create")}
      </Link>
    </div>
  );
}

function Row(props: { monitor: Monitor; hasNamespace: boolean; onEdit: () => void }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const { monitor, hasNamespace, onEdit } = props;
  const { name, description, owner, status, open_alerts: open, pings = [] } = monitor;
  const namespace = namespaceOf(monitor);
  return (
    <div className={`${frame.row} ${style.monitorRow}`} role="row">
      <span role="cell" className={style.what}>
        <Link
          to="/alerts/monitors/$namespace/$name"
          params={{ namespace, name }}
          className={`${style.name} clip`}
        >
          {name}
        </Link>
        <span className={style.under}>
          {hasNamespace && <span className="clip">{namespace}</span>}
          {owner && <span className="clip">{owner}</span>}
          {description && <span className="clip">{description}</span>}
        </span>
      </span>
      <span role="cell">
        <MonitorBadge status={status} plain />
      </span>
      <span role="cell" className={style.last}>
        <span className={style.caption}>{t("monitor.columns.last")} </span>
        <RelativeTime at={pings[0]?.at} light />
      </span>
      <span role="cell" className={style.expected}>
        <RelativeTime at={monitor.expected_at} light />
      </span>
      <span role="cell" className={`${style.timing} quiet`}>
        {timingText(monitor.timing, t)}
      </span>
      <span role="cell" className={`${style.open} num`}>
        <span className={style.caption}>{t("monitor.columns.open")} </span>
        {open > 0 ? (
          <Link to="/alerts" search={{ namespace, subject: name }} className={style.link}>
            {open.toLocaleString(language)}
          </Link>
        ) : (
          <span className="quiet">0</span>
        )}
      </span>
      <span role="cell" className={style.actions}>
        <Allowed verb="change" on="alerts" in={namespace}>
          <Tooltip label={t("monitor.edit")}>
            <ActionIcon aria-label={t("monitor.editOf", { name })} onClick={onEdit}>
              <Pencil size={14} />
            </ActionIcon>
          </Tooltip>
        </Allowed>
        <MonitorDelete name={name} namespace={namespace} />
      </span>
    </div>
  );
}
