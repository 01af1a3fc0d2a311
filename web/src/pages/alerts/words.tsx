/** Badges and names of alerts and monitors: severity, statuses, object, kind of channel. */

import { Link } from "@tanstack/react-router";
import type { TFunction } from "i18next";
import {
  BellOff,
  BellRing,
  Check,
  CircleDashed,
  CirclePause,
  Clock,
  Info,
  OctagonAlert,
  Play,
  TriangleAlert,
  UserCheck,
  X,
} from "lucide-react";
import { useTranslation } from "react-i18next";

import type {
  Alert,
  AlertStatus,
  MonitorStatus,
  NotificationStatus,
  PingKind,
  Severity,
} from "../../api/schema";
import type { ChannelKind } from "../../lib/alertForms";
import { subjectName } from "../../lib/alerts";
import { ToneBadge } from "../../ui/Status";
import { namedSearch } from "../jobName/search";

const SEVERITY_LOOKS = {
  info: { tone: "running", icon: Info },
  warning: { tone: "waiting", icon: TriangleAlert },
  critical: { tone: "failed", icon: OctagonAlert },
} as const satisfies Record<Severity, object>;

export function SeverityBadge({ severity, plain }: { severity: Severity; plain?: boolean }) {
  const { t } = useTranslation();
  return <ToneBadge {...SEVERITY_LOOKS[severity]} word={t(`severity.${severity}`)} plain={plain} />;
}

const STATUS_LOOKS = {
  firing: { tone: "failed", icon: BellRing },
  acknowledged: { tone: "waiting", icon: UserCheck },
  resolved: { tone: "succeeded", icon: Check },
} as const satisfies Record<AlertStatus, object>;

export function AlertBadge({ status, plain }: { status: AlertStatus; plain?: boolean }) {
  const { t } = useTranslation();
  return <ToneBadge {...STATUS_LOOKS[status]} word={t(`alertStatus.${status}`)} plain={plain} />;
}

export function SilencedBadge() {
  const { t } = useTranslation();
  return <ToneBadge tone="cancelled" icon={BellOff} word={t("alert.silenced")} />;
}

const NOTIFICATION_LOOKS = {
  waiting: { tone: "waiting", icon: Clock },
  delivered: { tone: "succeeded", icon: Check },
  failed: { tone: "failed", icon: X },
} as const satisfies Record<NotificationStatus, object>;

export function NotificationBadge({ status }: { status: NotificationStatus }) {
  const { t } = useTranslation();
  return <ToneBadge {...NOTIFICATION_LOOKS[status]} word={t(`notificationStatus.${status}`)} plain />;
}

const MONITOR_LOOKS = {
  new: { tone: "cancelled", icon: CircleDashed },
  up: { tone: "succeeded", icon: Check },
  late: { tone: "waiting", icon: Clock },
  down: { tone: "failed", icon: X },
  paused: { tone: "cancelled", icon: CirclePause },
} as const satisfies Record<MonitorStatus, object>;

export function MonitorBadge({ status, plain }: { status: MonitorStatus; plain?: boolean }) {
  const { t } = useTranslation();
  return <ToneBadge {...MONITOR_LOOKS[status]} word={t(`monitorStatus.${status}`)} plain={plain} />;
}

const PING_LOOKS = {
  success: { tone: "succeeded", icon: Check },
  start: { tone: "running", icon: Play },
  fail: { tone: "failed", icon: X },
} as const satisfies Record<PingKind, object>;

export function PingBadge({ kind }: { kind: PingKind }) {
  const { t } = useTranslation();
  return <ToneBadge {...PING_LOOKS[kind]} word={t(`ping.short.${kind}`)} plain />;
}

/** Names of services that are the same in all languages. */
const KIND_NAMES: Partial<Record<ChannelKind, string>> = {
  webhook: "Webhook",
  slack: "Slack",
  teams: "Microsoft Teams",
  discord: "Discord",
  telegram: "Telegram",
  pagerduty: "PagerDuty",
  opsgenie: "Opsgenie",
  alertmanager: "Alertmanager",
};

export function channelKindName(kind: ChannelKind, t: TFunction): string {
  return KIND_NAMES[kind] ?? t(`channelKind.${kind as "dingtalk" | "feishu" | "wecom" | "email"}`);
}

/** The object of an alert, with a link to its page if it has one. */
export function SubjectLink({ alert, className }: { alert: Alert; className?: string }) {
  const { t } = useTranslation();
  const { kind, name, id } = alert.subject;
  const text = subjectName(alert, t);
  const namespace = alert.namespace === "default" ? undefined : alert.namespace;
  if (name === "") return <span className={className}>{text}</span>;
  switch (kind) {
    case "job":
      return (
        <Link
          to="/jobs/named/$name"
          params={{ name }}
          search={namedSearch(alert.namespace)}
          className={className}
        >
          {text}
        </Link>
      );
    case "workflow":
      return (
        <Link to="/workflows/$id" params={{ id: id ?? name }} search={{ namespace }} className={className}>
          {text}
        </Link>
      );
    case "schedule":
      return (
        <Link to="/schedules/$id" params={{ id: id ?? name }} search={{ namespace }} className={className}>
          {text}
        </Link>
      );
    case "service":
      return (
        <Link
          to="/services/$namespace/$name"
          params={{ namespace: alert.namespace, name }}
          className={className}
        >
          {text}
        </Link>
      );
    case "worker":
      return id ? (
        <Link to="/workers/$id" params={{ id }} className={className}>
          {text}
        </Link>
      ) : (
        <Link to="/workers" className={className}>
          {text}
        </Link>
      );
    case "queue":
      return (
        <Link to="/queues" search={{ history: name }} className={className}>
          {text}
        </Link>
      );
    case "monitor":
      return (
        <Link
          to="/alerts/monitors/$namespace/$name"
          params={{ namespace: alert.namespace, name }}
          className={className}
        >
          {text}
        </Link>
      );
  }
}
