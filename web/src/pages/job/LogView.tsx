/** A log: live, searched, by stream, with or without times, and every line with an address. */

import { ActionIcon, Button, SegmentedControl, Switch, TextInput, Tooltip } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDownToLine, ChevronDown, ChevronUp, Download, ScrollText, Search } from "lucide-react";
import { type CSSProperties, useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { raw } from "../../api/client";
import { isTyping } from "../../app/Shortcuts";
import type { Span, Style } from "../../lib/ansi";
import { saveAs } from "../../lib/download";
import { type LogLine, occurrences } from "../../lib/log";
import { usePreferences } from "../../lib/preferences";
import { clock, exact } from "../../lib/time";
import { act } from "../../ui/act";
import { ProblemBox } from "../../ui/kit";
import style from "./log.module.css";
import { TAIL, useLog } from "./useLog";

type Streams = "all" | "stdout" | "stderr";

const LINE = 20;

interface Props {
  job: string;
  name: string;
  execution: number | undefined;
  live: boolean;
  line: number | undefined;
  onLine: (line: number | undefined) => void;
}

export function LogView({ job, name, execution, live, line, onLine }: Props) {
  const { t } = useTranslation();
  const log = useLog(job, execution);
  const [streams, setStreams] = useState<Streams>("all");
  const [times, setTimes] = useState(false);
  const [wrap, setWrap] = useState(true);
  const [following, setFollowing] = useState(line === undefined);
  const [find, setFind] = useState("");
  const [at, setAt] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const scroller = useRef<HTMLDivElement>(null);

  const lines = useMemo(
    () => (streams === "all" ? log.lines : log.lines.filter((each) => each.stream === streams)),
    [log.lines, streams],
  );
  const hits = useMemo(
    () =>
      find === "" ? [] : lines.flatMap((each, i) => (occurrences(each.text, find).length > 0 ? [i] : [])),
    [lines, find],
  );
  const hit = hits.length > 0 ? hits[Math.min(at, hits.length - 1)] : undefined;

  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => LINE,
    overscan: 30,
  });

  useEffect(() => {
    if (following && lines.length > 0) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [following, lines.length, virtual]);

  useEffect(() => {
    if (hit === undefined) return;
    setFollowing(false);
    virtual.scrollToIndex(hit, { align: "center" });
  }, [hit, virtual]);

  const hasLines = lines.length > 0;
  useEffect(() => {
    if (line === undefined || !hasLines) return;
    setFollowing(false);
    virtual.scrollToIndex(Math.max(0, line - 1), { align: "center" });
    // Only on coming here: later the user scrolls.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [hasLines]);

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "f") setFollowing((on) => !on);
      else if (event.key === "/") input.current?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  const step = (by: number) =>
    hits.length > 0 && setAt((at) => (Math.min(at, hits.length - 1) + by + hits.length) % hits.length);
  const onScroll = () => {
    const box = scroller.current;
    if (!box) return;
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < LINE * 1.5;
    if (isAtEnd && !log.complete && find === "") setFollowing(true);
  };
  const download = () =>
    act(async () => {
      const query = new URLSearchParams({ format: "text" });
      if (execution !== undefined) query.set("execution", String(execution));
      if (streams !== "all") query.set("stream", streams);
      const response = await raw(`/api/v1/jobs/${encodeURIComponent(job)}/logs?${query}`);
      saveAs(await response.blob(), `${name}-${job.slice(-6)}${execution ? `-${execution}` : ""}.log`);
    });

  return (
    <div className={style.log} data-testid="log">
      <div className={style.bar}>
        <TextInput
          ref={input}
          className={style.find}
          leftSection={<Search size={13} />}
          placeholder={t("log.find")}
          aria-label={t("log.find")}
          value={find}
          onChange={(event) => {
            setFind(event.currentTarget.value);
            setAt(0);
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
            if (event.key === "Escape") {
              setFind("");
              event.currentTarget.blur();
            }
          }}
        />
        {find !== "" && (
          <span className={style.hits}>
            <span className="num" aria-live="polite">
              {hits.length === 0 ? t("log.noHits") : `${Math.min(at, hits.length - 1) + 1} / ${hits.length}`}
            </span>
            <ActionIcon size={22} aria-label={t("log.previous")} onClick={() => step(-1)}>
              <ChevronUp size={14} />
            </ActionIcon>
            <ActionIcon size={22} aria-label={t("log.next")} onClick={() => step(1)}>
              <ChevronDown size={14} />
            </ActionIcon>
          </span>
        )}
        <span className={style.space} />
        <SegmentedControl
          aria-label={t("log.streams")}
          value={streams}
          onChange={(value) => setStreams(value)}
          data={[
            { value: "all", label: t("log.all") },
            { value: "stdout", label: "stdout" },
            { value: "stderr", label: "stderr" },
          ]}
        />
        <Switch label={t("log.times")} checked={times} onChange={(e) => setTimes(e.currentTarget.checked)} />
        <Switch label={t("log.wrap")} checked={wrap} onChange={(e) => setWrap(e.currentTarget.checked)} />
        {live && !log.complete && (
          <Button
            variant={following ? "filled" : "default"}
            leftSection={<ArrowDownToLine size={13} />}
            aria-pressed={following}
            onClick={() => setFollowing(!following)}
          >
            {t("log.follow")}
          </Button>
        )}
        <Tooltip label={t("log.download")}>
          <ActionIcon aria-label={t("log.download")} variant="default" onClick={() => void download()}>
            <Download size={14} />
          </ActionIcon>
        </Tooltip>
      </div>
      {log.refusal && <ProblemBox error={log.refusal} />}
      <div
        ref={scroller}
        className={style.scroller}
        data-wrap={wrap || undefined}
        onScroll={onScroll}
        onWheel={(event) => event.deltaY < 0 && setFollowing(false)}
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label={t("job.tabs.log")}
      >
        {lines.length >= TAIL && <p className={style.note}>{t("log.tail", { count: TAIL })}</p>}
        {lines.length === 0 && !log.refusal && (
          <p className={style.nothing}>
            <ScrollText size={18} aria-hidden />
            {log.complete ? t("log.empty") : live ? t("log.waiting") : t("common.loading")}
          </p>
        )}
        <div style={{ height: virtual.getTotalSize(), position: "relative", minWidth: "100%" }}>
          {virtual.getVirtualItems().map((item) => {
            const each = lines[item.index];
            if (!each) return null;
            return (
              <div
                key={item.key}
                ref={virtual.measureElement}
                data-index={item.index}
                className={style.line}
                data-stream={each.stream}
                data-here={each.number === line || undefined}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <button
                  type="button"
                  className={style.number}
                  aria-label={t("log.linkTo", { line: each.number })}
                  onClick={() => onLine(each.number === line ? undefined : each.number)}
                >
                  {each.number}
                </button>
                {times && <Stamp at={each.at} />}
                <Text line={each} find={find} isHit={item.index === hit} />
              </div>
            );
          })}
        </div>
      </div>
      <div className={style.foot}>
        <span className="num">{t("log.lines", { count: lines.length })}</span>
        {log.lost && <span className={style.lost}>{t("connection.lost")}</span>}
        {live && !log.complete && !log.lost && <span className={style.live}>{t("connection.live")}</span>}
      </div>
    </div>
  );
}

function Stamp({ at }: { at: string }) {
  const { language, zone } = usePreferences();
  return (
    <time className={style.time} dateTime={at} title={exact(at, language, zone)}>
      {clock(at, language, zone)}
    </time>
  );
}

function Text({ line, find, isHit }: { line: LogLine; find: string; isHit: boolean }) {
  const marks = find === "" ? [] : occurrences(line.text, find);
  let from = 0;
  return (
    <span className={style.text}>
      {line.spans.map((span, i) => {
        const start = from;
        from += span.text.length;
        return (
          <span key={i} style={css(span.style)}>
            {marks.length === 0 ? span.text : marked(span, start, marks, isHit)}
          </span>
        );
      })}
    </span>
  );
}

function marked(span: Span, start: number, marks: ReadonlyArray<[number, number]>, isHit: boolean) {
  const parts: React.ReactNode[] = [];
  let from = 0;
  for (const [a, b] of marks) {
    const [left, right] = [Math.max(0, a - start), Math.min(span.text.length, b - start)];
    if (right <= 0 || left >= span.text.length) continue;
    parts.push(span.text.slice(from, left));
    parts.push(
      <mark key={a} data-now={isHit || undefined}>
        {span.text.slice(left, right)}
      </mark>,
    );
    from = right;
  }
  parts.push(span.text.slice(from));
  return parts;
}

function css(of: Style): CSSProperties | undefined {
  if (Object.keys(of).length === 0) return undefined;
  const color = (value: number | string | undefined) =>
    typeof value === "number" ? `var(--ansi-${value})` : value;
  const [front, back] = of.inverse
    ? [of.background ?? "var(--surface)", of.color ?? "var(--ink)"]
    : [of.color, of.background];
  return {
    color: color(front),
    backgroundColor: color(back),
    fontWeight: of.bold ? 700 : undefined,
    fontStyle: of.italic ? "italic" : undefined,
    textDecoration: of.underline ? "underline" : undefined,
    opacity: of.dim ? 0.65 : undefined,
  };
}
