/** The revisions of a service: cause, time, changes to the earlier one, and rollback. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight, History } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import type { Service, ServiceRevision } from "../../api/schema";
import { revisionsQuery } from "../../api/services";
import { Allowed } from "../../ui/Allowed";
import { ErrorBox, Loading } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { AbsoluteTime } from "../../ui/Time";
import { Differences } from "../compare/Differences";
import { RollbackDialog } from "./dialogs";
import style from "./service.module.css";

const COLUMNS = ["number", "cause", "actor", "created", "actions"] as const;

interface Props {
  service: Service;
  /** Number of the revision whose changes are shown. */
  shown: number | undefined;
  onShow: (revision: number | undefined) => void;
}

export function Revisions({ service, shown, onShow }: Props) {
  const { t } = useTranslation();
  const { data, error, refetch } = useQuery(revisionsQuery(service.id));
  const [target, setTarget] = useState<number | null>(null);
  if (error && !data) return <ErrorBox error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading rows={4} />;
  return (
    <>
      <div className={frame.table} role="table" aria-label={t("service.tabs.revisions")}>
        <div className={`${frame.row} ${frame.head} ${style.revisionRow}`} role="row" data-head>
          {COLUMNS.map((column) => (
            <span key={column} role="columnheader">
              {column === "actions" ? (
                <span className="unseen">{t("workflow.columns.actions")}</span>
              ) : (
                t(`service.revisionColumns.${column}`)
              )}
            </span>
          ))}
        </div>
        <div role="rowgroup" data-testid="revision-rows">
          {data.items.map((revision, i) => (
            <Row
              key={revision.number}
              service={service}
              revision={revision}
              before={data.items[i + 1]}
              isShown={revision.number === shown}
              onShow={() => onShow(revision.number === shown ? undefined : revision.number)}
              onRollback={() => setTarget(revision.number)}
            />
          ))}
        </div>
      </div>
      {target !== null && (
        <RollbackDialog service={service} revision={target} onClose={() => setTarget(null)} />
      )}
    </>
  );
}

interface RowProps {
  service: Service;
  revision: ServiceRevision;
  /** The revision before this one, if it is kept. */
  before: ServiceRevision | undefined;
  isShown: boolean;
  onShow: () => void;
  onRollback: () => void;
}

function Row({ service, revision, before, isShown, onShow, onRollback }: RowProps) {
  const { t } = useTranslation();
  const { number, cause, rollback_to: target, actor, created_at: at } = revision;
  const isCurrent = number === service.rollout.revision;
  const Icon = isShown ? ChevronDown : ChevronRight;
  return (
    <>
      <div className={`${frame.row} ${style.revisionRow}`} role="row">
        <span role="cell" className={style.revisionNumber}>
          <button type="button" aria-expanded={isShown} onClick={onShow}>
            <Icon size={13} aria-hidden />
            {t("service.revisionNumber", { revision: number })}
          </button>
          {isCurrent && <span className={style.mark}>{t("service.current")}</span>}
          {number === service.stable_revision && <span className={style.mark}>{t("service.stable")}</span>}
        </span>
        <span role="cell">
          {t(`revisionCause.${cause}`)}
          {target != null && (
            <span className="quiet"> · {t("service.revisionNumber", { revision: target })}</span>
          )}
        </span>
        <span role="cell" className="clip">
          {actor ?? <span className="quiet">{t("service.automatic")}</span>}
        </span>
        <span role="cell" className="quiet">
          <AbsoluteTime at={at} />
        </span>
        <span role="cell" className={style.act}>
          {!isCurrent && !service.deleting && (
            <Allowed verb="operate" on="services" in={service.namespace}>
              <Button
                variant="default"
                size="compact-xs"
                leftSection={<History size={12} />}
                aria-label={t("service.rollbackTo", { revision: number })}
                onClick={onRollback}
              >
                {t("service.rollback")}
              </Button>
            </Allowed>
          )}
        </span>
      </div>
      {isShown && (
        <div role="row">
          <div role="cell" className={style.changes}>
            {before ? (
              <Differences
                title={t("service.changesSince", { revision: before.number })}
                same={t("service.sameSpec")}
                values={[before.spec, revision.spec]}
                heads={[
                  t("service.revisionNumber", { revision: before.number }),
                  t("service.revisionNumber", { revision: number }),
                ]}
              />
            ) : (
              <p className="quiet">{t("service.noEarlier")}</p>
            )}
          </div>
        </div>
      )}
    </>
  );
}
