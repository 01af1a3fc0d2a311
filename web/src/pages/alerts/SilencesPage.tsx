/** Current and future silences. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { BellOff, Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { endSilence, silencesQuery } from "../../api/alerts";
import type { Silence } from "../../api/schema";
import { useHasNamespaces } from "../../app/namespace";
import { durationText, isActive } from "../../lib/alerts";
import { useNow } from "../../lib/now";
import { usePreferences } from "../../lib/preferences";
import { formatRelative } from "../../lib/time";
import { usePageTitle } from "../../lib/title";
import { Allowed, AllowedSomewhere } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { EmptyState, ErrorBox, Loading, Page } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { RelativeTime } from "../../ui/Time";
import style from "./alerts.module.css";
import { Sections } from "./Sections";
import { SilenceDialog } from "./SilenceDialog";
import { SilencedBadge } from "./words";

const route = getRouteApi("/alerts/silences");
const COLUMNS = ["alerts", "reason", "by", "ends", "actions"] as const;

export function SilencesPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.silences"));
  const { namespace } = route.useSearch();
  const { data, error, refetch } = useQuery(silencesQuery(namespace));
  const hasNamespaces = useHasNamespaces(namespace, data?.items);
  const [creating, setCreating] = useState(false);
  return (
    <Page
      title={t("nav.alerts")}
      actions={
        <AllowedSomewhere verb="operate" on="alerts">
          <Button leftSection={<Plus size={14} />} onClick={() => setCreating(true)}>
            {t("silence.new")}
          </Button>
        </AllowedSomewhere>
      }
    >
      <Sections />
      {error && !data && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading rows={4} />}
      {data?.items.length === 0 && (
        <EmptyState icon={BellOff} title={t("silence.none")}>
          {t("silence.noneText")}
        </EmptyState>
      )}
      {data && data.items.length > 0 && (
        <div className={frame.table} role="table" aria-label={t("nav.silences")}>
          <div className={`${frame.row} ${frame.head} ${style.silence}`} role="row">
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader" className={style[column]}>
                <span className={column === "actions" ? "unseen" : undefined}>
                  {t(`silence.columns.${column}`)}
                </span>
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="silence-rows">
            {data.items.map((silence) => (
              <Row key={silence.id} silence={silence} hasNamespace={hasNamespaces} />
            ))}
          </div>
        </div>
      )}
      {creating && <SilenceDialog onClose={() => setCreating(false)} />}
    </Page>
  );
}

function Row({ silence, hasNamespace }: { silence: Silence; hasNamespace: boolean }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const now = useNow();
  const { namespace, rule, subject, starts_at: start, ends_at: end, recurrence, severity_max: max } = silence;
  return (
    <div className={`${frame.row} ${style.silence}`} role="row">
      <span role="cell" className={style.what}>
        <span className={`${style.name} clip`}>{subject ?? t("silence.anySubject")}</span>
        <span className={style.under}>
          <span className="clip">{rule ?? t("silence.anyRule")}</span>
          {max && <span>{t("silence.upTo", { severity: t(`severity.${max}`) })}</span>}
          {hasNamespace && <span className="clip">{namespace}</span>}
        </span>
        {recurrence && (
          <span className={style.under}>
            {silence.active && <SilencedBadge />}
            <span className="clip">
              {t("silence.recurs", {
                expression: recurrence.expression,
                zone: recurrence.zone ?? "UTC",
                duration: durationText(silence.duration ?? ""),
              })}
            </span>
          </span>
        )}
      </span>
      <span role="cell" className={style.reason}>
        {silence.reason}
      </span>
      <span role="cell" className={`${style.by} quiet clip`}>
        {silence.created_by}
      </span>
      <span role="cell" className={style.ends}>
        <span>
          <span className={style.caption}>{t("silence.columns.ends")} </span>
          <RelativeTime at={end} />
        </span>
        {!isActive(silence, now) && (
          <span className="quiet">
            {" "}
            {t("silence.starts", { when: formatRelative(start, language, now) })}
          </span>
        )}
      </span>
      <span role="cell" className={style.actions}>
        <End silence={silence} />
      </span>
    </div>
  );
}

function End({ silence: { id, namespace, reason } }: { silence: Silence }) {
  const { t } = useTranslation();
  const [asking, setAsking] = useState(false);
  return (
    <Allowed verb="operate" on="alerts" in={namespace}>
      <Button
        variant="default"
        aria-label={t("silence.endOf", { number: id })}
        onClick={() => setAsking(true)}
      >
        {t("silence.end")}
      </Button>
      {asking && (
        <ConfirmDialog
          title={t("silence.endTitle")}
          text={t("silence.endText")}
          confirm={t("silence.end")}
          onConfirm={() => endSilence(id)}
          done={t("silence.ended")}
          onClose={() => setAsking(false)}
        >
          <p className={style.about}>
            <q>{reason}</q>
          </p>
        </ConfirmDialog>
      )}
    </Allowed>
  );
}
