/** Gantt chart of a run's steps. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { ChartGantt } from "lucide-react";
import { useRef } from "react";
import { useTranslation } from "react-i18next";

import type { RunStep, WorkflowRun } from "../../api/schema";
import { useNow } from "../../lib/now";
import { formatDuration } from "../../lib/quantities";
import { stepTone } from "../../lib/runs";
import { stepSpans } from "../../lib/stepSpans";
import { EmptyState } from "../../ui/kit";
import { StepIcon } from "../../ui/Status";
import { axis } from "../job/bars";
import style from "./gantt.module.css";

const ROW_HEIGHT = 28;

interface Props {
  run: WorkflowRun;
  steps: readonly RunStep[];
  selected: string | undefined;
  onSelect: (step: string) => void;
}

export function RunGantt({ run, steps, selected, onSelect }: Props) {
  const { t } = useTranslation();
  const tick = useNow();
  const scroller = useRef<HTMLDivElement>(null);
  const now = Math.max(tick, Date.parse(run.updated_at));
  const { spans, from, to } = stepSpans(run, steps, now);
  const { ticks } = axis(to - from);
  const virtual = useVirtualizer({
    count: spans.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
  });
  if (spans.length === 0) return <EmptyState icon={ChartGantt} title={t("run.nothingStarted")} />;
  const at = (time: number) => `${(Math.max(0, Math.min(1, (time - from) / (to - from))) * 100).toFixed(3)}%`;
  const grid = ticks.map((ms) => <i key={ms} style={{ left: `${(ms / (to - from)) * 100}%` }} />);

  return (
    <div className={style.gantt} data-testid="gantt">
      <div className={style.axis} aria-hidden>
        {ticks.map((ms) => (
          <span key={ms} style={{ left: `${(ms / (to - from)) * 100}%` }}>
            {ms === 0 ? "0" : formatDuration(ms)}
          </span>
        ))}
      </div>
      <div
        ref={scroller}
        className={style.scroller}
        tabIndex={0}
        role="group"
        aria-label={t("run.tabs.gantt")}
      >
        <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {virtual.getVirtualItems().map((item) => {
            const span = spans[item.index];
            if (!span) return null;
            const { step } = span;
            const length = formatDuration(span.to - span.from);
            return (
              <button
                key={step.name}
                type="button"
                className={style.row}
                style={{ height: ROW_HEIGHT, transform: `translateY(${item.start}px)` }}
                aria-pressed={selected === step.name}
                aria-label={`${step.name}: ${t(`stepStatus.${step.status}`)}, ${length}`}
                title={`${step.name} · ${t(`stepStatus.${step.status}`)} · ${length}`}
                data-tone={stepTone(step.status)}
                onClick={() => onSelect(step.name)}
              >
                <span className={style.name}>
                  <StepIcon status={step.status} />
                  <span className="clip">{step.name}</span>
                </span>
                <span className={style.track}>
                  {grid}
                  <span
                    className={style.bar}
                    style={{ left: at(span.from), right: `calc(100% - ${at(span.to)})` }}
                  />
                </span>
                <span className={`${style.took} num`}>{length}</span>
              </button>
            );
          })}
        </div>
      </div>
    </div>
  );
}
