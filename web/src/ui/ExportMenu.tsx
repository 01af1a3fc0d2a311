/** Exports all rows of a filtered list, with progress. */

import { Button, Group, Menu, Modal, Progress } from "@mantine/core";
import { Download } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { saveAs } from "../lib/download";
import { EXPORT_MAX, type ExportFormat, exportList, type ExportSource } from "../lib/export";
import { notify, runAction } from "./notify";

const FORMATS = ["csv", "json"] as const;

interface Props<Row> {
  /** Begin of the file's name. */
  name: string;
  source: ExportSource<Row>;
}

export function ExportMenu<Row>({ name, source }: Props<Row>) {
  const { t } = useTranslation();
  const [rows, setRows] = useState<number | null>(null);
  const abort = useRef(new AbortController());
  const start = async (format: ExportFormat) => {
    abort.current = new AbortController();
    const { signal } = abort.current;
    setRows(0);
    await runAction(async () => {
      try {
        const { blob, rows, isCut } = await exportList(source, format, setRows, signal);
        saveAs(blob, `${name}-${new Date().toISOString().slice(0, 10)}.${format}`);
        notify(isCut ? t("export.cut", { count: rows }) : t("export.done", { count: rows }));
      } catch (error) {
        if (!signal.aborted) throw error;
      }
    });
    setRows(null);
  };
  const stop = () => abort.current.abort();
  useEffect(() => () => abort.current.abort(), []);
  return (
    <>
      <Menu position="bottom-end">
        <Menu.Target>
          <Button variant="default" leftSection={<Download size={14} />}>
            {t("export.title")}
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          {FORMATS.map((format) => (
            <Menu.Item key={format} onClick={() => void start(format)}>
              {t("export.as", { format: format.toUpperCase(), max: EXPORT_MAX })}
            </Menu.Item>
          ))}
        </Menu.Dropdown>
      </Menu>
      <Modal opened={rows !== null} onClose={stop} title={t("export.title")} size={360}>
        <p className="quiet num" role="status">
          {t("export.progress", { count: rows ?? 0 })}
        </p>
        <Progress mt="sm" value={((rows ?? 0) / EXPORT_MAX) * 100} animated aria-label={t("bulk.progress")} />
        <Group justify="flex-end" mt="md">
          <Button variant="default" onClick={stop}>
            {t("bulk.stop")}
          </Button>
        </Group>
      </Modal>
    </>
  );
}
