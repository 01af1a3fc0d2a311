/** One workflow: graph, run grid, runs, definition. */

import { ActionIcon, Button, Menu, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import {
  CalendarDays,
  Copy,
  Ellipsis,
  FileCode2,
  FilePen,
  Grid3x3,
  ListChecks,
  Play,
  Trash2,
  Workflow as WorkflowIcon,
} from "lucide-react";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import type { StepSpec, Workflow } from "../../api/schema";
import { deleteWorkflow, workflowQuery } from "../../api/workflows";
import { dagFromSpec, SECTIONS } from "../../lib/dag/graph";
import { toFieldText } from "../../lib/parameters";
import { toYaml } from "../../lib/spec";
import { usePageTitle } from "../../lib/title";
import { Allowed, AllowedSomewhere } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { CodeHighlight } from "../../ui/Code";
import { Dag } from "../../ui/dag/Dag";
import { RunDays } from "../../ui/heatMap/DaysCard";
import { Card, EmptyState, KeyValueList, Id, Labels, Loading, Page, ErrorBox } from "../../ui/kit";
import { RelativeTime } from "../../ui/Time";
import { RunList } from "../runs/RunList";
import { Crumbs } from "../workflows/EditPage";
import { StartDialog } from "../workflows/StartDialog";
import { RunsGrid } from "./RunsGrid";
import { SchedulesCard, TriggersCard } from "./Triggers";
import style from "./workflow.module.css";

const route = getRouteApi("/workflows/$id");
const TABS = ["picture", "grid", "days", "runs", "definition"] as const;
type Tab = (typeof TABS)[number];
const ICONS = {
  picture: WorkflowIcon,
  grid: Grid3x3,
  days: CalendarDays,
  runs: ListChecks,
  definition: FileCode2,
};

export function WorkflowPage() {
  const { id } = route.useParams();
  const { namespace } = route.useSearch();
  const { data, error, refetch } = useQuery(workflowQuery(id, namespace));
  usePageTitle(data?.name ?? "");
  if (error && (!data || ApiError.from(error).code === "workflow_not_found")) {
    return (
      <Page title={<Crumbs name={data?.name ?? id} />}>
        <ErrorBox error={error} onRetry={() => void refetch()} />
      </Page>
    );
  }
  if (!data) {
    return (
      <Page title={<Crumbs name="…" />}>
        <Loading rows={8} />
      </Page>
    );
  }
  return <WorkflowDetails workflow={data} />;
}

function WorkflowDetails({ workflow }: { workflow: Workflow }) {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const tab: Tab = TABS.find((each) => each === search.tab) ?? "picture";
  const { spec } = workflow;
  const nodes = useMemo(() => dagFromSpec(spec), [spec]);
  const change = (part: typeof search) => void navigate({ search: { ...search, ...part }, replace: true });
  const step = SECTIONS.flatMap((section) => spec?.[section] ?? []).find(({ name }) => name === search.step);

  return (
    <Page title={<Crumbs name={workflow.name} />} actions={<Actions workflow={workflow} />}>
      {workflow.description && <p className={style.about}>{workflow.description}</p>}
      <div className={style.columns}>
        <Card flush className={style.tabs}>
          <Tabs value={tab} onChange={(next) => change({ tab: next ?? undefined })} keepMounted={false}>
            <Tabs.List>
              {TABS.map((each) => {
                const Icon = ICONS[each];
                return (
                  <Tabs.Tab key={each} value={each} leftSection={<Icon size={14} aria-hidden />}>
                    {t(`workflow.tabs.${each}`)}
                  </Tabs.Tab>
                );
              })}
            </Tabs.List>
            <Tabs.Panel value="picture" className={style.picture}>
              <Dag
                nodes={nodes}
                selected={search.step}
                onSelect={(step) => change({ step })}
                label={t("workflow.picture")}
              />
            </Tabs.Panel>
            <Tabs.Panel value="grid">
              <RunsGrid workflow={workflow} nodes={nodes} />
            </Tabs.Panel>
            <Tabs.Panel value="days" className={style.days}>
              <RunDays filter={{ workflow: workflow.id }} />
            </Tabs.Panel>
            <Tabs.Panel value="runs" className={style.runs}>
              <RunList
                filter={{ workflow: workflow.id }}
                isSingleWorkflow
                empty={
                  <EmptyState icon={WorkflowIcon} title={t("run.none")}>
                    {t("run.noneOfWorkflow")}
                  </EmptyState>
                }
              />
            </Tabs.Panel>
            <Tabs.Panel value="definition">{spec && <CodeHighlight text={toYaml(spec)} />}</Tabs.Panel>
          </Tabs>
        </Card>
        <aside className={style.side}>
          {step && tab === "picture" && (
            <StepDefinition step={step} onClose={() => change({ step: undefined })} />
          )}
          <WorkflowSummary workflow={workflow} />
        </aside>
      </div>
    </Page>
  );
}

/** Definition of a step. */
function StepDefinition({ step, onClose }: { step: StepSpec; onClose: () => void }) {
  const { t } = useTranslation();
  return (
    <Card
      title={step.name}
      aside={
        <Button variant="subtle" size="compact-xs" onClick={onClose}>
          {t("common.close")}
        </Button>
      }
      flush
    >
      {step.description && <p className={style.stepAbout}>{step.description}</p>}
      <div className={style.code} data-testid="step-definition">
        <CodeHighlight text={toYaml(step)} />
      </div>
    </Card>
  );
}

function WorkflowSummary({ workflow }: { workflow: Workflow }) {
  const { t } = useTranslation();
  const { spec } = workflow;
  const parameters = Object.entries(workflow.parameters ?? {});
  return (
    <>
      <Card title={t("schedule.about")}>
        <KeyValueList
          rows={[
            [
              t("workflow.columns.steps"),
              <span key="" className="num">
                {workflow.steps.toLocaleString()}
              </span>,
            ],
            [
              t("nav.runs"),
              <span key="" className="num">
                {workflow.runs.toLocaleString()}
              </span>,
            ],
            [t("job.details.namespace"), workflow.namespace],
            workflow.owner ? [t("job.details.owner"), workflow.owner] : null,
            Object.keys(workflow.labels ?? {}).length > 0 && [
              t("job.details.labels"),
              <Labels key="" labels={workflow.labels} />,
            ],
            spec?.failure === "fail_fast" && [t("workflow.onFailure"), t("workflow.failFast")],
            spec?.max_parallel_steps
              ? [
                  t("workflow.maxSteps"),
                  <span key="" className="num">
                    {spec.max_parallel_steps}
                  </span>,
                ]
              : null,
            spec?.max_parallel_runs
              ? [
                  t("workflow.maxRuns"),
                  <span key="" className="num">
                    {spec.max_parallel_runs}
                  </span>,
                ]
              : null,
            spec?.timeout ? [t("job.details.timeout"), spec.timeout] : null,
            [
              t("schedule.generation"),
              <span key="" className="num">
                {workflow.generation}
              </span>,
            ],
            [t("schedule.updated"), <RelativeTime key="" at={workflow.updated_at} />],
            [t("workflow.id"), <Id key="" id={workflow.id} />],
          ]}
        />
      </Card>
      <TriggersCard workflow={workflow} />
      <SchedulesCard workflow={workflow} />
      {parameters.length > 0 && (
        <Card title={t("workflow.parameters")}>
          <KeyValueList
            rows={parameters.map(([name, parameter]) => [
              name,
              <span key={name}>
                <code>{parameter.type}</code>{" "}
                <span className="quiet">
                  {parameter.default === undefined ? t("workflow.required") : toFieldText(parameter.default)}
                </span>
                {parameter.description && <p className="quiet">{parameter.description}</p>}
              </span>,
            ])}
          />
        </Card>
      )}
    </>
  );
}

function Actions({ workflow }: { workflow: Workflow }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [open, setOpen] = useState<"start" | "delete" | null>(null);
  const { id, name, namespace } = workflow;
  const remove = async () => {
    await deleteWorkflow(id);
    void navigate({ to: "/workflows" });
  };
  return (
    <>
      <Allowed verb="operate" on="runs" in={namespace}>
        <Button leftSection={<Play size={14} />} onClick={() => setOpen("start")}>
          {t("workflow.start")}
        </Button>
      </Allowed>
      <Allowed verb="change" on="workflows" in={namespace}>
        <Button
          renderRoot={(props) => <Link to="/workflows/$id/edit" params={{ id }} {...props} />}
          variant="default"
          leftSection={<FilePen size={14} />}
        >
          {t("schedule.edit")}
        </Button>
      </Allowed>
      <Menu>
        <Menu.Target>
          <ActionIcon variant="default" aria-label={t("schedule.more")}>
            <Ellipsis size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item
            leftSection={<ListChecks size={14} />}
            renderRoot={(props) => <Link to="/runs" search={{ workflow: name }} {...props} />}
          >
            {t("schedule.allRuns")}
          </Menu.Item>
          <AllowedSomewhere verb="change" on="workflows">
            <Menu.Item
              leftSection={<Copy size={14} />}
              renderRoot={(props) => <Link to="/workflows/new" search={{ from: id }} {...props} />}
            >
              {t("schedule.duplicate")}
            </Menu.Item>
          </AllowedSomewhere>
          <Allowed verb="delete" on="workflows" in={namespace}>
            <Menu.Divider />
            <Menu.Item leftSection={<Trash2 size={14} />} color="red" onClick={() => setOpen("delete")}>
              {t("schedule.delete")}
            </Menu.Item>
          </Allowed>
        </Menu.Dropdown>
      </Menu>
      {open === "start" && <StartDialog workflow={workflow} onClose={() => setOpen(null)} />}
      {open === "delete" && (
        <ConfirmDialog
          title={t("schedule.deleteTitle", { name })}
          text={t("workflow.deleteText")}
          confirm={t("schedule.delete")}
          red
          onConfirm={remove}
          done={t("schedule.deleted", { name })}
          onClose={() => setOpen(null)}
        />
      )}
    </>
  );
}
