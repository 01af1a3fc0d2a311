/** Schedule editor: a form and a file side by side, with a preview of the next firings. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { Check } from "lucide-react";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import {
  checkSchedule,
  contradictionsOf,
  saveSchedule,
  scheduleDefaults,
  scheduleQuery,
} from "../../api/schedules";
import type { Schedule, ScheduleSpec, Warning } from "../../api/schema";
import { omitDefaults, toYaml } from "../../lib/spec";
import { usePageTitle } from "../../lib/title";
import { notify } from "../../ui/notify";
import editor from "../../ui/editor/editor.module.css";
import { FileCard } from "../../ui/editor/FileCard";
import { useDraft } from "../../ui/editor/useDraft";
import { Card, Loading, Page, ErrorBox } from "../../ui/kit";
import { useSample } from "../../ui/useSample";
import { Crumbs } from "../schedule/SchedulePage";
import { LivePreview } from "./LivePreview";
import { ScheduleForm } from "./ScheduleForm";
import style from "./edit.module.css";

const SAMPLE = `name: morning-report
timing:
  rules:
    - cron: 0 9 * * mon-fri
  zone: ZONE
job:
  run:
    process:
      script: |
        echo "the figures since $BELFRY_INTERVAL_START"
`;

const newRoute = getRouteApi("/schedules/new");
const editRoute = getRouteApi("/schedules/$id/edit");

/** Returns the spec of a schedule as YAML, without server defaults. */
function useSource(id: string | undefined) {
  const { data, error } = useQuery({ ...scheduleQuery(id ?? ""), enabled: id !== undefined });
  const text = useQuery({
    queryKey: ["schedule", data?.id, "text", data?.version],
    enabled: Boolean(data?.spec),
    queryFn: async () => {
      const spec = data?.spec as ScheduleSpec;
      return toYaml(omitDefaults(spec, await scheduleDefaults(spec), ["name", "namespace", "timing"]));
    },
    staleTime: Infinity,
  });
  return { schedule: data, text: text.data, error: error ?? text.error };
}

export function NewSchedulePage() {
  const { t } = useTranslation();
  const sample = useSample(SAMPLE, "change", "schedules");
  const { from } = newRoute.useSearch();
  usePageTitle(t("schedule.new"));
  const source = useSource(from);
  const title = <Crumbs name={t("schedule.new")} />;
  if (from && source.error) return <Page title={title}>{<ErrorBox error={source.error} />}</Page>;
  if (from && source.text === undefined) return <Page title={title}>{<Loading rows={8} />}</Page>;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const start = source.text?.replace(/^name: .*$/m, (line) => `${line}-copy`) ?? sample.replace("ZONE", zone);
  return <ScheduleEditor key={from} start={start} schedule={null} title={title} />;
}

export function EditSchedulePage() {
  const { t } = useTranslation();
  const { id } = editRoute.useParams();
  const { schedule, text, error } = useSource(id);
  // The edit is based on the version that was loaded first.
  const [original, setOriginal] = useState<{ schedule: Schedule; text: string } | null>(null);
  if (!original && schedule && text !== undefined) setOriginal({ schedule, text });
  const name = t("schedule.editOf", { name: schedule?.name ?? "…" });
  usePageTitle(name);
  const title = <Crumbs name={name} />;
  if (error && !original) return <Page title={title}>{<ErrorBox error={error} />}</Page>;
  if (!original) return <Page title={title}>{<Loading rows={8} />}</Page>;
  return <ScheduleEditor start={original.text} schedule={original.schedule} title={title} />;
}

interface ComposerProps {
  start: string;
  /** The edited schedule; null for a new one. */
  schedule: Schedule | null;
  title: React.ReactNode;
}

function ScheduleEditor({ start, schedule, title }: ComposerProps) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [contradictions, setContradictions] = useState<readonly Warning[]>([]);
  const check = useRef(async (spec: ScheduleSpec, signal: AbortSignal) => {
    await checkSchedule(spec, signal);
    setContradictions(await contradictionsOf(spec, signal));
  }).current;
  const draft = useDraft<ScheduleSpec>(start, check);
  const [busy, setBusy] = useState(false);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const { spec } = draft;
  const save = async () => {
    if (!spec) return;
    setBusy(true);
    setApiError(null);
    try {
      const saved = await saveSchedule(spec, schedule?.version ?? null);
      notify(t("schedule.saved", { name: saved.name }));
      void navigate({ to: "/schedules/$id", params: { id: saved.id } });
    } catch (error) {
      setApiError(ApiError.from(error));
      setBusy(false);
    }
  };
  return (
    <Page
      title={title}
      actions={
        <Button
          leftSection={<Check size={14} />}
          onClick={() => void save()}
          loading={busy}
          disabled={!draft.isValid}
          data-testid="save"
        >
          {schedule ? t("common.save") : t("schedule.create")}
        </Button>
      }
    >
      {apiError && <ErrorBox error={apiError} />}
      <div className={editor.columns}>
        <Card title={t("submit.form")} className={editor.card}>
          {spec ? (
            <ScheduleForm
              spec={spec}
              set={draft.set}
              fields={draft.apiError?.fields ?? []}
              contradictions={draft.apiError ? [] : contradictions}
              isNameFixed={schedule !== null}
            />
          ) : (
            <p className="quiet">{t("submit.brokenText")}</p>
          )}
        </Card>
        <div className={style.right}>
          <FileCard
            title={t("schedule.file")}
            schema="ScheduleSpec"
            draft={draft}
            validText={t("schedule.fine")}
          />
          <LivePreview spec={spec} />
        </div>
      </div>
    </Page>
  );
}
