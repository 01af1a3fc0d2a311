/** Table of a run's steps, with a name search and a status filter. */

import { TextInput } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Search } from "lucide-react";
import { useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import type { RunStep, StepStatus } from "../../api/schema";
import { failedFirst } from "../../lib/failureCauses";
import { isStepEnded, STEP_STATUSES } from "../../lib/runs";
import { stepReasonText } from "../../lib/serverMessages";
import { KIND_ICONS } from "../../ui/dag/Node";
import { StepBadge } from "../../ui/Status";
import { Elapsed } from "../../ui/Time";
import filters from "../../ui/filters.module.css";
import style from "./steps.module.css";

const ROW_HEIGHT = 38;

interface Props {
  steps: readonly RunStep[];
  selected: string | undefined;
  onSelect: (step: string) => void;
}

export function StepsTable({ steps, selected, onSelect }: Props) {
  const { t } = useTranslation();
  const [find, setFind] = useState("");
  const [statuses, setStatuses] = useState<ReadonlySet<StepStatus>>(new Set());
  const scroller = useRef<HTMLDivElement>(null);
  const counts = useMemo(() => {
    const found = new Map<StepStatus, number>();
    for (const { status } of steps) found.set(status, (found.get(status) ?? 0) + 1);
    return found;
  }, [steps]);
  const rows = useMemo(() => {
    const text = find.trim().toLowerCase();
    return failedFirst(steps).filter(
      ({ name, status }) =>
        (statuses.size === 0 || statuses.has(status)) && name.toLowerCase().includes(text),
    );
  }, [steps, find, statuses]);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
  });
  const toggle = (status: StepStatus) => {
    const next = new Set(statuses);
    if (!next.delete(status)) next.add(status);
    setStatuses(next);
  };

  return (
    <div>
      <div className={style.bar}>
        <TextInput
          leftSection={<Search size={13} />}
          placeholder={t("dag.find")}
          aria-label={t("dag.find")}
          value={find}
          onChange={(event) => setFind(event.currentTarget.value)}
        />
        <div className={filters.chips} role="group" aria-label={t("run.status")}>
          {STEP_STATUSES.filter((status) => counts.has(status) || statuses.has(status)).map((status) => (
            <button
              key={status}
              type="button"
              aria-pressed={statuses.has(status)}
              onClick={() => toggle(status)}
            >
              {t(`stepStatus.${status}`)} <span className="num">{counts.get(status) ?? 0}</span>
            </button>
          ))}
        </div>
      </div>
      <div
        ref={scroller}
        className={style.scroller}
        role="table"
        aria-label={t("run.tabs.steps")}
        aria-rowcount={rows.length}
        tabIndex={0}
        data-testid="steps"
      >
        <div style={{ height: virtual.getTotalSize(), position: "relative" }} role="rowgroup">
          {virtual.getVirtualItems().map((item) => {
            const step = rows[item.index];
            return (
              step && (
                <StepRow
                  key={step.name}
                  step={step}
                  isSelected={step.name === selected}
                  onSelect={onSelect}
                  style={{ height: ROW_HEIGHT, transform: `translateY(${item.start}px)` }}
                />
              )
            );
          })}
        </div>
      </div>
    </div>
  );
}

interface RowProps {
  step: RunStep;
  isSelected: boolean;
  onSelect: (step: string) => void;
  style: React.CSSProperties;
}

function StepRow({ step, isSelected, onSelect, style: place }: RowProps) {
  const { t } = useTranslation();
  const Kind = KIND_ICONS[step.kind];
  const { succeeded = 0, failed = 0 } = step.element_counts ?? {};
  return (
    <div
      className={style.row}
      role="row"
      style={place}
      data-chosen={isSelected || undefined}
      onClick={() => onSelect(step.name)}
    >
      <span role="cell">
        <StepBadge status={step.status} plain />
      </span>
      <span role="cell" className={style.name}>
        <Kind size={13} aria-label={t(`stepKind.${step.kind}`)} />
        <button type="button" className="clip" onClick={() => onSelect(step.name)}>
          {step.name}
        </button>
        {step.section !== "steps" && <span className={style.section}>{t(`section.${step.section}`)}</span>}
        {step.total != null && (
          <span className="quiet num">
            {t("dag.tally", { ended: succeeded + failed, total: step.total })}
            {failed > 0 && ` · ${t("dag.failed", { count: failed })}`}
          </span>
        )}
      </span>
      <span role="cell" className={`${style.cause} quiet clip`}>
        {stepReasonText(step, t)}
      </span>
      <span role="cell" className={style.took}>
        {step.started_at && (
          <Elapsed
            from={step.started_at}
            to={isStepEnded(step.status) ? (step.finished_at ?? step.started_at) : null}
          />
        )}
      </span>
    </div>
  );
}
