/** One worker: history, use and results of executions, capacity, capabilities. */

import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Check, ChevronRight, ListChecks, X } from "lucide-react";
import { useTranslation } from "react-i18next";

import { unwrap, api } from "../../api/client";
import { WORKERS_REFETCH_MS, workersQuery } from "../../api/queries";
import type { Reservation, Worker } from "../../api/schema";
import { formatBytes, formatCpu, parseBytes, parseCpu } from "../../lib/quantities";
import { runtimeWithVersion } from "../../lib/runtimes";
import { translateMessage } from "../../lib/serverMessages";
import { parseRange } from "../../lib/statistics";
import { usePageTitle } from "../../lib/title";
import { parseUsageOrder } from "../../lib/usage";
import { HistoryCard } from "../../ui/charts/History";
import { Card, EmptyState, KeyValueList, Id, Labels, Loading, Page, ErrorBox } from "../../ui/kit";
import { ExecutionBadge, WorkerBadge } from "../../ui/Status";
import { AbsoluteTime, RelativeTime, Elapsed } from "../../ui/Time";
import { UsageCard } from "./UsageTable";
import { WorkerActions } from "./WorkerActions";
import { WorkerMeters } from "./WorkerMeters";
import style from "./workers.module.css";
import { Admission } from "./WorkersPage";

const route = getRouteApi("/workers/$id");

export function WorkerPage() {
  const { t } = useTranslation();
  const { id } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { data, error } = useQuery({ ...workersQuery, refetchInterval: WORKERS_REFETCH_MS });
  const worker = data?.items.find((each) => each.id === id);
  usePageTitle(worker?.name ?? "");
  const executions = useQuery({
    queryKey: ["recent", "worker", id],
    queryFn: () =>
      unwrap(api.GET("/api/v1/executions", { params: { query: { worker_id: id, limit: 100 } } })),
  });

  const title = (
    <div className={style.crumbs}>
      <Link to="/workers" className="quiet">
        {t("nav.workers")}
      </Link>
      <ChevronRight size={14} className="quiet" aria-hidden />
      <h1 className="clip">{worker?.name ?? id}</h1>
      {worker && <WorkerBadge status={worker.status} />}
      {worker && <Admission worker={worker} />}
    </div>
  );
  if (!worker) {
    return (
      <Page title={title}>
        {error ? (
          <ErrorBox error={error} />
        ) : data ? (
          <p className="quiet">{t("worker.gone")}</p>
        ) : (
          <Loading />
        )}
      </Page>
    );
  }
  return (
    <Page title={title} actions={<WorkerActions worker={worker} />}>
      <div className={style.columns}>
        <div className={style.main}>
          <HistoryCard
            subject={{ worker_id: id }}
            charts={["ended", "levels", "runTime", "startDelay"]}
            range={parseRange(search.range)}
            onRange={(range) => void navigate({ search: { ...search, range }, replace: true })}
          />
          <UsageCard
            key={id}
            worker={id}
            order={parseUsageOrder(search.order)}
            onOrder={(order) => void navigate({ search: { ...search, order }, replace: true })}
          />
          <Card title={t("worker.executions")} flush>
            {executions.error && <ErrorBox error={executions.error} />}
            {executions.data?.items.length === 0 && (
              <EmptyState icon={ListChecks} title={t("worker.noExecutions")} />
            )}
            <div className={style.executions}>
              {executions.data?.items.map((execution) => (
                <div key={execution.id}>
                  <ExecutionBadge status={execution.status} />
                  <Link
                    to="/jobs/$id"
                    params={{ id: execution.job_id }}
                    search={{ execution: String(execution.number) }}
                    className={`${style.name} clip`}
                  >
                    {execution.job_name}
                  </Link>
                  <span className="quiet num">{t("job.attempt", { number: execution.number })}</span>
                  <span className="quiet">
                    <RelativeTime at={execution.assigned_at} />
                  </span>
                  <span className={style.took}>
                    <Elapsed from={execution.started_at} to={execution.finished_at} />
                  </span>
                </div>
              ))}
            </div>
          </Card>
        </div>
        <div className={style.aside}>
          <Card title={t("worker.capacity")}>
            <WorkerMeters worker={worker} />
            <p className={style.legend}>{t("worker.legend")}</p>
          </Card>
          {worker.reservations && worker.reservations.length > 0 && (
            <Card title={t("worker.reservations")}>
              <Reservations reservations={worker.reservations} />
            </Card>
          )}
          <Card title={t("worker.about")}>
            <WorkerSummary worker={worker} />
          </Card>
        </div>
      </div>
    </Page>
  );
}

