/** What the executions on a worker use now, highest first, in an order that the user chooses. */

import { SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { ExecutionUsage } from "../../api/schema";
import { WORKER_USAGE_MAX, workerUsageQuery } from "../../api/usage";
import { formatBytes, formatCpu, parseBytes, parseCpu } from "../../lib/quantities";
import { USAGE_ORDERS, type UsageOrder } from "../../lib/usage";
import { useCanSomewhere } from "../../ui/Allowed";
import { Card, ErrorBox, Loading } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import style from "./usage.module.css";

const COLUMNS = ["job", "namespace", "cpu", "memory", "disk"] as const;

interface Props {
  worker: string;
  /** The order is part of the address of a page. */
  order: UsageOrder;
  onOrder: (order: UsageOrder | undefined) => void;
}

/** The card; nothing if the caller may not read executions. */
export function UsageCard(props: Props) {
  const { t } = useTranslation();
  const canRead = useCanSomewhere()("read", "executions");
  if (!canRead) return null;
  return (
    <Card title={t("usage.byUse")} aside={<OrderSwitch {...props} />} flush>
      <UsageTable {...props} />
    </Card>
  );
}

function OrderSwitch({ order, onOrder }: Props) {
  const { t } = useTranslation();
  return (
    <SegmentedControl
      aria-label={t("usage.order")}
      value={order}
      // The default is not in the address.
      onChange={(chosen) => onOrder(USAGE_ORDERS.slice(1).find((each) => each === chosen))}
      data={USAGE_ORDERS.map((value) => ({ value, label: t(`usage.${value}`) }))}
    />
  );
}

function UsageTable({ worker, order }: Props) {
  const { t } = useTranslation();
  const { data, error, refetch } = useQuery(workerUsageQuery(worker, order));
  if (!data) {
    return (
      <div className={style.note}>
        {error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={3} />}
      </div>
    );
  }
  if (data.items.length === 0) return <p className={`${style.note} quiet`}>{t("usage.none")}</p>;
  return (
    <>
      <div className={`${frame.table} ${style.table}`} role="table" aria-label={t("usage.byUse")}>
        <div className={`${frame.row} ${frame.head} ${style.row}`} role="row">
          {COLUMNS.map((column) => (
            <span key={column} role="columnheader">
              {t(`usage.columns.${column}`)}
            </span>
          ))}
        </div>
        <div role="rowgroup" data-testid="usage-rows">
          {data.items.map((item) => (
            <Row key={item.execution_id} item={item} />
          ))}
        </div>
      </div>
      {data.items.length === WORKER_USAGE_MAX && (
        <p className={`${style.note} quiet`}>{t("usage.highest", { count: WORKER_USAGE_MAX })}</p>
      )}
    </>
  );
}

function Row({ item }: { item: ExecutionUsage }) {
  const { t } = useTranslation();
  const { usage, job_id: id } = item;
  const cpu = [usage.cpu, item.cpu_request].map((amount) => formatCpu(parseCpu(amount)));
  const memory = [usage.memory, item.memory_request].map((amount) => formatBytes(parseBytes(amount)));
  const disk = [usage.read_bytes_per_second, usage.written_bytes_per_second].map((bytes) =>
    t("usage.perSecond", { bytes: formatBytes(bytes) }),
  );
  return (
    <div className={`${frame.row} ${style.row}`} role="row">
      <span role="cell" className={style.job}>
        <Link to="/jobs/$id" params={{ id }}>
          {item.job_name}
        </Link>
      </span>
      <span role="cell" className={style.namespace}>
        {item.namespace}
      </span>
      {(
        [
          ["cpu", cpu],
          ["memory", memory],
          ["disk", disk],
        ] as const
      ).map(([column, values]) => (
        <span key={column} role="cell" className="num">
          <small className={style.label}>{t(`usage.${column}`)} </small>
          {values.join(" / ")}
        </span>
      ))}
    </div>
  );
}
