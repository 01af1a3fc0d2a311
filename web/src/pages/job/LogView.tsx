/** Log viewer: follows the log, searches it, filters by stream, and links to lines. */

import { ActionIcon, Button, Progress, SegmentedControl, Switch, TextInput, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDownToLine, ChevronDown, ChevronUp, Download, Regex, ScrollText, Search } from "lucide-react";
import { useEffect, useId, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { fetchRaw } from "../../api/client";
import { jobExecutionsQuery } from "../../api/queries";
import { isTyping } from "../../app/Shortcuts";
import { saveAs } from "../../lib/download";
import type { LogLine } from "../../lib/log";
import { matcher } from "../../lib/logSearch";
import { usePreferences } from "../../lib/preferences";
import { formatBytes } from "../../lib/quantities";
import { formatClock, formatExact } from "../../lib/time";
import { runAction } from "../../ui/notify";
import { ErrorBox } from "../../ui/kit";
import style from "./log.module.css";
import { LogText } from "./LogText";
import { logUrl, type Log, PART_LINES, useLog } from "./useLog";
import { useLogSearch, type LogSearchState } from "./useLogSearch";

type Streams = "all" | "stdout" | "stderr";

const LINE_HEIGHT = 20;
const CHARACTER_WIDTH = 7.2;
/** Width of the line number and of the space around a line. */
const MARGIN_WIDTH = 60;
const NO_HITS: readonly number[] = [];
/** Error code of a pattern that the server refuses. */
const INVALID_PATTERN = "invalid_parameter";
/** Lines shown before the target of a link. */
const CONTEXT_LINES = 200;

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
  const [part, setPart] = useState<number | undefined>();
  const log = useLog(job, execution, part);
  const [streams, setStreams] = useState<Streams>("all");
  const [times, setTimes] = useState(false);
  const [wrap, setWrap] = useState(true);
  const [following, setFollowing] = useState(line === undefined);
  const [find, setFind] = useState("");
  const [isRegex, setIsRegex] = useState(false);
  /** Number of the line that the user has selected among the hits. */
  const [selected, setSelected] = useState<number | undefined>();
  /** Whether to select a hit outside of the lines shown as soon as one is found. */
  const [seeks, setSeeks] = useState(false);
  /** Line to scroll to as soon as it is loaded. */
  const [target, setTarget] = useState(line);
  const search = useLogSearch(job, execution, { pattern: find, isRegex, stream: streams }, log.end);
  const omittedBytes = useOmittedBytes(job, execution, log);
  const isInvalid = search.apiError?.code === INVALID_PATTERN;
  const hitsId = useId();
  const input = useRef<HTMLInputElement>(null);
  const scroller = useRef<HTMLDivElement>(null);

  const lines = useMemo(
    () => (streams === "all" ? log.lines : log.lines.filter((each) => each.stream === streams)),
    [log.lines, streams],
  );
  const { first, last, total, tail, isPart } = useVisibleRange(log);
  const hits = search.result?.hits ?? NO_HITS;
  const matching = useMemo(() => new Set(hits), [hits]);
  const locate = useMemo(() => matcher({ pattern: find, isRegex }), [find, isRegex]);
  const position = positionOfHit(hits, selected, first, last);
  const hit = hits[position];

  // Scrolling to a distant line needs good estimates: it gives up after some corrections.
  const columns = Math.max(10, ((scroller.current?.clientWidth ?? 0) - MARGIN_WIDTH) / CHARACTER_WIDTH);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroller.current,
    estimateSize: (index) =>
      LINE_HEIGHT * (wrap ? Math.max(1, Math.ceil(columnsOf(lines[index]) / columns)) : 1),
    overscan: 30,
  });

  useEffect(() => {
    if (following && lines.length > 0) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [following, lines.length, virtual]);

  useEffect(() => {
    if (hit !== undefined) setTarget(hit);
  }, [hit]);

  useEffect(() => {
    if (!seeks || hits.length === 0) return;
    setSelected(nextHit(hits, first, last, 1));
    setSeeks(false);
  }, [seeks, hits, first, last]);

  /** Number of lines in the log: the search may know later ones than the part shown. */
  const known = part === undefined && !log.complete ? total : Math.max(total, search.result?.lines ?? 0);
  useEffect(() => {
    if (target === undefined || !log.isLoaded || log.part !== part || last === 0) return;
    setFollowing(false);
    if (target >= first && target <= last) {
      const index = lines.findIndex(({ number }) => number >= target);
      if (index >= 0) virtual.scrollToIndex(index, { align: "center" });
    } else if (target <= known && part !== target) {
      const before = Math.max(1, target - CONTEXT_LINES);
      // Long earlier lines may fill the part before it.
      return setPart(part === before ? target : before);
    }
    setTarget(undefined);
  }, [target, log.isLoaded, log.part, part, first, last, known, lines, virtual]);

  /** Shows another part of the log; `undefined` shows the newest lines. */
  const showPart = (next: number | undefined) => {
    setTarget(undefined);
    setPart(next);
    setFollowing(next === undefined && live);
    scroller.current?.scrollTo({ top: 0 });
  };
  const follow = () => (part === undefined ? setFollowing(!following) : showPart(undefined));

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "f") follow();
      else if (event.key === "/") input.current?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });

  const step = (by: 1 | -1) => {
    if (hits.length === 0) setSeeks(true);
    else if (position < 0) setSelected(nextHit(hits, first, last, by));
    else setSelected(hits[(position + by + hits.length) % hits.length]);
  };
  /** Starts another search. */
  const searchFor = (text: string, isRegex: boolean) => {
    setFind(text);
    setIsRegex(isRegex);
    setSelected(undefined);
    setSeeks(false);
  };
  const onScroll = () => {
    const box = scroller.current;
    if (!box) return;
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < LINE_HEIGHT * 1.5;
    if (isAtEnd && !log.complete && find === "" && part === undefined) setFollowing(true);
  };
  const download = () =>
    runAction(async () => {
      const query = { format: "text", ...(streams !== "all" && { stream: streams }) };
      const response = await fetchRaw(logUrl(job, execution, query));
      saveAs(await response.blob(), `${name}-${job.slice(-6)}${execution ? `-${execution}` : ""}.log`);
    });
  const downloadLabel =
    omittedBytes > 0 ? t("log.downloadKept", { size: formatBytes(omittedBytes) }) : t("log.download");

  return (
    <div className={`${style.log} ${style.colors}`} data-testid="log">
      <div className={style.bar}>
        <TextInput
          ref={input}
          className={style.find}
          leftSection={<Search size={13} />}
          placeholder={t("log.find")}
          aria-label={t("log.find")}
          value={find}
          onChange={(event) => searchFor(event.currentTarget.value, isRegex)}
          onKeyDown={(event) => {
            if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
            if (event.key === "Escape") {
              searchFor("", isRegex);
              event.currentTarget.blur();
            }
          }}
          aria-describedby={find === "" ? undefined : hitsId}
          error={isInvalid}
          rightSection={
            <Tooltip label={t("log.regexHint")}>
              <ActionIcon
                size={22}
                aria-label={t("log.regex")}
                aria-pressed={isRegex}
                className={style.regex}
                onClick={() => {
                  searchFor(find, !isRegex);
                  input.current?.focus();
                }}
              >
                <Regex size={13} />
              </ActionIcon>
            </Tooltip>
          }
        />
        {find !== "" && <Hits id={hitsId} position={position} search={search} total={total} onStep={step} />}
        <span className={style.space} />
        <SegmentedControl
          aria-label={t("log.streams")}
          value={streams}
          onChange={setStreams}
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
            onClick={follow}
          >
            {t("log.follow")}
          </Button>
        )}
        <Tooltip label={downloadLabel}>
          <ActionIcon aria-label={downloadLabel} variant="default" onClick={() => void download()}>
            <Download size={14} />
          </ActionIcon>
        </Tooltip>
      </div>
      {log.apiError && <ErrorBox error={log.apiError} />}
      {search.apiError && !isInvalid && <ErrorBox error={search.apiError} />}
      {(isPart || omittedBytes > 0) && (
        <div className={style.head}>
          {isPart && (
            <span className={style.parts}>
              <Range first={first} last={last} total={total} />
              <PartLink label={t("log.first")} to={1} isEnabled={first > 1} onSelect={showPart} />
              <PartLink
                label={t("log.earlier")}
                to={Math.max(1, first - PART_LINES)}
                isEnabled={first > 1}
                onSelect={showPart}
              />
            </span>
          )}
          {omittedBytes > 0 && <span>{t("log.leftOut", { size: formatBytes(omittedBytes) })}</span>}
        </div>
      )}
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
        {lines.length === 0 && !log.apiError && (
          <p className={style.nothing}>
            <ScrollText size={18} aria-hidden />
            {!log.isLoaded ? t("common.loading") : log.complete ? t("log.empty") : t("log.waiting")}
          </p>
        )}
        <div style={{ height: virtual.getTotalSize(), position: "relative", minWidth: "100%" }}>
          {virtual.getVirtualItems().map((item) => {
            const each = lines[item.index];
            if (!each) return null;
            const isHit = matching.has(each.number);
            const isSelected = each.number === hit;
            // Until the server has answered, a text is already highlighted; it judges the regular expressions.
            const matches = isHit || !isRegex ? locate(each.text) : [];
            const isUnlocated = isHit && matches.length === 0;
            return (
              <div
                key={item.key}
                ref={virtual.measureElement}
                data-index={item.index}
                className={style.line}
                data-stream={each.stream}
                data-here={each.number === line || undefined}
                data-match={isUnlocated ? (isSelected ? "selected" : "other") : undefined}
                title={isUnlocated ? t("log.unlocated") : undefined}
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
                {times && <Timestamp at={each.at} />}
                <LogText line={each} matches={matches} isSelected={isSelected} />
              </div>
            );
          })}
        </div>
      </div>
      <div className={style.foot}>
        <span className={style.parts}>
          {isPart ? (
            <Range first={first} last={last} total={total} />
          ) : (
            <span className="num">{t("log.lines", { count: lines.length })}</span>
          )}
          <PartLink
            label={t("log.later")}
            to={last + 1 >= tail ? undefined : last + 1}
            isEnabled={last < total}
            onSelect={showPart}
          />
          <PartLink label={t("log.newest")} to={undefined} isEnabled={last < total} onSelect={showPart} />
        </span>
        {line !== undefined && log.isLoaded && line > total && (
          <span className={style.lost}>{t("log.noLine", { line })}</span>
        )}
        {log.lost && <span className={style.lost}>{t("connection.lost")}</span>}
        {live && !log.complete && !log.lost && <span className={style.live}>{t("connection.live")}</span>}
      </div>
    </div>
  );
}