function WorkerSummary({ worker }: { worker: Worker }) {
  const { t } = useTranslation();
  const can = worker.capabilities;
  const yes = (is: boolean) =>
    is ? <Check size={14} aria-label={t("common.yes")} /> : <X size={14} aria-label={t("common.no")} />;
  return (
    <KeyValueList
      rows={[
        ["ID", <Id key="" id={worker.id} />],
        worker.address ? [t("worker.address"), <code key="">{worker.address}</code>] : null,
        [t("worker.version"), worker.version],
        [t("worker.lastHeartbeat"), <RelativeTime key="" at={worker.last_heartbeat_at} />],
        [t("worker.since"), <RelativeTime key="" at={worker.created_at} />],
        worker.health && [t("worker.disk"), formatBytes(parseBytes(worker.health.disk_available))],
        worker.health?.problem ? [t("worker.problem"), translateMessage(worker.health.problem, t)] : null,
        Object.keys(worker.labels).length > 0 && [
          t("job.details.labels"),
          <Labels key="" labels={worker.labels} />,
        ],
        [
          t("worker.runtimes"),
          can.runtimes.map((each) => runtimeWithVersion(each, can.runtime_versions)).join(", "),
        ],
        [
          t("worker.sandboxes"),
          can.sandbox_levels?.length
            ? can.sandbox_levels.map((level) => t(`sandboxLevel.${level}`)).join(", ")
            : t("sandboxLevel.none"),
        ],
        [t("worker.memoryLimit"), yes(can.memory_limit)],
        [t("worker.cpuLimit"), yes(can.cpu_limit)],
        [t("worker.pidsLimit"), yes(can.pids_limit)],
        [t("worker.separateUser"), yes(can.separate_user)],
        can.volumes?.length ? [t("worker.volumes"), can.volumes.join(", ")] : null,
      ]}
    />
  );
}

/** Capacity that is reserved for schedules and for waiting jobs. */
function Reservations({ reservations }: { reservations: readonly Reservation[] }) {
  return (
    <ul className={style.reservations} data-testid="reservations">
      {reservations.map((reservation, i) => (
        <li key={i}>
          <ReservationHolder reservation={reservation} />
          <span className="quiet num">
            {formatCpu(parseCpu(reservation.cpu))} CPU · {formatBytes(parseBytes(reservation.memory))}
          </span>
        </li>
      ))}
    </ul>
  );
}

function ReservationHolder({ reservation }: { reservation: Reservation }) {
  const { t } = useTranslation();
  const { job, schedule, schedule_id: scheduleId, scheduled_for: scheduledFor } = reservation;
  if (job) {
    return (
      <span>
        {t("trigger.kind.job")}{" "}
        <Link to="/jobs/$id" params={{ id: job }} className="mono" title={job}>
          …{job.slice(-8)}
        </Link>
      </span>
    );
  }
  return (
    <span>
      {t("job.origin.schedule")}{" "}
      {scheduleId && (
        <Link to="/schedules/$id" params={{ id: scheduleId }}>
          {schedule}
        </Link>
      )}
      {scheduledFor && (
        <small className="quiet">
          {" · "}
          <AbsoluteTime at={scheduledFor} />
        </small>
      )}
    </span>
  );
}
