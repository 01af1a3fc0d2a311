/** Toggles the notification at the end of a job or run. */

import { ActionIcon, Tooltip } from "@mantine/core";
import { Bell, BellRing } from "lucide-react";
import { useTranslation } from "react-i18next";

import { unwatchEnd, useIsWatched, watchEnd } from "../app/endNotifications";
import type { Watched } from "../lib/watches";

export function WatchButton({ target }: { target: Watched }) {
  const { t } = useTranslation();
  const isWatched = useIsWatched(target.id);
  const Icon = isWatched ? BellRing : Bell;
  return (
    <Tooltip label={t("watch.label")}>
      <ActionIcon
        variant={isWatched ? "filled" : "default"}
        aria-label={t("watch.label")}
        aria-pressed={isWatched}
        onClick={() => (isWatched ? unwatchEnd(target.id) : void watchEnd(target))}
      >
        <Icon size={15} />
      </ActionIcon>
    </Tooltip>
  );
}