const knownColumns = new WeakMap<LogLine, number>();

/** Returns the width of a line in columns; wide characters, such as Chinese ones, have two. */
function columnsOf(line: LogLine | undefined): number {
  if (!line) return 0;
  const known = knownColumns.get(line);
  if (known !== undefined) return known;
  const columns =
    line.text.length + (line.text.match(/[\u2e80-\ud7ff\uf900-\ufaff\uff00-\uff60]/g)?.length ?? 0);
  knownColumns.set(line, columns);
  return columns;
}

/** Range of the displayed lines. */
interface VisibleRange {
  first: number;
  /** Last displayed line; 0 if none is displayed. */
  last: number;
  /** Number of lines in the log, as far as known. */
  total: number;
  /** First line of the newest part. */
  tail: number;
  isPart: boolean;
}

function useVisibleRange({ lines, part }: Log): VisibleRange {
  const newest = useRef({ first: 1, last: 0 });
  const [first, last] = [lines[0]?.number ?? 1, lines.at(-1)?.number ?? 0];
  if (part === undefined) newest.current = { first, last };
  const total = Math.max(newest.current.last, last);
  return { first, last, total, tail: newest.current.first, isPart: first > 1 || last < total };
}

/** Returns the number of bytes that the server omitted from the middle of the log. */
function useOmittedBytes(job: string, execution: number | undefined, log: Log): number {
  const executions = useQuery(jobExecutionsQuery(job)).data?.items ?? [];
  const number = execution ?? Math.max(...executions.map((each) => each.number));
  const written = executions.find((each) => each.number === number)?.usage?.log_bytes;
  return log.complete && written !== undefined ? Math.max(0, written - log.end) : 0;
}

