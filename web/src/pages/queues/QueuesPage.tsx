/** The queues page: depth, limits, history, pause and resume, settings. */

import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { ChartColumn, CirclePause, Pause, Play, Plus, SlidersHorizontal } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { resumeQueue } from "../../api/actions";
import { queuesQuery } from "../../api/queries";
import type { Queue } from "../../api/schema";
import { parseRange } from "../../lib/statistics";
import { usePageTitle } from "../../lib/title";
import { runAction } from "../../ui/notify";
import { HistoryCard } from "../../ui/charts/History";
import { Allowed } from "../../ui/Allowed";
import { Loading, Page, ErrorBox } from "../../ui/kit";
import { ToneBadge } from "../../ui/Status";
import { Elapsed } from "../../ui/Time";
import { PauseDialog } from "./PauseDialog";
import { QueueSettingsDialog } from "./QueueSettingsDialog";
import frame from "../../ui/list.module.css";
import style from "./queues.module.css";

const route = getRouteApi("/queues");

export function QueuesPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.queues"));
  const search = route.useSearch();
  const { edit } = search;
  const navigate = route.useNavigate();
  const { data, error, refetch } = useQuery(queuesQuery);
  const queues = data?.items;
  const depthMax = Math.max(1, ...(queues ?? []).map((queue) => queue.waiting + queue.running));
  const editing = edit === undefined ? undefined : (queues?.find((queue) => queue.name === edit) ?? null);

  return (
    <Page
      title={t("nav.queues")}
      actions={
        <Allowed verb="change" on="queues">
          <Button
            variant="default"
            leftSection={<Plus size={14} />}
            onClick={() => void navigate({ search: { ...search, edit: "+" } })}
          >
            {t("queue.setUp")}
          </Button>
        </Allowed>
      }
    >
      {error && !data && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!queues && !error && <Loading rows={5} />}
      {queues && (
        <div className={frame.table} role="table" aria-label={t("nav.queues")}>
          <div className={`${style.row} ${style.head}`} role="row">
            {(["name", "depth", "running", "oldest", "limits", "actions"] as const).map((column) => (
              <span key={column} role="columnheader">
                {column === "actions" ? (
                  <span className={style.hidden}>{t("queue.actions")}</span>
                ) : (
                  t(`queue.${column}`)
                )}
              </span>
            ))}
          </div>
          {queues.map((queue) => (
            <QueueRow
              key={queue.name}
              queue={queue}
              deepest={depthMax}
              isExpanded={queue.name === search.history}
              onExpand={(history) => void navigate({ search: { ...search, history }, replace: true })}
              onEdit={() => void navigate({ search: { ...search, edit: queue.name } })}
            />
          ))}
        </div>
      )}
      {queues && <p className="quiet">{t("queue.listed")}</p>}
      {queues && editing !== undefined && (
        <QueueSettingsDialog
          queue={editing}
          onClose={() => void navigate({ search: { ...search, edit: undefined } })}
        />
      )}
    </Page>
  );
}

function QueueRow(props: {
  queue: Queue;
  deepest: number;
  isExpanded: boolean;
  onExpand: (queue: string | undefined) => void;
  onEdit: () => void;
}) {
  const { queue, deepest, isExpanded, onExpand, onEdit } = props;
  const { t } = useTranslation();
  const [pausing, setPausing] = useState(false);
  const { name, settings } = queue;
  return (
    <>
      <div className={style.row} role="row" data-paused={settings.paused || undefined}>
        <span role="cell" className={style.name}>
          <Link to="/jobs" search={{ queue: name }}>
            {name}
          </Link>
          {settings.paused && <ToneBadge tone="waiting" icon={CirclePause} word={t("queue.paused")} />}
          {settings.note && <q className="quiet clip">{settings.note}</q>}
        </span>
        <span role="cell" className={style.depth}>
          <span className={style.track} aria-hidden>
            <i className={style.running} style={{ width: `${(queue.running / deepest) * 100}%` }} />
            <i className={style.waiting} style={{ width: `${(queue.waiting / deepest) * 100}%` }} />
          </span>
          <Link to="/jobs" search={{ queue: name, status: "waiting" }} className="num">
            {queue.waiting.toLocaleString()}
          </Link>
        </span>
        <span role="cell">
          <span className={style.caption}>{t("queue.running")} </span>
          <Link to="/jobs" search={{ queue: name, status: "running" }} className="num">
            {queue.running.toLocaleString()}
            {settings.concurrency ? ` / ${settings.concurrency}` : ""}
          </Link>
        </span>
        <span role="cell" className={style.oldest}>
          <Elapsed from={queue.oldest_waiting_since} />
        </span>
        <span role="cell" className={style.limits}>
          <LimitsText queue={queue} />
        </span>
        <span role="cell" className={style.acts}>
          <Allowed verb="operate" on="queues">
            {settings.paused ? (
              <Button
                variant="default"
                leftSection={<Play size={13} />}
                onClick={() => void runAction(() => resumeQueue(name), t("queue.resumed", { name }))}
              >
                {t("queue.resume")}
              </Button>
            ) : (
              <Button variant="default" leftSection={<Pause size={13} />} onClick={() => setPausing(true)}>
                {t("queue.pause")}
              </Button>
            )}
          </Allowed>
          <Allowed verb="read" on="jobs">
            <Tooltip label={t("chart.history")}>
              <ActionIcon
                variant="default"
                aria-label={t("queue.historyOf", { name })}
                aria-expanded={isExpanded}
                onClick={() => onExpand(isExpanded ? undefined : name)}
              >
                <ChartColumn size={14} />
              </ActionIcon>
            </Tooltip>
          </Allowed>
          <Allowed verb="change" on="queues">
            <Tooltip label={t("queue.settings")}>
              <ActionIcon variant="default" aria-label={t("queue.settingsOf", { name })} onClick={onEdit}>
                <SlidersHorizontal size={14} />
              </ActionIcon>
            </Tooltip>
          </Allowed>
        </span>
        {pausing && <PauseDialog name={name} onClose={() => setPausing(false)} />}
      </div>
      {isExpanded && (
        <div className={style.history} role="row">
          <div role="cell">
            <QueueHistory name={name} />
          </div>
        </div>
      )}
    </>
  );
}

function QueueHistory({ name }: { name: string }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  return (
    <HistoryCard
      subject={{ queue: name }}
      charts={["ended", "levels", "startDelay", "runTime"]}
      range={parseRange(search.range)}
      onRange={(range) => void navigate({ search: { ...search, range }, replace: true })}
    />
  );
}

function LimitsText({ queue }: { queue: Queue }) {
  const { t } = useTranslation();
  const { concurrency, rate_per_second: rate, weight } = queue.settings;
  const words = [
    concurrency ? t("queue.atOnce", { count: concurrency }) : null,
    rate ? t("queue.perSecond", { rate }) : null,
    weight && weight !== 1 ? t("queue.weightOf", { weight }) : null,
  ].filter((word) => word !== null);
  return words.length > 0 ? words.join(" · ") : <span className="quiet">{t("queue.unlimited")}</span>;
}
