/**
 * Commands of the palette that act on an object: on that of the current page, or on one that the user names. They show
 * the same confirmations as the buttons, whose code is loaded when a command runs.
 */

import { useQuery } from "@tanstack/react-query";
import { useNavigate, useRouterState } from "@tanstack/react-router";
import {
  Ban,
  CircleSlash,
  LogOut,
  type LucideIcon,
  Pause,
  Play,
  RotateCcw,
  Workflow as WorkflowIcon,
  Zap,
} from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";

import { actOnWorker, resumeQueue, retryJob } from "../api/actions";
import { jobQuery, queuesQuery, workersQuery } from "../api/queries";
import { resumeSchedule, scheduleQuery, suggestedSchedulesQuery } from "../api/schedules";
import type { Job, Queue, Resource, Schedule, Worker, Workflow, WorkflowRun } from "../api/schema";
import { resumeRun, runQuery, stepsQuery, suggestedWorkflowsQuery, workflowQuery } from "../api/workflows";
import { isRunEnded } from "../lib/runs";
import { isLive } from "../lib/statuses";
import { typedActions, type Verb } from "../lib/verbs";
import { useCan, useCanSomewhere } from "../ui/Allowed";
import { notify, runAction } from "../ui/notify";
import { openDialog } from "./dialogs";

export interface Command {
  id: string;
  icon: LucideIcon;
  title: string;
  aside?: ReactNode;
  run: () => void;
}

/** An action on an object, before it is filtered by what the user typed. */
interface Action {
  verb: Verb;
  name: string;
  /** Kind of the object. */
  kind: "queues" | "schedules" | "workflows" | "workers" | "jobs" | "runs";
  id: string;
  /** Namespace of the object; absent for objects of the cluster. */
  namespace?: string;
  run: () => void;
}

/** Resource that the caller must be allowed to operate. The start of a workflow creates a run. */
const RESOURCES: Record<Action["kind"], Resource> = {
  queues: "queues",
  schedules: "schedules",
  workflows: "runs",
  workers: "workers",
  jobs: "jobs",
  runs: "runs",
};

const ICONS: Record<Verb, LucideIcon> = {
  pause: Pause,
  resume: Play,
  trigger: Zap,
  start: WorkflowIcon,
  cordon: CircleSlash,
  uncordon: Play,
  drain: LogOut,
  cancel: Ban,
  retry: RotateCcw,
};

/** Commands per kind of object. */
const LISTED_MAX = 5;

/** Returns the commands for a text; for an empty text, those for the object of the current page. */
export function useActionCommands(text: string): Command[] {
  const { t } = useTranslation();
  const own = usePageActions();
  const typed = typedActions(text, (verb) => t(`palette.act.${verb}`, { name: "" }).trim());
  const [name = ""] = typed.map((action) => action.name);
  const isTyped = (...verbs: Verb[]) => typed.some(({ verb }) => verbs.includes(verb));
  const can = useCan();
  const canSomewhere = useCanSomewhere();
  const queues = useQuery({ ...queuesQuery, enabled: canSomewhere("read", "queues") }).data?.items ?? [];
  const workers = useQuery({ ...workersQuery, enabled: canSomewhere("read", "workers") }).data?.items ?? [];
  const schedules = useQuery({
    ...suggestedSchedulesQuery(name),
    enabled: isTyped("pause", "resume", "trigger") && canSomewhere("read", "schedules"),
  }).data?.items;
  const workflows = useQuery({
    ...suggestedWorkflowsQuery(name),
    enabled: isTyped("start") && canSomewhere("read", "workflows"),
  }).data?.items;
  const scheduleActions = useScheduleActions();
  const queueActions = useQueueActions();
  const workerActions = useWorkerActions();

  const toCommand = ({ verb, name, kind, id, run }: Action): Command => ({
    id: `${verb}-${kind}-${id}`,
    icon: ICONS[verb],
    title: t(`palette.act.${verb}`, { name }),
    aside: t(`nav.${kind}`),
    run,
  });
  const isAllowed = ({ kind, namespace }: Action) => can("operate", RESOURCES[kind], namespace);
  if (text === "") return own.filter(isAllowed).map(toCommand);
  const matches = (action: Action) =>
    typed.some(({ verb, name }) => verb === action.verb && action.name.toLowerCase().includes(name));
  const ofKind = (actions: Action[]) => actions.filter(matches).filter(isAllowed).slice(0, LISTED_MAX);
  const found = [
    ...own.filter(matches).filter(isAllowed),
    ...ofKind(queues.flatMap(queueActions)),
    ...ofKind(workers.flatMap(workerActions)),
    ...ofKind((schedules ?? []).flatMap(scheduleActions)),
    ...ofKind((workflows ?? []).flatMap(workflowActions)),
  ].map(toCommand);
  return found.filter(({ id }, i) => found.findIndex((other) => other.id === id) === i);
}

