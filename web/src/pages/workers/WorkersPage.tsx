/** The workers page: status, capacity, use. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleSlash, Server } from "lucide-react";
import { useRef } from "react";
import { useTranslation } from "react-i18next";

import { unwrap, api } from "../../api/client";
import { WORKERS_REFETCH_MS, workersQuery } from "../../api/queries";
import type { Worker } from "../../api/schema";
import type { Column } from "../../lib/columns";
import { EXPORT_PAGE, type ExportSource, labelsCell } from "../../lib/export";
import { formatBytes, parseBytes } from "../../lib/quantities";
import { translateMessage } from "../../lib/serverMessages";
import { usePageTitle } from "../../lib/title";
import { ColumnsMenu } from "../../ui/ColumnsMenu";
import { ExportMenu } from "../../ui/ExportMenu";
import { EmptyState, Labels, Loading, Meter, Page, ErrorBox, Snippet } from "../../ui/kit";
import { ToneBadge, WorkerBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import { useColumns } from "../../ui/useColumns";
import { WorkerActions } from "./WorkerActions";
import { useWorkerResources } from "./WorkerMeters";
import style from "./workers.module.css";

/** Sorts workers: those that need attention first, then by name. */
function byAttention(a: Worker, b: Worker): number {
  const need = (worker: Worker) =>
    worker.status === "lost" ? 0 : worker.health?.problem ? 1 : worker.status === "expected" ? 2 : 3;
  return need(a) - need(b) || a.name.localeCompare(b.name) || a.id.localeCompare(b.id);
}

const COLUMNS = [
  { name: "name", width: 160, grows: true, rank: 0 },
  { name: "status", width: 90, rank: 0 },
  { name: "slots", width: 100, rank: 1 },
  { name: "cpu", width: 120, rank: 1 },
  { name: "memory", width: 130, rank: 2 },
  { name: "custom", width: 150, rank: 3 },
  { name: "labels", width: 150, rank: 5 },
  { name: "heartbeat", width: 90, rank: 4 },
  { name: "disk", width: 90, rank: 6 },
  { name: "version", width: 80, rank: 6 },
  { name: "actions", width: 34, rank: 0 },
] as const satisfies readonly Column[];
type WorkerColumn = (typeof COLUMNS)[number]["name"];
const LAYOUT = { table: "workers", columns: COLUMNS, gap: 16, reserved: 2 * 16 };
const HIDDEN = new Set<WorkerColumn>(["disk", "version"]);

/** Returns whether a column is shown by default. */
function isDefaultColumn(name: WorkerColumn, workers: readonly Worker[]): boolean {
  if (name === "custom") return workers.some(({ capacity }) => Object.keys(capacity.custom ?? {}).length > 0);
  return !HIDDEN.has(name);
}

const EXPORT_SOURCE: ExportSource<Worker> = {
  read: (cursor, signal) =>
    unwrap(api.GET("/api/v1/workers", { params: { query: { limit: EXPORT_PAGE, cursor } }, signal })),
  columns: [
    ["id", (worker) => worker.id],
    ["name", (worker) => worker.name],
    ["status", (worker) => worker.status],
    ["admission", (worker) => worker.admission],
    ["version", (worker) => worker.version],
    ["labels", (worker) => labelsCell(worker.labels)],
    ["executions", (worker) => worker.allocated.executions],
    ["slots", (worker) => worker.capacity.slots],
    ["cpu_allocated", (worker) => worker.allocated.cpu],
    ["cpu", (worker) => worker.capacity.cpu],
    ["memory_allocated", (worker) => worker.allocated.memory],
    ["memory", (worker) => worker.capacity.memory],
    ["problem", (worker) => worker.health?.problem],
    ["last_heartbeat_at", (worker) => worker.last_heartbeat_at],
    ["created_at", (worker) => worker.created_at],
  ],
};

export function WorkersPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.workers"));
  const { data, error, refetch } = useQuery({ ...workersQuery, refetchInterval: WORKERS_REFETCH_MS });
  const workers = data?.items;
  return (
    <Page
      title={t("nav.workers")}
      actions={
        <>
          <ColumnsMenu
            table={LAYOUT.table}
            columns={COLUMNS.filter(({ rank }) => rank > 0).map(({ name }) => ({
              name,
              label: t(`worker.columns.${name}`),
              isDefault: isDefaultColumn(name, workers ?? []),
            }))}
          />
          <ExportMenu name="workers" source={EXPORT_SOURCE} />
        </>
      }
    >
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
      {workers && workers.length > 0 && <WorkerTable workers={[...workers].sort(byAttention)} />}
      {workers && workers.length > 0 && <p className={style.legend}>{t("worker.legend")}</p>}
    </Page>
  );
}

function WorkerTable({ workers }: { workers: readonly Worker[] }) {
  const { t } = useTranslation();
  const table = useRef<HTMLDivElement>(null);
  const columns = useColumns<WorkerColumn>(table, LAYOUT, (name) => isDefaultColumn(name, workers));
  return (
    <div ref={table} className={style.table} style={columns.style} role="table" aria-label={t("nav.workers")}>
      <div className={`${style.row} ${style.head}`} role="row">
        {columns.shown.map(({ name }) => (
          <span key={name} role="columnheader">
            <span className={name === "actions" ? "unseen" : undefined}>{t(`worker.columns.${name}`)}</span>
          </span>
        ))}
      </div>
      {workers.map((worker) => (
        <div key={worker.id} className={style.row} role="row" data-status={worker.status}>
          {columns.shown.map(({ name }) => (
            <span key={name} role="cell" className={style[name]}>
              <Cell name={name} worker={worker} />
            </span>
          ))}
        </div>
      ))}
    </div>
  );
}

function Cell({ name, worker }: { name: WorkerColumn; worker: Worker }) {
  const { t } = useTranslation();
  const resources = useWorkerResources()(worker);
  switch (name) {
    case "name":
      return (
        <>
          <Link to="/workers/$id" params={{ id: worker.id }} className={style.link}>
            {worker.name}
          </Link>
          <Admission worker={worker} />
          {worker.health?.problem && (
            <p className={style.problem}>{translateMessage(worker.health.problem, t)}</p>
          )}
        </>
      );
    case "status":
      return <WorkerBadge status={worker.status} />;
    case "slots":
      return (
        <Link
          to="/jobs"
          search={{ worker: worker.id, status: "running" }}
          title={t("worker.running", { count: worker.allocated.executions })}
        >
          <Meter {...resources.slots} />
        </Link>
      );
    case "cpu":
    case "memory":
      return <Meter {...resources[name]} />;
    case "custom":
      return resources.custom.map((meter) => <Meter key={meter.label} {...meter} />);
    case "labels":
      return <Labels labels={worker.labels} />;
    case "heartbeat":
      return <RelativeTime at={worker.last_heartbeat_at} />;
    case "disk":
      return worker.health ? formatBytes(parseBytes(worker.health.disk_available)) : "–";
    case "version":
      return worker.version;
    case "actions":
      return <WorkerActions worker={worker} />;
  }
}

export function Admission({ worker }: { worker: Worker }) {
  const { t } = useTranslation();
  if (worker.admission === "open") return null;
  return <ToneBadge tone="waiting" icon={CircleSlash} word={t(`admission.${worker.admission}`)} />;
}
