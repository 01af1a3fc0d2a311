/** Whether what is shown is live, and if not, how old it is. */

import { Tooltip } from "@mantine/core";
import { CloudOff } from "lucide-react";
import { useSyncExternalStore } from "react";
import { useTranslation } from "react-i18next";

import { feed, type FeedStatus } from "../api/feed";
import { useNow } from "../lib/now";
import { formatDuration } from "../lib/quantities";
import style from "./Connection.module.css";

function useFeedStatus(): FeedStatus {
  return useSyncExternalStore(feed.onStatus, () => feed.status);
}

export function ConnectionDot() {
  const { t } = useTranslation();
  const { state } = useFeedStatus();
  return (
    <Tooltip label={t(`connection.${state}Hint`)} w={220}>
      <span className={style.dot} data-state={state} role="status">
        {t(`connection.${state}`)}
      </span>
    </Tooltip>
  );
}

/** A moment's silence is not worth a word. */
const PATIENCE_MS = 1_500;

export function ConnectionBanner() {
  const { t } = useTranslation();
  const { state, lostAt } = useFeedStatus();
  const now = useNow();
  if (state !== "lost" || lostAt === null || now - lostAt < PATIENCE_MS) return null;
  return (
    <div className={style.banner} role="alert">
      <CloudOff size={15} aria-hidden />
      <span>{t("connection.banner", { age: formatDuration(now - lostAt) })}</span>
    </div>
  );
}
