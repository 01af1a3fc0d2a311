/** One workflow run: live graph, steps, Gantt chart, history, definition, and details of a step. */

import { Drawer, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import {
  ChartGantt,
  ChevronRight,
  FileCode2,
  History as HistoryIcon,
  ListTree,
  Workflow as WorkflowIcon,
} from "lucide-react";
import { type ReactNode, useMemo } from "react";
import { useTranslation } from "react-i18next";

import type { RunStep, WorkflowRun } from "../../api/schema";
import { runQuery, stepsQuery } from "../../api/workflows";
import { dagFromRunSteps } from "../../lib/dag/graph";
import { stepInFocus } from "../../lib/failureCauses";
import { useNarrow } from "../../lib/narrow";
import { isRunEnded, isStepEnded } from "../../lib/runs";
import { toYaml } from "../../lib/spec";
import { usePageTitle } from "../../lib/title";
import { CodeHighlight } from "../../ui/Code";
import { Dag } from "../../ui/dag/Dag";
import type { NodeState } from "../../ui/dag/Node";
import { Card, Id, Loading, Page, ErrorBox } from "../../ui/kit";
import { RunStateBadge } from "../../ui/Status";
import { LogView } from "../job/LogView";
import { Progress } from "../runs/RunList";
import crumbs from "../schedule/schedule.module.css";
import { RunSummary, RunBanner } from "./RunSummary";
import { PendingApprovals, waitsForApproval } from "./Approval";
import { RunActions } from "./RunActions";
import { RunFailureCard } from "./RunFailure";
import { RunGantt } from "./RunGantt";
import { RunHistory } from "./RunHistory";
import { StepPanel } from "./StepPanel";
import { StepsTable } from "./StepsTable";
import style from "./run.module.css";

const route = getRouteApi("/runs/$id");
const TABS = ["graph", "steps", "gantt", "history", "definition"] as const;
type Tab = (typeof TABS)[number];
const ICONS = {
  graph: WorkflowIcon,
  steps: ListTree,
  gantt: ChartGantt,
  history: HistoryIcon,
  definition: FileCode2,
};

export function RunPage() {
  const { id } = route.useParams();
  const run = useQuery(runQuery(id));
  const steps = useQuery(stepsQuery(id));
  usePageTitle(run.data ? runName(run.data) : "");
  const error = run.error ?? steps.error;
  if (error && (!run.data || !steps.data)) {
    return (
      <Page title={<Crumbs name={id} />}>
        <ErrorBox
          error={error}
          onRetry={() => {
            void run.refetch();
            void steps.refetch();
          }}
        />
      </Page>
    );
  }
  if (!run.data || !steps.data) {
    return (
      <Page title={<Crumbs name="…" />}>
        <Loading rows={8} />
      </Page>
    );
  }
  return <RunDetails key={id} run={run.data} steps={steps.data.steps} />;
}

function runName({ workflow, number }: WorkflowRun): string {
  return number > 0 ? `${workflow} #${number}` : workflow;
}

function Crumbs({ name, run, children }: { name: string; run?: WorkflowRun; children?: ReactNode }) {
  const { t } = useTranslation();
  return (
    <div className={crumbs.crumbs}>
      <Link to="/runs" className="quiet">
        {t("nav.runs")}
      </Link>
      <ChevronRight size={14} className="quiet" aria-hidden />
      {run?.workflow_id ? (
        <h1 className="clip">
          <Link to="/workflows/$id" params={{ id: run.workflow_id }}>
            {run.workflow}
          </Link>{" "}
          <span className="num">#{run.number}</span>
        </h1>
      ) : (
        <h1 className="clip">{name}</h1>
      )}
      {children}
    </div>
  );
}

function RunDetails({ run, steps }: { run: WorkflowRun; steps: readonly RunStep[] }) {
  const { t } = useTranslation();
  const isNarrow = useNarrow();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const tab: Tab = TABS.find((each) => each === search.tab) ?? "graph";
  const change = (part: typeof search) => void navigate({ search: { ...search, ...part }, replace: true });
  const selectStep = (step: string | undefined) => change({ step, job: undefined, line: undefined });
  const nodes = useMemo(() => dagFromRunSteps(steps, run.spec), [steps, run.spec]);
  const states = useMemo(() => nodeStates(steps), [steps]);
  const step = steps.find(({ name }) => name === search.step);
  const job = search.job ?? step?.job_id ?? undefined;
  const panel = step && (
    <StepPanel
      key={step.name}
      run={run}
      step={step}
      job={job}
      onSelect={selectStep}
      onSelectJob={(next) => change({ job: next, line: undefined })}
    />
  );

  return (
    <Page
      title={
        <Crumbs name={runName(run)} run={run}>
          <RunStateBadge run={run} approvals={steps.filter(waitsForApproval).length} />
        </Crumbs>
      }
      actions={<RunActions run={run} steps={steps} />}
    >
      <div className={style.sub}>
        <Id id={run.id} />
        <span className={style.progress}>
          <Progress counts={run.steps} isWide />
        </span>
      </div>
      <RunBanner run={run} />
      <RunFailureCard
        run={run}
        steps={steps}
        onSelect={(step, job, line) => change({ step, job, line: line?.toString() })}
      />
      <PendingApprovals run={run} steps={steps} />
      <div className={style.columns}>
        <div className={style.main}>
          <Card flush className={style.tabs}>
            <Tabs value={tab} onChange={(next) => change({ tab: next ?? undefined })} keepMounted={false}>
              <Tabs.List>
                {TABS.map((each) => {
                  const Icon = ICONS[each];
                  return (
                    <Tabs.Tab key={each} value={each} leftSection={<Icon size={14} aria-hidden />}>
                      {t(`run.tabs.${each}`)}
                    </Tabs.Tab>
                  );
                })}
              </Tabs.List>
              <Tabs.Panel value="graph" className={style.graph} data-with-log={job ? true : undefined}>
                <Dag
                  nodes={nodes}
                  states={states}
                  selected={search.step}
                  focus={stepInFocus(run, steps)}
                  onSelect={selectStep}
                  label={t("run.tabs.graph")}
                />
              </Tabs.Panel>
              <Tabs.Panel value="steps">
                <StepsTable steps={steps} selected={search.step} onSelect={selectStep} />
              </Tabs.Panel>
              <Tabs.Panel value="gantt">
                <RunGantt run={run} steps={steps} selected={search.step} onSelect={selectStep} />
              </Tabs.Panel>
              <Tabs.Panel value="history">
                <RunHistory entries={run.history ?? []} />
              </Tabs.Panel>
              <Tabs.Panel value="definition">
                {run.spec && <CodeHighlight text={toYaml(run.spec)} />}
              </Tabs.Panel>
            </Tabs>
          </Card>
          {step && job && !isNarrow && (
            <StepLog run={run} step={step} job={job} line={search.line} onLine={(line) => change({ line })} />
          )}
        </div>
        {!isNarrow && <aside className={style.side}>{panel ?? <RunSummary run={run} />}</aside>}
        {isNarrow && <RunSummary run={run} />}
      </div>
      {isNarrow && (
        <Drawer
          opened={step !== undefined}
          onClose={() => selectStep(undefined)}
          position="bottom"
          size="82%"
          title={step?.name}
          closeButtonProps={{ "aria-label": t("common.close") }}
        >
          <div className={style.drawer}>
            {panel}
            {step && job && (
              <StepLog
                run={run}
                step={step}
                job={job}
                line={search.line}
                onLine={(line) => change({ line })}
              />
            )}
          </div>
        </Drawer>
      )}
    </Page>
  );
}

interface StepLogProps {
  run: WorkflowRun;
  step: RunStep;
  job: string;
  line: string | undefined;
  onLine: (line: string | undefined) => void;
}

function StepLog({ run, step, job, line, onLine }: StepLogProps) {
  const { t } = useTranslation();
  return (
    <Card
      flush
      className={style.log}
      title={`${t("job.tabs.log")} · ${step.name}`}
      aside={
        <Link to="/jobs/$id" params={{ id: job }}>
          {t("run.openJob")}
        </Link>
      }
    >
      <LogView
        key={job}
        job={job}
        name={step.name}
        execution={undefined}
        live={!isStepEnded(step.status) && !isRunEnded(run.status)}
        line={line === undefined ? undefined : Number(line)}
        onLine={(next) => onLine(next?.toString())}
      />
    </Card>
  );
}

function nodeStates(steps: readonly RunStep[]): ReadonlyMap<string, NodeState> {
  return new Map(
    steps.map((step) => [
      step.name,
      {
        status: step.status,
        startedAt: step.started_at,
        finishedAt: isStepEnded(step.status) ? (step.finished_at ?? step.started_at) : null,
        total: step.total,
        succeeded: step.element_counts?.succeeded,
        failed: step.element_counts?.failed,
      },
    ]),
  );
}