/** Displayed lines and total number. */
function Range({ first, last, total }: Pick<VisibleRange, "first" | "last" | "total">) {
  const { t } = useTranslation();
  return <span className="num">{t("log.shown", { first, last, total })}</span>;
}

/** Link to another part of the log; nothing if `isEnabled` is false. */
function PartLink(props: {
  label: string;
  to: number | undefined;
  isEnabled: boolean;
  onSelect: (part: number | undefined) => void;
}) {
  if (!props.isEnabled) return null;
  return (
    <button type="button" className={style.link} onClick={() => props.onSelect(props.to)}>
      {props.label}
    </button>
  );
}

/** Returns the index of the selected hit: of the first one in the lines shown by default, or -1. */
function positionOfHit(
  hits: readonly number[],
  selected: number | undefined,
  first: number,
  last: number,
): number {
  const position = hits.findIndex((number) => number >= (selected ?? first));
  if (selected !== undefined) return position < 0 ? hits.length - 1 : position;
  return (hits[position] ?? Infinity) <= last ? position : -1;
}

/** Returns the next hit after the lines shown, or the previous one before them; the search wraps at both ends. */
function nextHit(hits: readonly number[], first: number, last: number, by: 1 | -1): number | undefined {
  return by > 0
    ? (hits.find((number) => number >= first) ?? hits[0])
    : (hits.findLast((number) => number <= last) ?? hits.at(-1));
}

