/** Service editor: a form and a file side by side, with the effect of a save. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Check, ChevronRight } from "lucide-react";
import { type ReactNode, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import type { AppliedService, Service, ServiceSpec } from "../../api/schema";
import { checkService, saveService, serviceDefaults, serviceQuery } from "../../api/services";
import { editableSpec, saveEffect } from "../../lib/services";
import { omitDefaults, toYaml } from "../../lib/spec";
import { usePageTitle } from "../../lib/title";
import editor from "../../ui/editor/editor.module.css";
import { FileCard } from "../../ui/editor/FileCard";
import { useDraft } from "../../ui/editor/useDraft";
import { Card, ErrorBox, Loading, Page } from "../../ui/kit";
import { notify } from "../../ui/notify";
import { useSample } from "../../ui/useSample";
import crumbs from "../schedule/schedule.module.css";
import style from "../schedules/edit.module.css";
import { ServiceForm } from "./ServiceForm";

const SAMPLE = `name: web
replicas: 2
job:
  run:
    process:
      script: |
        exec sleep infinity
`;

const newRoute = getRouteApi("/services/new");
const editRoute = getRouteApi("/services/$namespace/$name/edit");

/** Returns a service and its spec as YAML, without server defaults. */
function useSource(name: string | undefined, namespace?: string) {
  const { data, error } = useQuery({ ...serviceQuery(name ?? "", namespace), enabled: name !== undefined });
  const text = useQuery({
    queryKey: ["service-text", data?.id, data?.version],
    enabled: Boolean(data?.spec),
    queryFn: async () => {
      const { spec, replicas } = data as Service & { spec: ServiceSpec };
      const defaults = await serviceDefaults(spec);
      return toYaml(omitDefaults(editableSpec(spec, replicas), defaults, ["name", "namespace", "replicas"]));
    },
    staleTime: Infinity,
  });
  return { service: data, text: text.data, error: error ?? text.error };
}

export function NewServicePage() {
  const { t } = useTranslation();
  const sample = useSample(SAMPLE, "change", "services");
  const { from } = newRoute.useSearch();
  const source = useSource(from);
  usePageTitle(t("service.new"));
  const title = <Crumbs name={t("service.new")} />;
  if (from && source.error) return <Page title={title}>{<ErrorBox error={source.error} />}</Page>;
  if (from && source.text === undefined) return <Page title={title}>{<Loading rows={8} />}</Page>;
  const start = source.text?.replace(/^name: .*$/m, (line) => `${line}-copy`) ?? sample;
  return <ServiceEditor key={from} start={start} service={null} title={title} />;
}

export function EditServicePage() {
  const { t } = useTranslation();
  const { namespace, name } = editRoute.useParams();
  const { service, text, error } = useSource(name, namespace);
  // The edit is based on the version that was loaded first.
  const [original, setOriginal] = useState<{ service: Service; text: string } | null>(null);
  if (!original && service && text !== undefined) setOriginal({ service, text });
  usePageTitle(t("schedule.editOf", { name }));
  const title = <Crumbs name={t("schedule.editOf", { name })} />;
  if (error && !original) return <Page title={title}>{<ErrorBox error={error} />}</Page>;
  if (!original) return <Page title={title}>{<Loading rows={8} />}</Page>;
  return <ServiceEditor start={original.text} service={original.service} title={title} />;
}

export function Crumbs({ name, children }: { name: string; children?: ReactNode }) {
  const { t } = useTranslation();
  return (
    <div className={crumbs.crumbs}>
      <Link to="/services" className="quiet">
        {t("nav.services")}
      </Link>
      <ChevronRight size={14} className="quiet" aria-hidden />
      <h1 className="clip">{name}</h1>
      {children}
    </div>
  );
}

interface EditorProps {
  start: string;
  /** The edited service; null for a new one. */
  service: Service | null;
  title: ReactNode;
}

function ServiceEditor({ start, service, title }: EditorProps) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [applied, setApplied] = useState<AppliedService | null>(null);
  const check = useRef(async (spec: ServiceSpec, signal: AbortSignal) => {
    setApplied(await checkService(spec, signal));
  }).current;
  const draft = useDraft<ServiceSpec>(start, check);
  const [busy, setBusy] = useState(false);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const { spec } = draft;
  const save = async () => {
    if (!spec) return;
    setBusy(true);
    setApiError(null);
    try {
      const { namespace, name } = await saveService(spec, service?.version ?? null);
      notify(t("schedule.saved", { name }));
      void navigate({ to: "/services/$namespace/$name", params: { namespace, name } });
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
          {service ? t("common.save") : t("schedule.create")}
        </Button>
      }
    >
      {apiError && <ErrorBox error={apiError} />}
      <div className={editor.columns}>
        <Card title={t("submit.form")} className={editor.card}>
          {spec ? (
            <ServiceForm
              spec={spec}
              set={draft.set}
              fields={draft.apiError?.fields ?? []}
              isNameFixed={service !== null}
            />
          ) : (
            <p className="quiet">{t("submit.brokenText")}</p>
          )}
        </Card>
        <div className={style.right}>
          <FileCard
            title={t("service.file")}
            schema="ServiceSpec"
            draft={draft}
            validText={t("service.fine")}
          />
          <Card title={t("service.effectTitle")}>
            <p data-testid="effect">
              {draft.isValid && applied
                ? t(`service.effect.${saveEffect(applied, service?.rollout.revision ?? null)}`, {
                    name: applied.name,
                    revision: applied.revision,
                  })
                : "–"}
            </p>
          </Card>
        </div>
      </div>
    </Page>
  );
}
