/** A monitor: its status, its secret ping URL and its last pings. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { ChevronRight, Pencil } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { monitorQuery } from "../../api/monitors";
import type { Monitor, Ping } from "../../api/schema";
import { durationText } from "../../lib/alerts";
import { completeUrl, pingCommand, pingText, timingText } from "../../lib/monitors";
import { translateMessage } from "../../lib/serverMessages";
import { usePageTitle } from "../../lib/title";
import { Allowed } from "../../ui/Allowed";
import { Card, ErrorBox, KeyValueList, Labels, Loading, Page, Snippet } from "../../ui/kit";
import { AbsoluteTime, RelativeTime } from "../../ui/Time";
import style from "./alerts.module.css";
import { MonitorDelete, PingButton } from "./MonitorActions";
import { MonitorDialog } from "./MonitorDialog";
import { MonitorBadge, PingBadge } from "./words";

const route = getRouteApi("/alerts/monitors/$namespace/$name");

export function MonitorPage() {
  const { t } = useTranslation();
  const { namespace, name } = route.useParams();
  const { data, error, refetch } = useQuery(monitorQuery(namespace, name));
  usePageTitle(`${name} · ${t("monitor.one")}`);
  if (data) return <Shown monitor={data} />;
  return (
    <Page title={t("nav.monitors")}>
      {error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={8} />}
    </Page>
  );
}

function Shown({ monitor }: { monitor: Monitor }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  // The monitor as it was when the dialog opened.
  const [edited, setEdited] = useState<Monitor | null>(null);
  const { name, namespace = "default", status, reason, description, pings = [] } = monitor;
  return (
    <Page
      title={
        <div className={style.crumbs}>
          <Link to="/alerts/monitors" className="quiet">
            {t("nav.monitors")}
          </Link>
          <ChevronRight size={14} className="quiet" aria-hidden />
          <h1 className="clip">{name}</h1>
          <MonitorBadge status={status} />
        </div>
      }
      actions={
        <>
          <PingButton name={name} namespace={namespace} />
          <Allowed verb="change" on="alerts" in={namespace}>
            <Button variant="default" leftSection={<Pencil size={14} />} onClick={() => setEdited(monitor)}>
              {t("monitor.edit")}
            </Button>
          </Allowed>
          <MonitorDelete
            name={name}
            namespace={namespace}
            onDeleted={() => void navigate({ to: "/alerts/monitors" })}
          />
        </>
      }
    >
      <div className={style.columns}>
        <div className={style.main}>
          {reason && (
            <Card title={t("monitor.reason")}>
              <pre className={style.detail}>{translateMessage(reason, t)}</pre>
            </Card>
          )}
          <PingUrl monitor={monitor} />
          <Card title={t("monitor.pings")} flush>
            <Pings pings={pings} />
          </Card>
        </div>
        <div className={style.aside}>
          <Details monitor={monitor} />
          {description && (
            <Card title={t("monitor.description")}>
              <p className={style.sentence}>{description}</p>
            </Card>
          )}
        </div>
      </div>
      {edited && <MonitorDialog monitor={edited} onClose={() => setEdited(null)} />}
    </Page>
  );
}

/** How a job pings the monitor: by its secret URL, or with the command line. */
function PingUrl({ monitor: { name, namespace = "default", ping_url: url } }: { monitor: Monitor }) {
  const { t } = useTranslation();
  const whole = url && completeUrl(url, window.location.origin);
  const option = namespace === "default" ? "" : ` -n ${namespace}`;
  return (
    <Card title={t("monitor.url")}>
      {whole ? (
        <div className={style.form}>
          <Snippet text={whole} />
          <p className="quiet">{t("monitor.urlHint")}</p>
          <Snippet text={pingCommand(whole)} />
        </div>
      ) : (
        <p className="quiet">{t("monitor.noUrl")}</p>
      )}
      <div className={style.form}>
        <p className="quiet">{t("monitor.commandHint")}</p>
        <Snippet text={`belfry ping ${name}${option} --exit-code $?`} />
      </div>
    </Card>
  );
}

function Details({ monitor }: { monitor: Monitor }) {
  const { t } = useTranslation();
  const { started_at: started, succeeded_at: succeeded, expected_at: expected, down_since: down } = monitor;
  const { namespace = "default", owner, labels = {}, run_time_max: longest } = monitor;
  return (
    <Card title={t("alert.details")}>
      <KeyValueList
        rows={[
          down ? [t("monitor.downSince"), <AbsoluteTime key="" at={down} />] : null,
          [t("monitor.succeededAt"), succeeded ? <AbsoluteTime key="" at={succeeded} /> : "–"],
          started ? [t("monitor.startedAt"), <AbsoluteTime key="" at={started} />] : null,
          expected ? [t("monitor.expectedAt"), <AbsoluteTime key="" at={expected} />] : null,
          [t("monitor.timing"), timingText(monitor.timing, t)],
          [t("monitor.grace"), durationText(monitor.grace ?? "5m")],
          longest ? [t("monitor.runTimeMax"), durationText(longest)] : null,
          [t("alertRule.namespace"), namespace],
          owner ? [t("monitor.owner"), owner] : null,
          Object.keys(labels).length > 0 ? [t("monitor.labels"), <Labels key="" labels={labels} />] : null,
          [
            t("monitor.columns.open"),
            <Link key="" to="/alerts" search={{ namespace, subject: monitor.name }} className={style.link}>
              {monitor.open_alerts}
            </Link>,
          ],
        ]}
      />
    </Card>
  );
}

function Pings({ pings }: { pings: readonly Ping[] }) {
  const { t } = useTranslation();
  if (pings.length === 0) return <p className={`${style.padded} quiet`}>{t("monitor.noPings")}</p>;
  return (
    <ul className={style.list} aria-label={t("monitor.pings")} data-testid="pings">
      {pings.map((ping, i) => (
        <li key={`${ping.at} ${i}`}>
          <PingBadge kind={ping.kind} />
          <span className={style.named}>
            <span>{pingText(ping, t)}</span>
            {ping.run_time && (
              <span className="quiet">{t("ping.after", { duration: durationText(ping.run_time) })}</span>
            )}
            {ping.message && <span className="quiet clip">{ping.message}</span>}
          </span>
          <span className="quiet">
            <RelativeTime at={ping.at} />
          </span>
        </li>
      ))}
    </ul>
  );
}
