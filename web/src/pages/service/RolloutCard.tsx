/** Rollout of the current revision: progress, status and times. */

import { useTranslation } from "react-i18next";

import type { Service } from "../../api/schema";
import { rolloutStateOf } from "../../lib/services";
import { Card, KeyValueList, Meter } from "../../ui/kit";
import { RelativeTime } from "../../ui/Time";
import { RolloutBadge } from "../services/badges";
import style from "./service.module.css";

export function RolloutCard({ service }: { service: Service }) {
  const { t } = useTranslation();
  const { rollout, counts, replicas, stable_revision: stable, spec } = service;
  const state = rolloutStateOf(rollout);
  const isEnded = state === "completed" || state === "failed";
  const canaries = spec?.update?.canaries ?? 0;
  return (
    <Card title={t("service.rollout")} aside={<RolloutBadge rollout={rollout} plain />}>
      <div className={style.progress} data-testid="rollout">
        <Meter
          label={t("service.updated")}
          used={counts.updated_available}
          all={replicas}
          shown={t("service.updatedOf", { updated: counts.updated_available, replicas })}
          isProgress
        />
      </div>
      <KeyValueList
        rows={[
          [
            t("service.revision"),
            <span key="" className="num">
              {rollout.revision}
            </span>,
          ],
          stable != null &&
            stable !== rollout.revision && [
              t("service.stableRevision"),
              <span key="" className="num">
                {stable}
              </span>,
            ],
          canaries > 0 &&
            !isEnded && [
              t("service.canaries"),
              rollout.promoted ? t("service.canariesPromoted") : canaries.toLocaleString(),
            ],
          [t("job.details.started"), <RelativeTime key="" at={rollout.started_at} />],
          isEnded
            ? [t("job.details.finished"), <RelativeTime key="" at={rollout.ended_at} />]
            : [t("service.progressed"), <RelativeTime key="" at={rollout.progressed_at} />],
        ]}
      />
    </Card>
  );
}
