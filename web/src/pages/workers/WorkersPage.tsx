/** The workers page: status, capacity, use. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Server } from "lucide-react";
import { useTranslation } from "react-i18next";

import { WORKERS_REFETCH_MS, workersQuery } from "../../api/queries";
import type { Worker } from "../../api/schema";
import { translateMessage } from "../../lib/serverMessages";
import { usePageTitle } from "../../lib/title";
import { EmptyState, Labels, Loading, Page, ErrorBox, Snippet } from "../../ui/kit";
import { ToneBadge, WorkerBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import { CircleSlash } from "lucide-react";
import { WorkerActions } from "./WorkerActions";
import { WorkerMeters } from "./WorkerCard";
import style from "./workers.module.css";

/** Sorts workers: those that need attention first, then by name. */
function byAttention(a: Worker, b: Worker): number {
  const need = (worker: Worker) =>
    worker.status === "lost" ? 0 : worker.health?.problem ? 1 : worker.status === "expected" ? 2 : 3;
  return need(a) - need(b) || a.name.localeCompare(b.name) || a.id.localeCompare(b.id);
}

export function WorkersPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.workers"));
  const { data, error, refetch } = useQuery({ ...workersQuery, refetchInterval: WORKERS_REFETCH_MS });
  const workers = data?.items;
  return (
    <Page title={t("nav.workers")}>
      {error && !data && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!workers && !error && <Loading rows={6} />}
      {workers?.length === 0 && (
        <EmptyState icon={Server} title={t("worker.none")}>
          <p>{t("worker.noneText")}</p>
          <br />
          <Snippet
            text={`belfry worker --server ${location.origin} --token-file worker-token --dir /var/lib/belfry-worker`}
          />
        </EmptyState>
      )}
      <div className={style.list}>
        {[...(workers ?? [])].sort(byAttention).map((worker) => (
          <section key={worker.id} className={style.worker} data-status={worker.status}>
            <div className={style.who}>
              <div className={style.whoName}>
                <Link to="/workers/$id" params={{ id: worker.id }} className={style.name}>
                  {worker.name}
                </Link>
                <WorkerBadge status={worker.status} />
                <Admission worker={worker} />
              </div>
              <p className={style.meta}>
                <span>
                  {t("worker.heartbeat")} <RelativeTime at={worker.last_heartbeat_at} />
                </span>
                <span>v{worker.version}</span>
                <Link to="/jobs" search={{ worker: worker.id, status: "running" }}>
                  {t("worker.running", { count: worker.allocated.executions })}
                </Link>
              </p>
              <Labels labels={worker.labels} />
              {worker.health?.problem && (
                <p className={style.problem}>{translateMessage(worker.health.problem, t)}</p>
              )}
            </div>
            <WorkerMeters worker={worker} />
            <WorkerActions worker={worker} />
          </section>
        ))}
      </div>
      {workers && workers.length > 0 && <p className={style.legend}>{t("worker.legend")}</p>}
    </Page>
  );
}

export function Admission({ worker }: { worker: Worker }) {
  const { t } = useTranslation();
  if (worker.admission === "open") return null;
  return <ToneBadge tone="waiting" icon={CircleSlash} word={t(`admission.${worker.admission}`)} />;
}
