/** Capacity and use of a worker's resources. */

import { useTranslation } from "react-i18next";

import type { Worker } from "../../api/schema";
import { formatBytes, formatCpu, parseBytes, parseCpu } from "../../lib/quantities";
import { Meter } from "../../ui/kit";
import style from "./workers.module.css";

export function WorkerMeters({ worker }: { worker: Worker }) {
  const { t } = useTranslation();
  const { capacity, reserved, health } = worker;
  const [cpu, cpuAll] = [parseCpu(reserved.cpu), parseCpu(capacity.cpu)];
  const [memory, memoryAll] = [parseBytes(reserved.memory), parseBytes(capacity.memory)];
  const custom = Object.entries(capacity.custom ?? {});
  return (
    <div className={style.meters}>
      <Meter
        label={t("worker.slots")}
        used={reserved.executions}
        all={capacity.slots}
        shown={`${reserved.executions} / ${capacity.slots}`}
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
          used={reserved.custom?.[name] ?? 0}
          all={all}
          shown={`${reserved.custom?.[name] ?? 0} / ${all}`}
        />
      ))}
    </div>
  );
}
