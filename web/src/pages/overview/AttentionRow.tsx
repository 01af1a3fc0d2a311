/** One item that needs attention, with a link. */

import { Link } from "@tanstack/react-router";
import {
  BellRing,
  CirclePause,
  CircleSlash,
  Clock,
  HeartCrack,
  type LucideIcon,
  RotateCcw,
  Server,
  ServerOff,
  TimerOff,
  TriangleAlert,
  UserCheck,
  X,
} from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";

import type { FailureGroup, Service, WorkflowRun } from "../../api/schema";
import { failureText, translateMessage } from "../../lib/serverMessages";
import { FailureLink } from "../../ui/FailureLink";
import { FailureNames } from "../../ui/FailureNames";
import { FailureBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import type { AttentionItem } from "./attention";
import style from "./overview.module.css";

const ICONS: Record<AttentionItem["kind"], LucideIcon> = {
  server: HeartCrack,
  noWorkers: ServerOff,
  alerts: BellRing,
  workerLost: ServerOff,
  workerUnhealthy: HeartCrack,
  failures: X,
  reopened: RotateCcw,
  runFailed: X,
  approval: UserCheck,
  serviceDown: X,
  serviceDegraded: TriangleAlert,
  rolloutFailed: X,
  rolledBack: RotateCcw,
  promotion: UserCheck,
  late: TimerOff,
  stuckRun: TimerOff,
  autoPaused: CirclePause,
  stuck: Clock,
  paused: CirclePause,
  workerUnschedulable: CircleSlash,
};

const WARNINGS: ReadonlySet<AttentionItem["kind"]> = new Set([
  "approval",
  "serviceDegraded",
  "rolledBack",
  "promotion",
  "late",
  "stuck",
  "paused",
  "workerUnschedulable",
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

/** The newest message of a failure group, its job names, and the number of failed jobs in the last day. */
function Failures({ group }: { group: FailureGroup }) {
  const { t } = useTranslation();
  const { error } = failureText(group, t);
  return (
    <span className={style.failures}>
      <span>
        {group.reopened && <FailureBadge group={group} plain />}
        <FailureLink group={group} className="clip" />
        {error && <span className={`${style.error} quiet`}>{error}</span>}
      </span>
      <FailureNames group={group} hasNamespace className={style.names} />
      <span className="num">{t("attention.failures", { count: group.last_24h })}</span>
    </span>
  );
}

interface ServiceProblemProps {
  kind: "serviceDown" | "serviceDegraded" | "rolloutFailed" | "rolledBack" | "promotion";
  service: Service;
}

function ServiceProblem({ kind, service }: ServiceProblemProps) {
  const { t } = useTranslation();
  const { name, namespace, rollout, counts, replicas } = service;
  const values = { name, revision: rollout.revision };
  const words =
    kind === "serviceDegraded"
      ? t("attention.serviceDegraded", { name, available: counts.available, count: replicas })
      : t(`attention.${kind}`, values);
  return (
    <Link to="/services/$namespace/$name" params={{ namespace, name }}>
      {words}
    </Link>
  );
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
    case "alerts":
      return [
        <Link key="" to="/alerts">
          {t("attention.alerts", { count: item.firing })}
        </Link>,
        item.critical > 0 ? t("attention.critical", { count: item.critical }) : null,
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
    case "failures":
    case "reopened":
      return [<Failures key="" group={item.group} />, <RelativeTime key="" at={item.group.last_seen} />];
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
    case "serviceDown":
    case "serviceDegraded":
    case "rolloutFailed":
    case "rolledBack":
    case "promotion":
      return [
        <ServiceProblem key="" kind={item.kind} service={item.service} />,
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
