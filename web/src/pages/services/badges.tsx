/** Badges of the availability of a service, of its rollout, and of its replicas. */

import {
  Check,
  CircleDashed,
  CirclePause,
  CircleSlash,
  Clock,
  HeartCrack,
  LoaderCircle,
  type LucideIcon,
  OctagonX,
  RotateCw,
  Trash2,
  TriangleAlert,
  UserCheck,
  X,
} from "lucide-react";
import { useTranslation } from "react-i18next";

import type { HealthStatus, JobStatus, Rollout, Service } from "../../api/schema";
import {
  type Availability,
  availabilityOf,
  type ReplicaState,
  type RolloutState,
  rolloutStateOf,
} from "../../lib/services";
import { ToneBadge } from "../../ui/Status";
import style from "./services.module.css";

interface Look {
  tone: JobStatus;
  icon: LucideIcon;
  spin?: boolean;
}

const AVAILABILITY_LOOKS: Record<Availability, Look> = {
  available: { tone: "succeeded", icon: Check },
  degraded: { tone: "retrying", icon: TriangleAlert },
  none: { tone: "failed", icon: X },
  scaledToZero: { tone: "cancelled", icon: CircleSlash },
  deleting: { tone: "cancelled", icon: Trash2 },
};

/** Available and desired replicas, and what that means. */
export function AvailabilityBadge(props: {
  service: Pick<Service, "replicas" | "counts" | "deleting">;
  plain?: boolean;
}) {
  const { t } = useTranslation();
  const { service, plain } = props;
  const availability = availabilityOf(service);
  return (
    <span className={style.availability} data-testid="availability">
      <span className="num">
        {service.counts.available}/{service.replicas}
      </span>
      <ToneBadge
        {...AVAILABILITY_LOOKS[availability]}
        word={t(`availability.${availability}`)}
        plain={plain}
      />
    </span>
  );
}

const ROLLOUT_LOOKS: Record<RolloutState, Look> = {
  progressing: { tone: "running", icon: LoaderCircle, spin: true },
  paused: { tone: "waiting", icon: CirclePause },
  awaiting_promotion: { tone: "waiting", icon: UserCheck },
  completed: { tone: "succeeded", icon: Check },
  failed: { tone: "failed", icon: X },
};

export function RolloutBadge({ rollout, plain }: { rollout: Rollout; plain?: boolean }) {
  const { t } = useTranslation();
  const state = rolloutStateOf(rollout);
  return <ToneBadge {...ROLLOUT_LOOKS[state]} word={t(`rolloutStatus.${state}`)} plain={plain} />;
}

const REPLICA_LOOKS: Record<ReplicaState, Look> = {
  waiting: { tone: "waiting", icon: Clock },
  starting: { tone: "running", icon: CircleDashed },
  healthy: { tone: "succeeded", icon: Check },
  unhealthy: { tone: "failed", icon: HeartCrack },
  restarting: { tone: "retrying", icon: RotateCw },
  stopping: { tone: "cancelled", icon: OctagonX },
};

export function ReplicaBadge({ state }: { state: ReplicaState }) {
  const { t } = useTranslation();
  return <ToneBadge {...REPLICA_LOOKS[state]} word={t(`replicaState.${state}`)} plain />;
}

/** Result of the health checks of an execution. */
export function HealthBadge({ status }: { status: HealthStatus }) {
  const { t } = useTranslation();
  return <ToneBadge {...REPLICA_LOOKS[status]} word={t(`healthStatus.${status}`)} plain />;
}
