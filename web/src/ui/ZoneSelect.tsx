/** Chooses the zone in which all pages show times. */

import { Select } from "@mantine/core";
import { useTranslation } from "react-i18next";

import { setPreferences, usePreferences } from "../lib/preferences";
import { zoneName } from "../lib/time";

const ZONES = Intl.supportedValuesOf("timeZone").filter((zone) => zone !== "UTC");

/** `label`: show the label, which otherwise is for screen readers only. */
export function ZoneSelect({ label }: { label?: boolean }) {
  const { t } = useTranslation();
  const { zoneChoice } = usePreferences();
  return (
    <Select
      label={label && t("settings.zone")}
      aria-label={label ? undefined : t("settings.zone")}
      searchable
      allowDeselect={false}
      w={260}
      value={zoneChoice}
      onChange={(value) => value && setPreferences({ zone: value })}
      // A list outside of a popover would close it.
      comboboxProps={{ withinPortal: !label }}
      data={[
        { value: "schedule", label: t("settings.scheduleZone") },
        { value: "local", label: t("settings.localZone", { zone: zoneName("local") }) },
        { value: "UTC", label: "UTC" },
        ...ZONES,
      ]}
    />
  );
}