/** Returns the actions on the object of the current page. */
function usePageActions(): Action[] {
  const { pathname, search } = useRouterState({ select: ({ location }) => location });
  const [, page = "", id = ""] = /^\/(jobs|runs|schedules|workflows|workers)\/([^/]+)$/.exec(pathname) ?? [];
  const { namespace } = search as { namespace?: string };
  const of = (kind: string) => page === kind && id !== "timetable" && id !== "new";
  const job = useQuery({ ...jobQuery(id), enabled: of("jobs") }).data;
  const run = useQuery({ ...runQuery(id), enabled: of("runs") }).data;
  const schedule = useQuery({ ...scheduleQuery(id, namespace), enabled: of("schedules") }).data;
  const workflow = useQuery({ ...workflowQuery(id, namespace), enabled: of("workflows") }).data;
  const worker = useQuery({ ...workersQuery, enabled: of("workers") }).data?.items.find(
    (each) => of("workers") && each.id === id,
  );
  const jobActions = useJobActions();
  const runActions = useRunActions();
  const scheduleActions = useScheduleActions();
  const workerActions = useWorkerActions();
  return [
    ...(of("jobs") && job ? jobActions(job) : []),
    ...(of("runs") && run ? runActions(run) : []),
    ...(of("schedules") && schedule ? scheduleActions(schedule) : []),
    ...(of("workflows") && workflow ? workflowActions(workflow) : []),
    ...(worker ? workerActions(worker) : []),
  ];
}

function useJobActions(): (job: Job) => Action[] {
  const { t } = useTranslation();
  const navigate = useNavigate();
  return (job) => {
    const about = { name: job.name, kind: "jobs", id: job.id, namespace: job.namespace } as const;
    const retry = async () => {
      const id = await runAction(() => retryJob(job.id));
      if (!id) return;
      notify(t("job.retried"));
      void navigate({ to: "/jobs/$id", params: { id } });
    };
    const cancel = () =>
      load(import("../pages/job/CancelDialog"), ({ CancelDialog }) =>
        openDialog((close) => <CancelDialog job={job} onClose={close} />),
      );
    if (!isLive(job.status)) return [{ ...about, verb: "retry", run: () => void retry() }];
    return job.cancel_requested_at ? [] : [{ ...about, verb: "cancel", run: cancel }];
  };
}

