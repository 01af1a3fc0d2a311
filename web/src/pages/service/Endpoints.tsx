/** The ports of the healthy replicas, with their addresses. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Plug } from "lucide-react";
import { useTranslation } from "react-i18next";

import { useWorkerName } from "../../api/queries";
import type { Service } from "../../api/schema";
import { endpointsQuery } from "../../api/services";
import { endpointAddress } from "../../lib/services";
import { CopyButton, EmptyState, ErrorBox, Loading } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import style from "./service.module.css";

const COLUMNS = ["address", "port", "replica", "revision", "worker"] as const;

export function Endpoints({ service }: { service: Service }) {
  const { t } = useTranslation();
  const workerName = useWorkerName();
  const { data, error, refetch } = useQuery(endpointsQuery(service.id));
  if (error && !data) return <ErrorBox error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading rows={4} />;
  if (data.items.length === 0) {
    return (
      <EmptyState icon={Plug} title={t("service.noEndpoints")}>
        {service.spec?.job.ports?.length ? t("service.noEndpointsText") : t("service.noPortsText")}
      </EmptyState>
    );
  }
  return (
    <div className={frame.table} role="table" aria-label={t("service.tabs.endpoints")}>
      <div className={`${frame.row} ${frame.head} ${style.endpoint}`} role="row" data-head>
        {COLUMNS.map((column) => (
          <span key={column} role="columnheader">
            {t(`service.endpointColumns.${column}`)}
          </span>
        ))}
      </div>
      <div role="rowgroup" data-testid="endpoint-rows">
        {data.items.map((endpoint) => {
          const address = endpointAddress(endpoint.address, endpoint.port);
          return (
            <div
              key={`${endpoint.job} ${endpoint.port_name}`}
              className={`${frame.row} ${style.endpoint}`}
              role="row"
            >
              <span role="cell" className={style.address}>
                <code>{address ?? t("service.portOnly", { port: endpoint.port })}</code>
                {address && <CopyButton text={address} label={t("service.copyAddress", { address })} />}
              </span>
              <span role="cell">{endpoint.port_name}</span>
              <span role="cell" className="num">
                <Link to="/jobs/$id" params={{ id: endpoint.job }}>
                  {t("service.replicaNumber", { replica: endpoint.replica })}
                </Link>
              </span>
              <span role="cell" className="num">
                {endpoint.revision}
              </span>
              <span role="cell" className="clip">
                <Link to="/workers/$id" params={{ id: endpoint.worker }}>
                  {workerName(endpoint.worker)}
                </Link>
              </span>
            </div>
          );
        })}
      </div>
    </div>
  );
}
