/** Capacity and use of a worker's resources. */

import { useTranslation } from "react-i18next";

import type { Worker } from "../../api/schema";
import { formatBytes, formatCpu, parseBytes, parseCpu } from "../../lib/quantities";
import { Meter } from "../../ui/kit";
import style from "./workers.module.css";

export function WorkerMeters({ worker }: { worker: Worker }) {
  const { t } = useTranslation();
  const { capacity, allocated, health } = worker;
  const [cpu, cpuAll] = [parseCpu(allocated.cpu), parseCpu(capacity.cpu)];
  const [memory, memoryAll] = [parseBytes(allocated.memory), parseBytes(capacity.memory)];
  const custom = Object.entries(capacity.custom ?? {});
  return (
    <div className={style.meters}>
      <Meter
        label={t("worker.slots")}
        used={allocated.executions}
        all={capacity.slots}
        shown={`${allocated.executions} / ${capacity.slots}`}
      />
      <Meter
        label="CPU"
        used={cpu}
        all={cpuAll}
        measured={health ? parseCpu(health.cpu_used) : undefined}
        shown={`${formatCpu(cpu)} / ${formatCpu(cpuAll)}`}
      />
      <Meter
        label={t("worker.memory")}
        used={memory}
        all={memoryAll}
        measured={health ? memoryAll - parseBytes(health.memory_available) : undefined}
        shown={`${formatBytes(memory)} / ${formatBytes(memoryAll)}`}
      />
      {custom.map(([name, all]) => (
        <Meter
          key={name}
          label={name}
          used={allocated.custom?.[name] ?? 0}
          all={all}
          shown={`${allocated.custom?.[name] ?? 0} / ${all}`}
        />
      ))}
    </div>
  );
}
