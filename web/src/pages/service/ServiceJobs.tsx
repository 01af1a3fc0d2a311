/** The newest jobs of a service: its replicas, and earlier ones. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ListChecks } from "lucide-react";
import { useTranslation } from "react-i18next";

import type { Service } from "../../api/schema";
import { jobsOfServiceQuery } from "../../api/services";
import { isLive } from "../../lib/statuses";
import { EmptyState, ErrorBox, Loading } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { StatusBadge } from "../../ui/Status";
import { Elapsed, RelativeTime } from "../../ui/Time";
import style from "./service.module.css";

const COLUMNS = ["status", "replica", "revision", "submitted", "took", "job"] as const;

export function ServiceJobs({ service }: { service: Service }) {
  const { t } = useTranslation();
  const { data, error, refetch } = useQuery(jobsOfServiceQuery(service.id));
  if (error && !data) return <ErrorBox error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading rows={4} />;
  return (
    <>
      <p className={style.allJobs}>
        <Link to="/jobs" search={{ service: service.id }}>
          {t("service.allJobs")}
        </Link>
      </p>
      {data.items.length === 0 ? (
        <EmptyState icon={ListChecks} title={t("service.noJobs")} />
      ) : (
        <div className={frame.table} role="table" aria-label={t("nav.jobs")}>
          <div className={`${frame.row} ${frame.head} ${style.jobRow}`} role="row" data-head>
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader">
                {t(`service.jobColumns.${column}`)}
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="service-jobs">
            {data.items.map((job) => (
              <div key={job.id} className={`${frame.row} ${style.jobRow}`} role="row">
                <span role="cell">
                  <StatusBadge status={job.status} plain />
                </span>
                <span role="cell" className="num">
                  {job.replica && t("service.replicaNumber", { replica: job.replica.replica })}
                </span>
                <span role="cell" className="num">
                  {job.replica?.revision}
                </span>
                <span role="cell" className="quiet">
                  <RelativeTime at={job.created_at} light />
                </span>
                <span role="cell" className="quiet">
                  <Elapsed from={job.started_at} to={isLive(job.status) ? null : job.finished_at} />
                </span>
                <span role="cell">
                  <Link to="/jobs/$id" params={{ id: job.id }} className="mono" title={job.id}>
                    …{job.id.slice(-8)}
                  </Link>
                </span>
              </div>
            ))}
          </div>
        </div>
      )}
    </>
  );
}
