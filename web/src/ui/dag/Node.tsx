/** One step of a workflow graph. */

import { Braces, CornerDownRight, Hourglass, type LucideIcon, Terminal, UserCheck } from "lucide-react";
import { memo } from "react";
import { useTranslation } from "react-i18next";

import type { StepKind, StepStatus } from "../../api/schema";
import type { DagNode } from "../../lib/dag/graph";
import { stepTone } from "../../lib/runs";
import { StepIcon } from "../Status";
import { Elapsed } from "../Time";
import style from "./dag.module.css";

export interface NodeState {
  status: StepStatus;
  startedAt?: string | null;
  finishedAt?: string | null;
  /** Number of elements of a mapped step; `succeeded` and `failed` count its ended ones. */
  total?: number | null;
  succeeded?: number;
  failed?: number;
}

export const KIND_ICONS: Record<StepKind, LucideIcon> = {
  job: Terminal,
  workflow: CornerDownRight,
  approval: UserCheck,
  wait: Hourglass,
};

interface Props {
  node: DagNode;
  x: number;
  y: number;
  state?: NodeState;
  isSelected: boolean;
  isDim: boolean;
  onSelect?: (name: string) => void;
}

export const Node = memo(function Node({ node, x, y, state, isSelected, isDim, onSelect }: Props) {
  const { t } = useTranslation();
  const Kind = KIND_ICONS[node.kind];
  const words = state ? t(`stepStatus.${state.status}`) : t(`stepKind.${node.kind}`);
  return (
    <button
      type="button"
      className={style.node}
      style={{ transform: `translate(${x}px, ${y}px)` }}
      data-status={state?.status}
      data-tone={state && stepTone(state.status)}
      data-map={node.isMap || undefined}
      data-dim={isDim || undefined}
      aria-pressed={isSelected}
      aria-label={`${node.name}: ${words}`}
      title={node.name}
      tabIndex={-1}
      onClick={() => onSelect?.(node.name)}
    >
      <span className={style.mark}>
        {state ? <StepIcon status={state.status} /> : <Kind size={14} aria-hidden />}
      </span>
      <span className={style.words}>
        <span className="clip">{node.name}</span>{" "}
        <span className={style.second}>
          {state && <Kind size={11} aria-hidden />}
          {node.isMap && state?.total != null ? (
            <Tally state={state} />
          ) : (
            <span className="clip">{words}</span>
          )}
          {node.isConditional && <Braces size={11} aria-label={t("dag.conditional")} />}
          {state?.startedAt && state.status !== "skipped" && (
            <span className={style.took}>
              <Elapsed from={state.startedAt} to={state.finishedAt} />
            </span>
          )}
        </span>
      </span>
      {node.isMap && state?.total != null && state.total > 0 && <Bar state={state} total={state.total} />}
    </button>
  );
});

function Tally({ state: { total, succeeded = 0, failed = 0 } }: { state: NodeState }) {
  const { t } = useTranslation();
  return (
    <span className="num clip">
      {t("dag.tally", { ended: succeeded + failed, total: total ?? 0 })}
      {failed > 0 && <strong> · {t("dag.failed", { count: failed })}</strong>}
    </span>
  );
}

function Bar({ state: { succeeded = 0, failed = 0 }, total }: { state: NodeState; total: number }) {
  return (
    <span className={style.bar} aria-hidden>
      <i style={{ width: `${(succeeded / total) * 100}%` }} />
      <i data-bad style={{ width: `${(failed / total) * 100}%` }} />
    </span>
  );
}
