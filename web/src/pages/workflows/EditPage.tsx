/** Workflow editor: form or file, validation, and a live graph. */

import { Button, SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Check, ChevronRight } from "lucide-react";
import { type ReactNode, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import { checkWorkflow, saveWorkflow, workflowDefaults, workflowQuery } from "../../api/workflows";
import type { Warning, Workflow, WorkflowSpec } from "../../api/schema";
import { dagFromSpec } from "../../lib/dag/graph";
import { warningText as warningOf } from "../../lib/codeTexts";
import { omitWorkflowDefaults, toYaml } from "../../lib/spec";
import { usePageTitle } from "../../lib/title";
import { notify } from "../../ui/notify";
import { Dag } from "../../ui/dag/Dag";
import editor from "../../ui/editor/editor.module.css";
import { FileCard } from "../../ui/editor/FileCard";
import { useDraft } from "../../ui/editor/useDraft";
import { Card, Loading, Page, ErrorBox } from "../../ui/kit";
import { useSample } from "../../ui/useSample";
import crumbs from "../schedule/schedule.module.css";
import { WorkflowForm } from "./WorkflowForm";
import style from "./workflows.module.css";

const SAMPLE = `name: nightly-report
description: Fetches the figures of each region and reports on them.
parameters:
  regions: {type: array, default: [eu, cn]}
steps:
  - name: extract
    for_each: {over: {list: params.regions}, max_parallel: 4}
    job:
      run:
        process: {command: [echo, "\${{ item }}"]}
  - name: report
    needs: [extract]
    job:
      run:
        process: {command: [echo, "\${{ steps.extract.succeeded }} regions"]}
finally:
  - name: clean
    job:
      run:
        process: {command: [echo, "\${{ run.status }}"]}
`;

const newRoute = getRouteApi("/workflows/new");
const editRoute = getRouteApi("/workflows/$id/edit");

/** Returns a workflow and its spec as YAML, without server defaults. */
function useSource(id: string | undefined) {
  const { data, error } = useQuery({ ...workflowQuery(id ?? ""), enabled: id !== undefined });
  const text = useQuery({
    queryKey: ["workflow", data?.id, "text", data?.generation],
    enabled: Boolean(data?.spec),
    queryFn: async () => {
      const spec = data?.spec as WorkflowSpec;
      return toYaml(omitWorkflowDefaults(spec, await workflowDefaults(spec)));
    },
    staleTime: Infinity,
  });
  return { workflow: data, text: text.data, error: error ?? text.error };
}

export function NewWorkflowPage() {
  const { t } = useTranslation();
  const sample = useSample(SAMPLE, "change", "workflows");
  const { from } = newRoute.useSearch();
  const source = useSource(from);
  usePageTitle(t("workflow.new"));
  const title = <Crumbs name={t("workflow.new")} />;
  if (from && source.error) return <Page title={title}>{<ErrorBox error={source.error} />}</Page>;
  if (from && source.text === undefined) return <Page title={title}>{<Loading rows={8} />}</Page>;
  const start = source.text?.replace(/^name: .*$/m, (line) => `${line}-copy`) ?? sample;
  return <WorkflowEditor key={from} start={start} workflow={null} title={title} />;
}

export function EditWorkflowPage() {
  const { t } = useTranslation();
  const { id } = editRoute.useParams();
  const { workflow, text, error } = useSource(id);
  // The edit is based on the version that was loaded first.
  const [original, setOriginal] = useState<{ workflow: Workflow; text: string } | null>(null);
  if (!original && workflow && text !== undefined) setOriginal({ workflow, text });
  const name = t("schedule.editOf", { name: workflow?.name ?? "…" });
  usePageTitle(name);
  const title = <Crumbs name={name} />;
  if (error && !original) return <Page title={title}>{<ErrorBox error={error} />}</Page>;
  if (!original) return <Page title={title}>{<Loading rows={8} />}</Page>;
  return <WorkflowEditor start={original.text} workflow={original.workflow} title={title} />;
}

export function Crumbs({ name, children }: { name: string; children?: ReactNode }) {
  const { t } = useTranslation();
  return (
    <div className={crumbs.crumbs}>
      <Link to="/workflows" className="quiet">
        {t("nav.workflows")}
      </Link>
      <ChevronRight size={14} className="quiet" aria-hidden />
      <h1 className="clip">{name}</h1>
      {children}
    </div>
  );
}

/** Two editors of the same definition. */
const EDIT_MODES = ["form", "file"] as const;
type EditMode = (typeof EDIT_MODES)[number];

interface ComposerProps {
  start: string;
  /** The edited workflow; null for a new one. */
  workflow: Workflow | null;
  title: ReactNode;
}

function WorkflowEditor({ start, workflow, title }: ComposerProps) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [warnings, setWarnings] = useState<readonly Warning[]>([]);
  const check = useRef(async (spec: WorkflowSpec, signal: AbortSignal) => {
    setWarnings(await checkWorkflow(spec, signal));
  }).current;
  const draft = useDraft<WorkflowSpec>(start, check);
  const [mode, setMode] = useState<EditMode>(workflow ? "file" : "form");
  const [busy, setBusy] = useState(false);
  const [apiError, setApiError] = useState<ApiError | null>(null);
  const { spec } = draft;
  // An invalid text keeps the last valid graph.
  const last = useRef<WorkflowSpec | null>(null);
  if (spec) last.current = spec;
  const validSpec = last.current;
  const nodes = useMemo(() => dagFromSpec(validSpec), [validSpec]);
  const save = async () => {
    if (!spec) return;
    setBusy(true);
    setApiError(null);
    try {
      const saved = await saveWorkflow(spec, workflow?.version ?? null);
      notify(t("schedule.saved", { name: saved.name }));
      void navigate({ to: "/workflows/$id", params: { id: saved.id } });
    } catch (error) {
      setApiError(ApiError.from(error));
      setBusy(false);
    }
  };
  return (
    <Page
      title={title}
      actions={
        <>
          <SegmentedControl
            aria-label={t("workflow.form.way")}
            value={mode}
            onChange={(value) => setMode(value)}
            data={EDIT_MODES.map((value) => ({ value, label: t(`workflow.form.ways.${value}`) }))}
            size="xs"
            data-testid="way"
          />
          <Button
            leftSection={<Check size={14} />}
            onClick={() => void save()}
            loading={busy}
            disabled={!draft.isValid}
            data-testid="save"
          >
            {workflow ? t("common.save") : t("schedule.create")}
          </Button>
        </>
      }
    >
      {apiError && <ErrorBox error={apiError} />}
      <div className={editor.columns}>
        <div className={style.writing}>
          {mode === "file" ? (
            <FileCard
              title={t("workflow.file")}
              schema="WorkflowSpec"
              draft={draft}
              validText={t("workflow.fine")}
            />
          ) : (
            <Card
              title={t("workflow.form.title")}
              aside={draft.isValid ? t("workflow.fine") : undefined}
              className={style.formCard}
            >
              {spec ? (
                <WorkflowForm
                  spec={spec}
                  set={draft.set}
                  fields={draft.apiError?.fields ?? []}
                  isNameFixed={workflow !== null}
                />
              ) : (
                <p className="quiet">{t("submit.brokenText")}</p>
              )}
            </Card>
          )}
          {(draft.apiError?.fields.length ?? 0) > 1 || warnings.length > 0 ? (
            <Card title={t("workflow.notices")}>
              <ul className={style.notices} data-testid="notices">
                {draft.apiError?.fields.map((field) => (
                  <li key={field.path + field.detail} data-bad>
                    <code>{field.path}</code> {field.detail}
                  </li>
                ))}
                {!draft.apiError && warnings.map((warning, i) => <li key={i}>{warningOf(warning, t)}</li>)}
              </ul>
            </Card>
          ) : null}
        </div>
        <Card
          flush
          title={t("workflow.picture")}
          aside={t("workflow.stepCount", { count: nodes.length })}
          className={`${editor.card} ${style.picture}`}
        >
          <Dag nodes={nodes} label={t("workflow.picture")} />
        </Card>
      </div>
    </Page>
  );
}
