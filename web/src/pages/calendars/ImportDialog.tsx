/** Reads an iCalendar file: what it gives is looked at and named in the editor before it is saved. */

import { Button, FileButton, Group, Modal } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { Upload } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/problem";
import { parseIcs } from "../../api/schedules";
import type { ImportedCalendar } from "../../api/schema";
import { ErrorBox } from "../../ui/kit";
import style from "./calendars.module.css";
import { keepDraft } from "./draft";

const SHOWN = 8;

export function ImportDialog({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [read, setRead] = useState<{ imported: ImportedCalendar; file: string } | null>(null);
  const [refusal, setRefusal] = useState<ApiError | null>(null);
  const take = async (file: File | null) => {
    if (!file) return;
    setRefusal(null);
    try {
      setRead({ imported: await parseIcs(await file.text()), file: file.name });
    } catch (error) {
      setRefusal(ApiError.from(error));
    }
  };
  const edit = ({ imported, file }: { imported: ImportedCalendar; file: string }) => {
    const name = file.replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "-") || "imported";
    keepDraft({ ...imported.spec, name });
    void navigate({ to: "/calendars/new" });
  };
  return (
    <Modal opened onClose={onClose} title={t("calendar.import")} size={460}>
      <div className={style.import}>
        <p className="quiet">{t("calendar.importText")}</p>
        <FileButton onChange={(file) => void take(file)} accept=".ics,text/calendar">
          {(props) => (
            <Button {...props} variant="default" leftSection={<Upload size={14} />}>
              {read?.file ?? t("calendar.chooseFile")}
            </Button>
          )}
        </FileButton>
        {refusal && <ErrorBox error={refusal} />}
        {read && (
          <div role="status">
            <p>{t("calendar.ignored", { count: read.imported.ignored.length })}</p>
            <ul>
              {read.imported.ignored.slice(0, SHOWN).map((event) => (
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
          <Button disabled={!read} onClick={() => read && edit(read)}>
            {t("calendar.review")}
          </Button>
        </Group>
      </div>
    </Modal>
  );
}