interface HitsProps {
  id: string;
  /** Index of the selected hit; -1 if none is selected. */
  position: number;
  search: LogSearchState;
  /** Number of lines in the log. */
  total: number;
  onStep: (by: 1 | -1) => void;
}

/** Number of hits and searched part of the log, with buttons for the previous and next hit. */
function Hits({ id, position, search, total, onStep }: HitsProps) {
  const { t } = useTranslation();
  const { result, isRunning, apiError, stop } = search;
  const { hits, lines, hasMore } = result ?? { hits: NO_HITS, lines: 0, hasMore: false };
  const count = hits.length;
  const percent = Math.floor(100 * Math.min(1, lines / Math.max(1, total)));
  const words = () => {
    if (apiError?.code === INVALID_PATTERN) {
      return t("log.invalidPattern", { problem: apiError.fields[0]?.detail ?? apiError.message });
    }
    if (isRunning) return result ? t("log.searching", { percent, count }) : t("log.searchingFirst");
    if (!result) return "";
    if (hasMore) return t("log.searchedTo", { position: position + 1, count, line: lines });
    if (count === 0) return t("log.noHits");
    if (position < 0) return t("log.hitsElsewhere", { count });
    return `${(position + 1).toLocaleString()} / ${count.toLocaleString()}`;
  };
  return (
    <span className={style.hits}>
      <span id={id} className={apiError?.code === INVALID_PATTERN ? style.lost : "num"} aria-live="polite">
        {words()}
      </span>
      {isRunning && result ? (
        <>
          <Progress className={style.progress} value={percent} aria-label={t("log.progress")} />
          <button type="button" className={style.link} onClick={stop}>
            {t("log.stopSearch")}
          </button>
        </>
      ) : (
        <>
          <ActionIcon
            size={22}
            aria-label={t("log.previous")}
            disabled={count === 0}
            onClick={() => onStep(-1)}
          >
            <ChevronUp size={14} />
          </ActionIcon>
          <ActionIcon size={22} aria-label={t("log.next")} disabled={count === 0} onClick={() => onStep(1)}>
            <ChevronDown size={14} />
          </ActionIcon>
        </>
      )}
    </span>
  );
}

function Timestamp({ at }: { at: string }) {
  const { language, zone } = usePreferences();
  return (
    <time className={style.time} dateTime={at} title={formatExact(at, language, zone)}>
      {formatClock(at, language, zone)}
    </time>
  );
}