function useRunActions(): (run: WorkflowRun) => Action[] {
  const { t } = useTranslation();
  const { pathname } = useRouterState({ select: ({ location }) => location });
  const id = pathname.split("/")[2] ?? "";
  const isRun = pathname.startsWith("/runs/");
  const steps = useQuery({ ...stepsQuery(id), enabled: isRun }).data?.steps ?? [];
  return (run) => {
    const name = run.number > 0 ? `${run.workflow} #${run.number}` : run.workflow;
    const about = { name, kind: "runs", id: run.id, namespace: run.namespace } as const;
    const dialogs = () => import("../pages/run/RunActions");
    if (isRunEnded(run.status)) {
      const retry = () =>
        load(dialogs(), ({ RetryDialog }) =>
          openDialog((close) => <RetryDialog run={run} steps={steps} onClose={close} />),
        );
      return [{ ...about, verb: "retry", run: retry }];
    }
    const cancel = () =>
      load(dialogs(), ({ CancelDialog }) =>
        openDialog((close) => <CancelDialog run={run} onClose={close} />),
      );
    const pause = () =>
      load(dialogs(), ({ PauseDialog }) => openDialog((close) => <PauseDialog run={run} onClose={close} />));
    const resume = () => void runAction(() => resumeRun(run.id), t("run.resumed", { name: run.workflow }));
    return [
      { ...about, verb: "cancel", run: cancel },
      ...(run.status === "paused" ? [{ ...about, verb: "resume", run: resume } as const] : []),
      ...(run.status === "running" || run.status === "retrying"
        ? [{ ...about, verb: "pause", run: pause } as const]
        : []),
    ];
  };
}

function useScheduleActions(): (schedule: Schedule) => Action[] {
  const { t } = useTranslation();
  return (schedule) => {
    const { id, name, namespace, status } = schedule;
    const about = { name, kind: "schedules", id, namespace } as const;
    const dialogs = () => import("../pages/schedule/dialogs");
    const trigger = () =>
      load(dialogs(), ({ TriggerDialog }) =>
        openDialog((close) => <TriggerDialog schedule={schedule} onClose={close} />),
      );
    const pause = () =>
      load(dialogs(), ({ PauseDialog }) =>
        openDialog((close) => <PauseDialog schedule={schedule} onClose={close} />),
      );
    const resume = () => void runAction(() => resumeSchedule(id), t("schedule.resumed", { name }));
    return [
      { ...about, verb: "trigger", run: trigger },
      ...(status === "active" ? [{ ...about, verb: "pause", run: pause } as const] : []),
      ...(status === "paused" ? [{ ...about, verb: "resume", run: resume } as const] : []),
    ];
  };
}

function workflowActions(workflow: Workflow): Action[] {
  const start = () =>
    load(import("../pages/workflows/StartDialog"), ({ StartDialog }) =>
      openDialog((close) => <StartDialog workflow={workflow} onClose={close} />),
    );
  const { id, name, namespace } = workflow;
  return [{ verb: "start", name, kind: "workflows", id, namespace, run: start }];
}

function useQueueActions(): (queue: Queue) => Action[] {
  const { t } = useTranslation();
  return ({ name, settings }) => {
    const about = { name, kind: "queues", id: name } as const;
    const pause = () =>
      load(import("../pages/queues/PauseDialog"), ({ PauseDialog }) =>
        openDialog((close) => <PauseDialog name={name} onClose={close} />),
      );
    const resume = () => void runAction(() => resumeQueue(name), t("queue.resumed", { name }));
    return [
      settings.paused ? { ...about, verb: "resume", run: resume } : { ...about, verb: "pause", run: pause },
    ];
  };
}

function useWorkerActions(): (worker: Worker) => Action[] {
  const { t } = useTranslation();
  return (worker) => {
    const { id, name, admission } = worker;
    const about = { name, kind: "workers", id } as const;
    const cordon = () => void runAction(() => actOnWorker(id, "cordon"), t("worker.cordoned", { name }));
    const uncordon = () =>
      void runAction(() => actOnWorker(id, "uncordon"), t("worker.uncordoned", { name }));
    const drain = () =>
      load(import("../pages/workers/WorkerActions"), ({ ConfirmActionDialog }) =>
        openDialog((close) => <ConfirmActionDialog pendingAction="drain" worker={worker} onClose={close} />),
      );
    return [
      admission === "open"
        ? { ...about, verb: "cordon", run: cordon }
        : { ...about, verb: "uncordon", run: uncordon },
      ...(admission === "draining" ? [] : [{ ...about, verb: "drain", run: drain } as const]),
    ];
  };
}

/** Loads the code of a dialog; a failure is shown as that of an action. */
function load<Module>(module: Promise<Module>, open: (module: Module) => void): void {
  void runAction(async () => open(await module));
}
