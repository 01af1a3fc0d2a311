/** A table of notifications, with their attempts and errors. */

import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { Notification } from "../../api/schema";
import { useNow } from "../../lib/now";
import { usePreferences } from "../../lib/preferences";
import { formatRelative } from "../../lib/time";
import frame from "../../ui/list.module.css";
import { RelativeTime } from "../../ui/Time";
import style from "./alerts.module.css";
import { NotificationBadge } from "./words";

const COLUMNS = ["time", "status", "channel", "alerts", "attempts", "error"] as const;

interface Props {
  notifications: readonly Notification[];
  /** The table is in a card, which has a border. */
  inCard?: boolean;
}

export function NotificationTable({ notifications, inCard }: Props) {
  const { t } = useTranslation();
  return (
    <div className={inCard ? style.inner : frame.table} role="table" aria-label={t("nav.notifications")}>
      <div className={`${frame.row} ${frame.head} ${style.notification}`} role="row">
        {COLUMNS.map((column) => (
          <span key={column} role="columnheader" className={style[column]}>
            {t(`notification.columns.${column}`)}
          </span>
        ))}
      </div>
      <div role="rowgroup" data-testid="notification-rows">
        {notifications.map((notification) => (
          <Row key={notification.id} notification={notification} />
        ))}
      </div>
    </div>
  );
}

function Row({ notification }: { notification: Notification }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const now = useNow();
  const { namespace, rule, channel, alerts, total, status, attempts, error } = notification;
  const next = status === "waiting" && attempts > 0 ? notification.next_attempt_at : null;
  return (
    <div className={`${frame.row} ${style.notification}`} role="row" data-status={status}>
      <span role="cell" className={`${style.time} quiet`}>
        <RelativeTime at={notification.created_at} light />
      </span>
      <span role="cell">
        <NotificationBadge status={status} />
      </span>
      <span role="cell" className={style.what}>
        <span className="clip">{channel}</span>
        <span className={style.under}>
          <Link to="/alerts/notifications" search={{ namespace, rule }} className="clip">
            {rule}
          </Link>
          {namespace !== "default" && <span className="clip">{namespace}</span>}
        </span>
      </span>
      <span role="cell" className={style.alerts}>
        {alerts.length === 1 ? (
          <Link to="/alerts/$id" params={{ id: String(alerts[0]) }} className={style.link}>
            {t("notification.alerts", { count: total })}
          </Link>
        ) : (
          <Link
            to="/alerts"
            search={{ namespace, rule, status: "firing,acknowledged,resolved" }}
            className={style.link}
          >
            {t("notification.alerts", { count: total })}
          </Link>
        )}
      </span>
      <span role="cell" className={`${style.attempts} num`}>
        <span className={style.caption}>{t("notification.columns.attempts")} </span>
        {attempts.toLocaleString(language)}
      </span>
      <span role="cell" className={style.error}>
        {error && <span>{error}</span>}
        {!error && !next && <span className="quiet">–</span>}
        {next && (
          <span className="quiet">
            {t("notification.next", { when: formatRelative(next, language, now) })}
          </span>
        )}
      </span>
    </div>
  );
}
