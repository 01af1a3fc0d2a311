/** Connection indicator and banner: whether the displayed data is live, and if not, why and how old it is. */

import { Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ArrowRightLeft, CloudOff } from "lucide-react";
import { useSyncExternalStore } from "react";
import { useTranslation } from "react-i18next";

import { feed, type FeedStatus } from "../api/feed";
import { meQuery } from "../api/queries";
import { useNow } from "../lib/now";
import { outage, visibleOutage } from "../lib/outage";
import { formatDuration } from "../lib/quantities";
import { canSomewhere } from "../lib/rights";
import style from "./Connection.module.css";

function useFeedStatus(): FeedStatus {
  return useSyncExternalStore(feed.onStatus, () => feed.status);
}

/** Returns the current time, more exact than the one-second timer: the feed may have been lost between two ticks. */
function useExactNow(): number {
  return Math.max(useNow(), Date.now());
}

export function ConnectionDot() {
  const { t } = useTranslation();
  const status = useFeedStatus();
  const hasFeed = canSomewhere(useQuery(meQuery).data, "read", "events");
  const isTakeOver = outage(status, useExactNow()) === "takeOver";
  const state = !hasFeed ? "off" : isTakeOver ? "takeOver" : status.state;
  return (
    <Tooltip label={t(`connection.${state}Hint`)} w={220}>
      <span className={style.dot} data-state={state} role="status">
        {t(`connection.${state}`)}
      </span>
    </Tooltip>
  );
}

export function ConnectionBanner() {
  const { t } = useTranslation();
  const status = useFeedStatus();
  const now = useExactNow();
  const visible = visibleOutage(status, now);
  if (visible === null) return null;
  const Icon = visible === "takeOver" ? ArrowRightLeft : CloudOff;
  return (
    <div className={style.banner} role="alert">
      <Icon size={15} aria-hidden />
      <span>
        {t(`connection.banner.${visible}`, { age: formatDuration(now - (status.lostAt ?? now)) })}
        {visible === "leaderless" && (
          <>
            {" "}
            <Link to="/servers">{t("connection.seeServers")}</Link>
          </>
        )}
      </span>
    </div>
  );
}
