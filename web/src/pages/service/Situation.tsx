/** Why a service is not fully available, or why its rollout does not continue. */

import { Link } from "@tanstack/react-router";
import { TriangleAlert } from "lucide-react";
import type { TFunction } from "i18next";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";

import type { Replica, Service } from "../../api/schema";
import { useNow } from "../../lib/now";
import { parseDuration } from "../../lib/quantities";
import { translateMessage } from "../../lib/serverMessages";
import {
  availabilityOf,
  hasHealthChecks,
  isAutomaticRollback,
  isSettling,
  replicaStateOf,
  rolloutStateOf,
  troubledReplicas,
} from "../../lib/services";
import banner from "../schedule/schedule.module.css";

/** Replicas that are listed at most. */
const SHOWN = 5;

interface Props {
  service: Service;
  replicas: readonly Replica[];
}

export function Situation({ service, replicas }: Props) {
  const { t } = useTranslation();
  const availability = availabilityOf(service);
  const rollout = useRolloutReason(service);
  const degraded = availability === "degraded" || availability === "none";
  const isBad = availability === "none" || service.rollout.status === "failed";
  const problem = service.scaling_problem;
  if (!rollout && !degraded && !problem && availability !== "deleting") return null;
  return (
    <section
      className={banner.banner}
      data-bad={isBad || undefined}
      aria-label={t("service.why")}
      data-testid="service-why"
    >
      <TriangleAlert size={16} aria-hidden />
      <div>
        {availability === "deleting" && (
          <p>{t("service.deletingText", { count: service.counts.stopping + service.counts.live })}</p>
        )}
        {rollout && <p>{rollout}</p>}
        {problem && (
          <p>{`${t("service.scalingProblem")}${t("common.colon")}${translateMessage(problem, t)}`}</p>
        )}
        {degraded && <Degraded service={service} replicas={replicas} />}
      </div>
    </section>
  );
}

/** Returns why the rollout failed or does not continue; null if it does. */
function useRolloutReason({ rollout }: Service): string | null {
  const { t } = useTranslation();
  const { revision, reason } = rollout;
  const state = rolloutStateOf(rollout);
  if (state === "failed") {
    const words = reason ? translateMessage(reason, t) : null;
    const failed = t("service.rolloutFailed", { revision });
    return words ? `${failed}${t("common.colon")}${words}` : failed;
  }
  if (state === "paused") return t("service.rolloutPaused", { revision });
  if (state === "awaiting_promotion") return t("service.awaitsPromotion", { revision });
  if (!isAutomaticRollback(rollout)) return null;
  return `${t("service.automaticRollback")}${t("common.colon")}${translateMessage(reason ?? "", t)}`;
}

function Degraded({ service, replicas }: Props) {
  const { t } = useTranslation();
  const now = useNow();
  const { counts, replicas: desired, spec } = service;
  const hasChecks = hasHealthChecks(spec);
  const troubled = troubledReplicas(replicas, hasChecks);
  const minHealthy = spec?.min_healthy ?? "10s";
  const minHealthyMs = parseDuration(minHealthy) ?? 0;
  const settling = replicas.filter(
    (replica) => replicaStateOf(replica, hasChecks) === "healthy" && isSettling(replica, minHealthyMs, now),
  ).length;
  return (
    <>
      <p>
        <strong>{t("service.degraded", { available: counts.available, count: desired })}</strong>
      </p>
      <ul>
        {troubled.slice(0, SHOWN).map(({ replica, state }) => (
          <li key={replica.job}>
            <ReplicaLink replica={replica}>
              {t("service.replicaNumber", { replica: replica.replica })}
            </ReplicaLink>
            <span>
              {t(`replicaState.${state}`)}
              {noteOf(replica, t)}
            </span>
          </li>
        ))}
      </ul>
      {troubled.length > SHOWN && (
        <p className="quiet">{t("why.more", { count: troubled.length - SHOWN })}</p>
      )}
      {settling > 0 && (
        <p className="quiet">{t("service.settling", { count: settling, length: minHealthy })}</p>
      )}
    </>
  );
}

/** Returns the result of the failed check, or of the last execution, with a separator. */
function noteOf({ health, last_exit: lastExit }: Replica, t: TFunction): string {
  if (health?.detail) return `${t("common.colon")}${translateMessage(health.detail, t)}`;
  if (!lastExit) return "";
  return `${t("common.listSeparator")}${t("service.lastExit", { result: translateMessage(lastExit, t) })}`;
}

function ReplicaLink({ replica, children }: { replica: Replica; children: ReactNode }) {
  return (
    <Link to="/jobs/$id" params={{ id: replica.job }}>
      {children}
    </Link>
  );
}
