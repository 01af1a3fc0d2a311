/** Imports an iCalendar file; the result is reviewed and named in the editor before it is saved. */

import { Button, FileButton, Group, Modal } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { Upload } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import { parseIcs } from "../../api/schedules";
import type { ImportedCalendar } from "../../api/schema";
import { ErrorBox } from "../../ui/kit";
import style from "./calendars.module.css";
import { setImportedDraft } from "./importedDraft";

const IGNORED_SHOWN = 8;

export function ImportDialog({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [result, setResult] = useState<{ imported: ImportedCalendar; file: string } | null>(null);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const importFile = async (file: File | null) => {
    if (!file) return;
    setApiError(null);
    try {
      setResult({ imported: await parseIcs(await file.text()), file: file.name });
    } catch (error) {
      setApiError(ApiError.from(error));
    }
  };
  const edit = ({ imported, file }: { imported: ImportedCalendar; file: string }) => {
    const name = file.replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "-") || "imported";
    setImportedDraft({ ...imported.spec, name });
    void navigate({ to: "/calendars/new" });
  };
  return (
    <Modal opened onClose={onClose} title={t("calendar.import")} size={460}>
      <div className={style.import}>
        <p className="quiet">{t("calendar.importText")}</p>
        <FileButton onChange={(file) => void importFile(file)} accept=".ics,text/calendar">
          {(props) => (
            <Button {...props} variant="default" leftSection={<Upload size={14} />}>
              {result?.file ?? t("calendar.chooseFile")}
            </Button>
          )}
        </FileButton>
        {apiError && <ErrorBox error={apiError} />}
        {result && (
          <div role="status">
            <p>{t("calendar.ignored", { count: result.imported.ignored.length })}</p>
            <ul>
              {result.imported.ignored.slice(0, IGNORED_SHOWN).map((event) => (
                <li key={event.line} className="quiet">
                  {t("submit.line", { line: event.line, message: event.reason })}
                </li>
              ))}
            </ul>
          </div>
        )}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            {t("common.back")}
          </Button>
          <Button disabled={!result} onClick={() => result && edit(result)}>
            {t("calendar.review")}
          </Button>
        </Group>
      </div>
    </Modal>
  );
}
