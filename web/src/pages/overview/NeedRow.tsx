/** One thing that needs somebody: what it is, and where to go about it. */

import { Link } from "@tanstack/react-router";
import {
  CirclePause,
  CircleSlash,
  Clock,
  HeartCrack,
  Hourglass,
  type LucideIcon,
  Server,
  ServerOff,
  TimerOff,
  UserCheck,
  X,
} from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";

import type { WorkflowRun } from "../../api/schema";
import { translateMessage, resultText } from "../../lib/runWords";
import { RelativeTime } from "../../ui/Time";
import type { Need } from "./attention";
import style from "./overview.module.css";

const ICONS: Record<Need["kind"], LucideIcon> = {
  server: HeartCrack,
  noWorkers: ServerOff,
  workerLost: ServerOff,
  workerUnwell: HeartCrack,
  failing: X,
  runFailed: X,
  approval: UserCheck,
  expired: Hourglass,
  late: TimerOff,
  stuckRun: TimerOff,
  autoPaused: CirclePause,
  stuck: Clock,
  paused: CirclePause,
  workerClosed: CircleSlash,
};

const MILD: ReadonlySet<Need["kind"]> = new Set(["approval", "late", "stuck", "paused", "workerClosed"]);

export function NeedRow({ need }: { need: Need }) {
  const Icon = ICONS[need.kind] ?? Server;
  const [words, aside] = useWords(need);
  return (
    <li className={style.need} data-mild={MILD.has(need.kind) || undefined}>
      <Icon size={15} aria-hidden />
      <span className={style.needWords}>{words}</span>
      <span className="quiet">{aside}</span>
    </li>
  );
}

/** A run by its workflow and number; one without a workflow has no number. */
function runName({ workflow, number }: WorkflowRun): string {
  return number > 0 ? `${workflow} #${number}` : workflow;
}

function useWords(need: Need): [ReactNode, ReactNode] {
  const { t } = useTranslation();
  switch (need.kind) {
    case "server":
      return [
        t("need.server", {
          detail: need.detail === "full" ? t("settings.states.full") : translateMessage(need.detail, t),
        }),
        null,
      ];
    case "noWorkers":
      return [
        <Link key="" to="/workers">
          {t("need.noWorkers")}
        </Link>,
        null,
      ];
    case "workerLost":
      return [
        <Link key="" to="/workers/$id" params={{ id: need.worker.id }}>
          {t("need.workerLost", { name: need.worker.name })}
        </Link>,
        <RelativeTime key="" at={need.worker.heard_at} />,
      ];
    case "workerUnwell":
      return [
        <Link key="" to="/workers/$id" params={{ id: need.worker.id }}>
          {t("need.workerUnwell", { name: need.worker.name, trouble: translateMessage(need.trouble, t) })}
        </Link>,
        null,
      ];
    case "workerClosed":
      return [
        <Link key="" to="/workers/$id" params={{ id: need.worker.id }}>
          {t("need.workerClosed", {
            name: need.worker.name,
            admission: t(`admission.${need.worker.admission}`),
          })}
        </Link>,
        null,
      ];
    case "failing":
      return [
        <span key="" className={style.failing}>
          <Link to="/jobs" search={{ status: "failed", name: need.name }}>
            {t(need.atLeast ? "need.failingAtLeast" : "need.failing", { name: need.name, count: need.count })}
          </Link>
          <Link to="/jobs/$id" params={{ id: need.last.id }} className="quiet clip">
            {resultText(need.last.result, t)}
          </Link>
        </span>,
        <RelativeTime key="" at={need.last.finished_at} />,
      ];
    case "runFailed":
      return [
        <span key="" className={style.failing}>
          <Link to="/runs" search={{ status: "failed", workflow: need.name }}>
            {t(need.atLeast ? "need.runFailedAtLeast" : "need.runFailed", {
              name: need.name,
              count: need.count,
            })}
          </Link>
          <Link to="/runs/$id" params={{ id: need.last.id }} className="quiet clip">
            {need.last.number > 0 ? `#${need.last.number}` : t("run.alone")}
          </Link>
        </span>,
        <RelativeTime key="" at={need.last.finished_at} />,
      ];
    case "approval":
      return [
        <Link key="" to="/runs/$id" params={{ id: need.run.id }} search={{ step: need.step }}>
          {t("need.approval", { name: runName(need.run), step: need.step })}
        </Link>,
        <RelativeTime key="" at={need.since} />,
      ];
    case "expired":
      return [
        <Link key="" to="/jobs" search={{ status: "expired" }}>
          {t(need.atLeast ? "need.expiredAtLeast" : "need.expired", { count: need.count })}
        </Link>,
        <RelativeTime key="" at={need.last.finished_at} />,
      ];
    case "late":
    case "stuckRun":
      return [
        <Link key="" to="/schedules/$id" params={{ id: need.schedule.id }}>
          {t(`need.${need.kind}`, { name: need.schedule.name, count: need.count })}
        </Link>,
        <RelativeTime key="" at={need.since} />,
      ];
    case "autoPaused":
      return [
        <Link key="" to="/schedules/$id" params={{ id: need.schedule.id }}>
          {t("need.autoPaused", { name: need.schedule.name })}
        </Link>,
        <RelativeTime key="" at={need.schedule.pause?.at} />,
      ];
    case "stuck":
      return [
        <Link key="" to="/jobs" search={{ queue: need.queue.name, status: "waiting" }}>
          {t("need.stuck", { name: need.queue.name, count: need.queue.waiting })}
        </Link>,
        <RelativeTime key="" at={need.since} />,
      ];
    case "paused":
      return [
        <Link key="" to="/queues">
          {t("need.paused", { name: need.queue.name, count: need.queue.waiting })}
        </Link>,
        need.queue.settings.note,
      ];
  }
}
