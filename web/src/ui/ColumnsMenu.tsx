/** Chooses the columns of a table. The choice is stored in this browser. */

import { Button, Checkbox, Popover, Stack } from "@mantine/core";
import { Columns3 } from "lucide-react";
import { useTranslation } from "react-i18next";

import { setColumnChoice, usePreferences } from "../lib/preferences";

interface Props {
  /** Key of the table. */
  table: string;
  columns: ReadonlyArray<{ name: string; label: string; isDefault: boolean }>;
}

export function ColumnsMenu({ table, columns }: Props) {
  const { t } = useTranslation();
  const choice = usePreferences().columns[table] ?? {};
  return (
    <Popover position="bottom-end" shadow="md" trapFocus>
      <Popover.Target>
        <Button variant="default" leftSection={<Columns3 size={14} />} visibleFrom="sm">
          {t("columns.title")}
        </Button>
      </Popover.Target>
      <Popover.Dropdown aria-label={t("columns.title")}>
        <Stack gap={8}>
          {columns.map(({ name, label, isDefault }) => (
            <Checkbox
              key={name}
              label={label}
              checked={choice[name] ?? isDefault}
              onChange={(event) => setColumnChoice(table, { ...choice, [name]: event.currentTarget.checked })}
            />
          ))}
          <Button
            variant="subtle"
            size="compact-xs"
            disabled={Object.keys(choice).length === 0}
            onClick={() => setColumnChoice(table, {})}
          >
            {t("columns.reset")}
          </Button>
        </Stack>
      </Popover.Dropdown>
    </Popover>
  );
}
