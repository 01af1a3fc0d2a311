/** The servers page: the leader, the standbys, the server that serves this page, and the members of a Raft cluster. */

import { useQuery } from "@tanstack/react-query";
import { ArrowRightLeft, CircleSlash, Crown, Eye, type LucideIcon, MonitorDot } from "lucide-react";
import { useTranslation } from "react-i18next";

import { serversQuery } from "../../api/queries";
import type { JobStatus, Server } from "../../api/schema";
import { formatDuration, parseDuration } from "../../lib/quantities";
import { sortByRole, serverStatus, type ServerStatus, clusterState } from "../../lib/servers";
import { usePageTitle } from "../../lib/title";
import { Allowed } from "../../ui/Allowed";
import { Loading, Page, ErrorBox, Snippet } from "../../ui/kit";
import { ToneBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import { Members } from "./Members";
import { ServerActions } from "./ServerActions";
import style from "./servers.module.css";

export function ServersPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.servers"));
  const { data, error, refetch } = useQuery(serversQuery);
  const servers = data?.items;
  return (
    <Page title={t("nav.servers")}>
      {error && !data && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!servers && !error && <Loading rows={4} />}
      {servers && (
        <>
          <ClusterSummary servers={servers} />
          <ul className={style.list}>
            {sortByRole(servers).map((server) => (
              <ServerRow key={server.id} server={server} servers={servers} />
            ))}
          </ul>
          <Members />
          {servers.length === 1 && <AddServerHint />}
        </>
      )}
    </Page>
  );
}

/** Summary of the cluster state in a sentence. */
function ClusterSummary({ servers }: { servers: readonly Server[] }) {
  const { t } = useTranslation();
  const state = clusterState(servers);
  const isMild = state.kind === "alone" || state.kind === "guarded";
  return (
    <p className={style.standing} data-mild={isMild || undefined} role="status">
      {state.kind === "guarded"
        ? t("server.situation.guarded", { name: state.leader.name, count: state.standbys })
        : state.kind === "handsOver" || state.kind === "unguarded"
          ? t(`server.situation.${state.kind}`, { name: state.leader.name })
          : t(`server.situation.${state.kind}`)}
    </p>
  );
}

function ServerRow({ server, servers }: { server: Server; servers: readonly Server[] }) {
  const { t } = useTranslation();
  return (
    <li className={style.server} data-testid={`server-${server.name}`}>
      <div className={style.who}>
        <div className={style.whoName}>
          <strong className={style.name}>{server.name}</strong>
          <ServerBadge status={serverStatus(server)} />
          {server.responder && (
            <span className={style.responder}>
              <MonitorDot size={13} aria-hidden /> {t("server.responder")}
            </span>
          )}
        </div>
        <p className={style.meta}>
          <span className="num">{t("server.shards", { count: server.shards })}</span>
          {server.epoch != null && <span className="num">{t("server.epoch", { epoch: server.epoch })}</span>}
          {!server.leader && <Readiness server={server} />}
          {server.url && <code>{server.url}</code>}
          <span>v{server.version}</span>
          <span>
            {t("server.started")} <RelativeTime at={server.started_at} />
          </span>
        </p>
      </div>
      <Allowed verb="operate" on="server">
        <ServerActions server={server} servers={servers} />
      </Allowed>
    </li>
  );
}

/** Whether a standby is ready to take over, and its lag behind the leader. */
function Readiness({ server }: { server: Server }) {
  const { t } = useTranslation();
  if (server.lag == null) return <span>{t("server.cold")}</span>;
  return <span>{t("server.ready", { lag: formatDuration(parseDuration(server.lag) ?? 0) })}</span>;
}

const LOOKS: Record<ServerStatus, [JobStatus, LucideIcon]> = {
  leading: ["succeeded", Crown],
  leaving: ["waiting", ArrowRightLeft],
  standby: ["ready", Eye],
  drained: ["waiting", CircleSlash],
};

function ServerBadge({ status }: { status: ServerStatus }) {
  const { t } = useTranslation();
  const [tone, icon] = LOOKS[status];
  return <ToneBadge tone={tone} icon={icon} word={t(`server.status.${status}`)} />;
}

/** Hint for clusters with a single server. */
function AddServerHint() {
  const { t } = useTranslation();
  return (
    <section className={style.more}>
      <h2>{t("server.more")}</h2>
      <p>{t("server.moreText")}</p>
      <Snippet text="belfry server --name b --data b --store postgres://USER@HOST:PORT/DATABASE" />
    </section>
  );
}
