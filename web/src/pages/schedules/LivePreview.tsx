/** Preview of the firings of a draft. */

import { useQuery, keepPreviousData } from "@tanstack/react-query";
import { useDebouncedValue } from "@mantine/hooks";
import { useTranslation } from "react-i18next";

import { previewTiming } from "../../api/schedules";
import type { ScheduleSpec } from "../../api/schema";
import { usePreferences, useScheduleZone } from "../../lib/preferences";
import { zoneName } from "../../lib/time";
import { Card, Loading } from "../../ui/kit";
import { FiringList } from "../schedule/NextFirings";
import style from "./edit.module.css";

const FIRINGS_SHOWN = 8;

export function LivePreview({ spec }: { spec: ScheduleSpec | null }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const timing = spec && JSON.stringify(spec.timing ?? { rules: [] });
  const [debounced] = useDebouncedValue({ timing, name: spec?.name, namespace: spec?.namespace }, 250);
  const { data, error, isPlaceholderData } = useQuery({
    queryKey: ["preview", debounced],
    enabled: debounced.timing !== null,
    queryFn: ({ signal }) => {
      const draft = { timing: JSON.parse(debounced.timing ?? "{}") as object, ...nonEmptyNames(debounced) };
      return previewTiming(draft, FIRINGS_SHOWN, signal);
    },
    placeholderData: keepPreviousData,
    retry: false,
    staleTime: 30_000,
  });
  useScheduleZone(data?.zone);
  return (
    <Card title={t("schedule.nextTimes")} aside={zoneName(zone)} className={style.preview}>
      {error ? (
        <p className="quiet">{t("schedule.previewBroken")}</p>
      ) : data ? (
        <div data-stale={isPlaceholderData || undefined}>
          <p className={style.words} data-testid="words">
            {data.description[language]}
          </p>
          <FiringList preview={data} none={t("schedule.noneNext")} />
        </div>
      ) : (
        <Loading rows={4} />
      )}
    </Card>
  );
}

/** Omits empty names: the user may still be typing. */
function nonEmptyNames({ name, namespace }: { name?: string; namespace?: string }) {
  return { ...(name ? { name } : {}), ...(namespace ? { namespace } : {}) };
}
