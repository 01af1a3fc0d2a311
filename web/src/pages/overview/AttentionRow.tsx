/** One item that needs attention, with a link. */

import { Link } from "@tanstack/react-router";
import {
  CircleCheck,
  CirclePause,
  CircleSlash,
  Clock,
  HeartCrack,
  type LucideIcon,
  Server,
  ServerOff,
  TimerOff,
  UserCheck,
  X,
} from "lucide-react";
import type { TFunction } from "i18next";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";

import type { WorkflowRun } from "../../api/schema";
import { type Failure, isRecovered } from "../../lib/failures";
import { translateMessage, resultText } from "../../lib/serverMessages";
import { RelativeTime } from "../../ui/Time";
import { namedSearch } from "../jobName/search";
import type { AttentionItem } from "./attention";
import style from "./overview.module.css";

const ICONS: Record<AttentionItem["kind"], LucideIcon> = {
  server: HeartCrack,
  noWorkers: ServerOff,
  workerLost: ServerOff,
  workerUnhealthy: HeartCrack,
  failing: X,
  recovered: CircleCheck,
  runFailed: X,
  approval: UserCheck,
  late: TimerOff,
  stuckRun: TimerOff,
  autoPaused: CirclePause,
  stuck: Clock,
  paused: CirclePause,
  workerUnschedulable: CircleSlash,
};

const WARNINGS: ReadonlySet<AttentionItem["kind"]> = new Set([
  "approval",
  "late",
  "stuck",
  "paused",
  "workerUnschedulable",
  "recovered",
]);

export function AttentionRow({ item }: { item: AttentionItem }) {
  const Icon = ICONS[item.kind] ?? Server;
  const [words, aside] = useItemText(item);
  return (
    <li className={style.need} data-mild={WARNINGS.has(item.kind) || undefined}>
      <Icon size={15} aria-hidden />
      <span className={style.needWords}>{words}</span>
      <span className="quiet">{aside}</span>
    </li>
  );
}

/** Returns the name of a run: workflow and number. A run without a stored workflow has no number. */
function runName({ workflow, number }: WorkflowRun): string {
  return number > 0 ? `${workflow} #${number}` : workflow;
}

function failureText(failure: Failure, t: TFunction): [ReactNode, ReactNode] {
  const { namespace, name, failed, expired, newest } = failure;
  const status = [failed > 0 && "failed", expired > 0 && "expired"].filter(Boolean).join(",");
  if (name === null) {
    return [
      <Link key="" to="/jobs" search={{ status, namespace }}>
        {t("attention.otherNames", { namespace, count: failed + expired })}
      </Link>,
      null,
    ];
  }
  const shown = namespace === "default" ? name : `${namespace}/${name}`;
  const text =
    failed === 0
      ? t("attention.expired", { name: shown, count: expired })
      : expired === 0
        ? t("attention.failing", { name: shown, count: failed })
        : t("attention.failingAndExpired", { name: shown, failed, expired });
  const reason = newest?.status === "expired" ? t("status.expired") : resultText(newest?.result, t);
  return [
    <span key="" className={style.failing}>
      <Link to="/jobs/named/$name" params={{ name }} search={namedSearch(namespace, "24h")}>
        {text}
      </Link>
      {newest && (
        <Link to="/jobs/$id" params={{ id: newest.id }} className="quiet clip">
          {isRecovered(failure) ? t("attention.recovered") : reason}
        </Link>
      )}
    </span>,
    newest && <RelativeTime key="" at={newest.finished_at ?? newest.updated_at} />,
  ];
}

function useItemText(item: AttentionItem): [ReactNode, ReactNode] {
  const { t } = useTranslation();
  switch (item.kind) {
    case "server":
      return [
        t("attention.server", {
          detail: item.detail === "full" ? t("settings.states.full") : translateMessage(item.detail, t),
        }),
        null,
      ];
    case "noWorkers":
      return [
        <Link key="" to="/workers">
          {t("attention.noWorkers")}
        </Link>,
        null,
      ];
    case "workerLost":
      return [
        <Link key="" to="/workers/$id" params={{ id: item.worker.id }}>
          {t("attention.workerLost", { name: item.worker.name })}
        </Link>,
        <RelativeTime key="" at={item.worker.last_heartbeat_at} />,
      ];
    case "workerUnhealthy":
      return [
        <Link key="" to="/workers/$id" params={{ id: item.worker.id }}>
          {t("attention.workerUnhealthy", {
            name: item.worker.name,
            problem: translateMessage(item.problem, t),
          })}
        </Link>,
        null,
      ];
    case "workerUnschedulable":
      return [
        <Link key="" to="/workers/$id" params={{ id: item.worker.id }}>
          {t("attention.workerUnschedulable", {
            name: item.worker.name,
            admission: t(`admission.${item.worker.admission}`),
          })}
        </Link>,
        null,
      ];
    case "failing":
    case "recovered":
      return failureText(item.failure, t);
    case "runFailed":
      return [
        <span key="" className={style.failing}>
          <Link to="/runs" search={{ status: "failed", workflow: item.name }}>
            {t(item.atLeast ? "attention.runFailedAtLeast" : "attention.runFailed", {
              name: item.name,
              count: item.count,
            })}
          </Link>
          <Link to="/runs/$id" params={{ id: item.last.id }} className="quiet clip">
            {item.last.number > 0 ? `#${item.last.number}` : t("run.standalone")}
          </Link>
        </span>,
        <RelativeTime key="" at={item.last.finished_at} />,
      ];
    case "approval":
      return [
        <Link key="" to="/runs/$id" params={{ id: item.run.id }} search={{ step: item.step }}>
          {t("attention.approval", { name: runName(item.run), step: item.step })}
        </Link>,
        <RelativeTime key="" at={item.since} />,
      ];
    case "late":
    case "stuckRun":
      return [
        <Link key="" to="/schedules/$id" params={{ id: item.schedule.id }}>
          {t(`attention.${item.kind}`, { name: item.schedule.name, count: item.count })}
        </Link>,
        <RelativeTime key="" at={item.since} />,
      ];
    case "autoPaused":
      return [
        <Link key="" to="/schedules/$id" params={{ id: item.schedule.id }}>
          {t("attention.autoPaused", { name: item.schedule.name })}
        </Link>,
        <RelativeTime key="" at={item.schedule.pause?.at} />,
      ];
    case "stuck":
      return [
        <Link key="" to="/jobs" search={{ queue: item.queue.name, status: "waiting" }}>
          {t("attention.stuck", { name: item.queue.name, count: item.queue.waiting })}
        </Link>,
        <RelativeTime key="" at={item.since} />,
      ];
    case "paused":
      return [
        <Link key="" to="/queues">
          {t("attention.paused", { name: item.queue.name, count: item.queue.waiting })}
        </Link>,
        item.queue.settings.note,
      ];
  }
}
