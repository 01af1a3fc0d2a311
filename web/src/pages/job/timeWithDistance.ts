/** Times in sentences. */

import { useTranslation } from "react-i18next";

import { useNow } from "../../lib/now";
import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import { formatExact } from "../../lib/time";

/** Returns a function that formats a time with its distance: `14:02:11 (in 3m 20s)`. */
export function useTimeWithDistance(): (at: string) => string {
  const now = useNow();
  const { language, zone } = usePreferences();
  const { t } = useTranslation();
  return (at) => {
    const ms = Date.parse(at) - now;
    const length = formatDuration(Math.round(Math.abs(ms) / 1_000) * 1_000);
    return `${formatExact(at, language, zone)} (${ms > 0 ? t("why.in", { length }) : t("why.ago", { length })})`;
  };
}
