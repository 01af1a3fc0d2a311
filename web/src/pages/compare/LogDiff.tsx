/** The line difference of two logs, computed in a worker. Only visible lines are DOM elements. */

import { Checkbox } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { COMPARED_LINES, type ComparedLog, comparedLogQuery } from "../../api/compare";
import { collapse, type DiffOptions, type DiffRow } from "../../lib/lineDiff";
import { usePreferences } from "../../lib/preferences";
import { Card, ErrorBox, Loading } from "../../ui/kit";
import style from "./compare.module.css";
import { DiffText } from "./DiffText";

export interface LogSide {
  job: string;
  execution: number | undefined;
  isEnded: boolean;
}

interface Props {
  sides: readonly [a: LogSide, b: LogSide];
  ignoresNumbers: boolean;
  onIgnore: (ignores: boolean) => void;
  /** Control at the top, such as the choice of a step. */
  choice?: ReactNode;
}

const LINE_HEIGHT = 18;

export function LogDiff({ sides: [a, b], ignoresNumbers, onIgnore, choice }: Props) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const left = useQuery(comparedLogQuery(a.job, a.execution, a.isEnded));
  const right = useQuery(comparedLogQuery(b.job, b.execution, b.isEnded));
  const error = (left.data ? null : left.error) ?? (right.data ? null : right.error);
  const diff = useLineDiff(loadedLog(left.data, a), loadedLog(right.data, b), ignoresNumbers);
  const rows = diff?.rows;
  const isTail = diff && (diff.a.first > 1 || diff.b.first > 1);
  const count = (kind: DiffRow["kind"]) => rows?.filter((row) => row.kind === kind).length ?? 0;
  return (
    <Card
      title={t("job.tabs.log")}
      aside={
        <div className={style.logTools}>
          {choice}
          <Checkbox
            size="xs"
            label={t("compare.ignoreNumbers")}
            checked={ignoresNumbers}
            onChange={(event) => onIgnore(event.currentTarget.checked)}
          />
        </div>
      }
      flush
    >
      {error ? <ErrorBox error={error} /> : null}
      {!diff && !error && (
        <div className={style.padded}>
          <Loading rows={6} />
        </div>
      )}
      {rows === null && <p className={style.padded}>{t("compare.tooDifferent")}</p>}
      {rows && (
        <p className={`${style.padded} num`} data-testid="log-difference">
          {count("added") + count("removed") === 0
            ? rows.length === 0
              ? t("compare.noLogs")
              : t("compare.sameLogs")
            : t("compare.lines", {
                added: count("added").toLocaleString(language),
                removed: count("removed").toLocaleString(language),
              })}
          {isTail && ` ${t("compare.tail", { count: COMPARED_LINES.toLocaleString(language) })}`}
        </p>
      )}
      {rows && rows.length > 0 && <DiffLines rows={rows} firstA={diff.a.first} firstB={diff.b.first} />}
    </Card>
  );
}

/** Returns a log once it is loaded: as far as it has got while the execution runs, and with its end afterwards. */
function loadedLog(log: ComparedLog | undefined, { isEnded }: LogSide): ComparedLog | undefined {
  return isEnded && !log?.isComplete ? undefined : log;
}

interface LogDifference {
  a: ComparedLog;
  b: ComparedLog;
  ignoresNumbers: boolean;
  /** Null if the logs are too different. */
  rows: DiffRow[] | null;
}

/** Returns the difference of exactly these logs; undefined until both are loaded and it is computed. */
function useLineDiff(
  a: ComparedLog | undefined,
  b: ComparedLog | undefined,
  ignoresNumbers: boolean,
): LogDifference | undefined {
  const [diff, setDiff] = useState<LogDifference>();
  useEffect(() => {
    if (!a || !b) return;
    const worker = new Worker(new URL("../../lib/lineDiff.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = ({ data: rows }: MessageEvent<DiffRow[] | null>) =>
      setDiff({ a, b, ignoresNumbers, rows });
    const options: DiffOptions = { ignoresNumbers };
    worker.postMessage({ a: a.lines, b: b.lines, options });
    return () => worker.terminate();
  }, [a, b, ignoresNumbers]);
  const isCurrent = diff?.a === a && diff?.b === b && diff?.ignoresNumbers === ignoresNumbers;
  return isCurrent ? diff : undefined;
}

function DiffLines({ rows, firstA, firstB }: { rows: readonly DiffRow[]; firstA: number; firstB: number }) {
  const { t } = useTranslation();
  const scroller = useRef<HTMLDivElement>(null);
  const [expanded, setExpanded] = useState<ReadonlySet<number>>(new Set());
  useEffect(() => setExpanded(new Set()), [rows]);
  const shown = useMemo(() => collapse(rows, expanded), [rows, expanded]);
  const virtual = useVirtualizer({
    count: shown.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => LINE_HEIGHT,
    overscan: 30,
  });
  return (
    <div
      ref={scroller}
      className={style.log}
      role="group"
      aria-label={t("compare.logLabel")}
      tabIndex={0}
      data-testid="log-lines"
    >
      <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {virtual.getVirtualItems().map((item) => {
          const row = shown[item.index];
          return (
            row && (
              <div
                key={item.key}
                className={style.placed}
                style={{ transform: `translateY(${item.start}px)`, height: LINE_HEIGHT }}
              >
                <DiffText
                  row={row}
                  firstA={firstA}
                  firstB={firstB}
                  onExpand={
                    row.kind === "gap" ? () => setExpanded(new Set(expanded).add(row.from)) : undefined
                  }
                />
              </div>
            )
          );
        })}
      </div>
    </div>
  );
}
