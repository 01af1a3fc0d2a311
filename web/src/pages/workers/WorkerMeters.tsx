/** Capacity and use of a worker's resources. */

import { useTranslation } from "react-i18next";

import type { Worker } from "../../api/schema";
import { formatBytes, formatCpu, parseBytes, parseCpu } from "../../lib/quantities";
import { Meter } from "../../ui/kit";
import style from "./workers.module.css";

type MeterProps = Parameters<typeof Meter>[0];

/** Returns the resources of a worker; those of its own come after the common ones. */
export function useWorkerResources(): (worker: Worker) => {
  slots: MeterProps;
  cpu: MeterProps;
  memory: MeterProps;
  custom: MeterProps[];
} {
  const { t } = useTranslation();
  return ({ capacity, allocated, health }) => {
    const [cpu, cpuAll] = [parseCpu(allocated.cpu), parseCpu(capacity.cpu)];
    const [memory, memoryAll] = [parseBytes(allocated.memory), parseBytes(capacity.memory)];
    return {
      slots: {
        label: t("worker.slots"),
        used: allocated.executions,
        all: capacity.slots,
        shown: `${allocated.executions} / ${capacity.slots}`,
      },
      cpu: {
        label: "CPU",
        used: cpu,
        all: cpuAll,
        measured: health ? parseCpu(health.cpu_used) : undefined,
        shown: `${formatCpu(cpu)} / ${formatCpu(cpuAll)}`,
      },
      memory: {
        label: t("worker.memory"),
        used: memory,
        all: memoryAll,
        measured: health ? memoryAll - parseBytes(health.memory_available) : undefined,
        shown: `${formatBytes(memory)} / ${formatBytes(memoryAll)}`,
      },
      custom: Object.entries(capacity.custom ?? {}).map(([label, all]) => {
        const used = allocated.custom?.[label] ?? 0;
        return { label, used, all, shown: `${used} / ${all}` };
      }),
    };
  };
}

export function WorkerMeters({ worker }: { worker: Worker }) {
  const { slots, cpu, memory, custom } = useWorkerResources()(worker);
  return (
    <div className={style.meters}>
      {[slots, cpu, memory, ...custom].map((meter) => (
        <Meter key={meter.label} {...meter} />
      ))}
    </div>
  );
}
