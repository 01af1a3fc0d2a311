/** The replicas of a service: state, worker, job, ports and restarts. */

import { Link } from "@tanstack/react-router";
import { RadioTower, ScrollText } from "lucide-react";
import { useTranslation } from "react-i18next";

import type { Endpoint, Replica, Service } from "../../api/schema";
import { useWorkerName } from "../../api/queries";
import { translateMessage } from "../../lib/serverMessages";
import { hasHealthChecks, replicaStateOf } from "../../lib/services";
import { EmptyState } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { RelativeTime } from "../../ui/Time";
import { ReplicaBadge } from "../services/badges";
import { Ports } from "./Ports";
import style from "./service.module.css";

const COLUMNS = ["replica", "state", "revision", "worker", "ports", "restarts", "started", "job"] as const;

interface Props {
  service: Service;
  replicas: readonly Replica[];
  /** Addresses of the workers are only in the endpoints. */
  endpoints: readonly Endpoint[];
}

export function ReplicaTable({ service, replicas, endpoints }: Props) {
  const { t } = useTranslation();
  if (replicas.length === 0) {
    return (
      <EmptyState icon={RadioTower} title={t("service.noReplicas")}>
        {service.replicas === 0 && !service.deleting && t("service.scaledToZeroText")}
      </EmptyState>
    );
  }
  const hasChecks = hasHealthChecks(service.spec);
  return (
    <div className={frame.table} role="table" aria-label={t("service.replicas")}>
      <div className={`${frame.row} ${frame.head} ${style.replica}`} role="row" data-head>
        {COLUMNS.map((column) => (
          <span key={column} role="columnheader" className={style[column]}>
            {t(`service.replicaColumns.${column}`)}
          </span>
        ))}
      </div>
      <div role="rowgroup" data-testid="replica-rows">
        {replicas.map((replica) => (
          <Row
            key={replica.job}
            replica={replica}
            hasChecks={hasChecks}
            isOutdated={replica.revision !== service.rollout.revision}
            address={endpoints.find(({ job }) => job === replica.job)?.address}
          />
        ))}
      </div>
    </div>
  );
}

interface RowProps {
  replica: Replica;
  hasChecks: boolean;
  /** Whether the replica has another revision than the current one. */
  isOutdated: boolean;
  address: string | null | undefined;
}

function Row({ replica, hasChecks, isOutdated, address }: RowProps) {
  const { t } = useTranslation();
  const workerName = useWorkerName();
  const { job, health, worker } = replica;
  const lastExit = replica.last_exit && translateMessage(replica.last_exit, t);
  return (
    <div className={`${frame.row} ${style.replica}`} role="row">
      <span role="cell" className={`${style.number} num`}>
        {replica.replica}
      </span>
      <span role="cell" className={style.state}>
        <ReplicaBadge state={replicaStateOf(replica, hasChecks)} />
        {health?.detail && <small className="quiet">{translateMessage(health.detail, t)}</small>}
        {lastExit && <small className="quiet">{t("service.lastExit", { result: lastExit })}</small>}
      </span>
      <span role="cell" className={`${style.revision} num`} data-outdated={isOutdated || undefined}>
        {replica.revision}
      </span>
      <span role="cell" className={`${style.worker} clip`}>
        {worker ? (
          <Link to="/workers/$id" params={{ id: worker }}>
            {workerName(worker)}
          </Link>
        ) : (
          <span className="quiet">–</span>
        )}
      </span>
      <span role="cell" className={style.ports}>
        <Ports ports={health?.ports} address={address} />
      </span>
      <span role="cell" className={`${style.restarts} num`}>
        {replica.restarts.toLocaleString()}
      </span>
      <span role="cell" className={`${style.started} quiet`}>
        <RelativeTime at={replica.started_at} light />
      </span>
      <span role="cell" className={style.job}>
        <Link to="/jobs/$id" params={{ id: job }} className="mono" title={job}>
          …{job.slice(-8)}
        </Link>
        <Link to="/jobs/$id" params={{ id: job }} search={{ tab: "log" }} className={style.log}>
          <ScrollText size={13} aria-hidden />
          {t("job.tabs.log")}
        </Link>
      </span>
    </div>
  );
}
