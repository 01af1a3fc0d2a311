/** Editor of a calendar. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { Check } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import { calendarQuery, checkCalendar, saveCalendar } from "../../api/schedules";
import type { CalendarSpec } from "../../api/schema";
import { toYaml } from "../../lib/spec";
import { usePageTitle } from "../../lib/title";
import { notify } from "../../ui/notify";
import { FileCard } from "../../ui/editor/FileCard";
import { useDraft } from "../../ui/editor/useDraft";
import { Card, Loading, Page, ErrorBox } from "../../ui/kit";
import { useSample } from "../../ui/useSample";
import { CalendarCrumbs } from "./CalendarPage";
import style from "./calendars.module.css";
import { importedDraft } from "./importedDraft";

const SAMPLE = `name: our-workdays
description: Working days, without our own holidays.
steps:
  - include: { weekdays: [monday, tuesday, wednesday, thursday, friday] }
  - exclude: { yearly: [01-01, 12-25] }
  - exclude: { dates: [2026-12-24..2026-12-31] }
`;

const editRoute = getRouteApi("/calendars/$name/edit");

export function NewCalendarPage() {
  const { t } = useTranslation();
  const sample = useSample(SAMPLE, "change", "calendars");
  usePageTitle(t("calendar.new"));
  const imported = importedDraft();
  return (
    <CalendarEditor start={imported ? toYaml(imported) : sample} version={null} title={t("calendar.new")} />
  );
}

export function EditCalendarPage() {
  const { t } = useTranslation();
  const { name } = editRoute.useParams();
  const { namespace } = editRoute.useSearch();
  const { data, error } = useQuery(calendarQuery(name, namespace));
  // The edit is based on the version that was loaded first.
  const [original, setOriginal] = useState<{ text: string; version: number } | null>(null);
  if (!original && data?.spec) setOriginal({ text: toYaml(data.spec), version: data.version });
  const title = t("schedule.editOf", { name });
  usePageTitle(title);
  if (original) return <CalendarEditor start={original.text} version={original.version} title={title} />;
  return (
    <Page title={<CalendarCrumbs name={title} />}>{error ? <ErrorBox error={error} /> : <Loading />}</Page>
  );
}

function CalendarEditor({ start, version, title }: { start: string; version: number | null; title: string }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const draft = useDraft<CalendarSpec>(start, checkCalendar);
  const [busy, setBusy] = useState(false);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const { spec } = draft;
  const save = async () => {
    if (!spec) return;
    setBusy(true);
    setApiError(null);
    try {
      await saveCalendar(spec, version);
      notify(t("schedule.saved", { name: spec.name }));
      void navigate({
        to: "/calendars/$name",
        params: { name: spec.name },
        search: { namespace: spec.namespace },
      });
    } catch (error) {
      setApiError(ApiError.from(error));
      setBusy(false);
    }
  };
  return (
    <Page
      title={<CalendarCrumbs name={title} />}
      actions={
        <Button
          leftSection={<Check size={14} />}
          onClick={() => void save()}
          loading={busy}
          disabled={!draft.isValid}
          data-testid="save"
        >
          {version === null ? t("schedule.create") : t("common.save")}
        </Button>
      }
    >
      {apiError && <ErrorBox error={apiError} />}
      <div className={style.compose}>
        <FileCard
          title={t("calendar.file")}
          schema="CalendarSpec"
          draft={draft}
          validText={t("calendar.fine")}
        />
        <Card title={t("calendar.howTitle")}>
          <p>{t("calendar.how")}</p>
          <dl className={style.help}>
            {(["weekdays", "dates", "yearly", "calendar", "all"] as const).map((kind) => (
              <div key={kind}>
                <dt>
                  <code>{kind}</code>
                </dt>
                <dd>{t(`daySet.${kind}`)}</dd>
              </div>
            ))}
          </dl>
        </Card>
      </div>
    </Page>
  );
}
