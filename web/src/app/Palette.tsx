/** The command palette: opens pages, jobs by id or name, and other objects, and runs commands. */

import { Modal } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import {
  ArrowRight,
  CalendarClock,
  CalendarPlus,
  ChartColumn,
  CornerDownLeft,
  Filter,
  Hash,
  Moon,
  Plus,
  RadioTower,
  Server,
  Rows3,
  Workflow,
} from "lucide-react";
import { type KeyboardEvent, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { useTranslation } from "react-i18next";

import { jobsByNameQuery, meQuery, queuesQuery, workersQuery } from "../api/queries";
import { suggestedSchedulesQuery } from "../api/schedules";
import type { Resource } from "../api/schema";
import { suggestedServicesQuery } from "../api/services";
import { suggestedWorkflowsQuery } from "../api/workflows";
import { scopedSearch } from "../lib/namespaces";
import { namedSearch } from "../pages/jobName/search";
import { setPreferences, usePreferences } from "../lib/preferences";
import { canSomewhere, pageDenial } from "../lib/rights";
import { StatusBadge } from "../ui/Status";
import { RelativeTime } from "../ui/Time";
import { type Command, useActionCommands } from "./useActionCommands";
import style from "./Palette.module.css";

let isOpen = false;
const listeners = new Set<() => void>();

function setOpen(open: boolean): void {
  isOpen = open;
  for (const listener of listeners) listener();
}

export function openPalette(): void {
  setOpen(true);
}

export function togglePalette(): void {
  setOpen(!isOpen);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const PAGES = [
  "overview",
  "jobs",
  "failures",
  "alerts",
  "schedules",
  "calendars",
  "workflows",
  "runs",
  "services",
  "workers",
  "servers",
  "queues",
  "artifacts",
  "secrets",
  "events",
  "namespaces",
  "access",
  "tokens",
  "settings",
] as const;

export function Palette() {
  const open = useSyncExternalStore(subscribe, () => isOpen);
  const { t } = useTranslation();
  return (
    <Modal
      opened={open}
      onClose={() => setOpen(false)}
      withCloseButton={false}
      padding={0}
      size={580}
      centered={false}
      yOffset="14vh"
      transitionProps={{ duration: 0 }}
      attributes={{ content: { "aria-label": t("palette.open") } }}
    >
      {open && <Commands />}
    </Modal>
  );
}

function Commands() {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const [index, setIndex] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const actions = useActionCommands(text.trim());
  const commands = useCommands(text.trim(), actions);
  const selected = Math.min(index, commands.length - 1);

  useEffect(() => {
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [selected]);

  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setIndex((selected + step + commands.length) % commands.length);
    } else if (event.key === "Enter" && !event.nativeEvent.isComposing) {
      event.preventDefault();
      run(commands[selected]);
    }
  };
  const run = (command: Command | undefined) => {
    if (!command) return;
    setOpen(false);
    command.run();
  };

  return (
    <>
      <input
        className={style.input}
        placeholder={t("palette.placeholder")}
        aria-label={t("palette.placeholder")}
        role="combobox"
        aria-expanded
        aria-controls="palette-list"
        aria-activedescendant={commands[selected] ? `palette-${commands[selected].id}` : undefined}
        value={text}
        onChange={(event) => {
          setText(event.currentTarget.value);
          setIndex(0);
        }}
        onKeyDown={onKey}
        data-autofocus
        autoFocus
      />
      <div className={style.list} id="palette-list" role="listbox" aria-label={t("palette.open")} ref={list}>
        {commands.map((command, i) => {
          const Icon = command.icon;
          return (
            <div
              key={command.id}
              id={`palette-${command.id}`}
              role="option"
              aria-selected={i === selected}
              className={style.item}
              onMouseMove={() => setIndex(i)}
              onClick={() => run(command)}
            >
              <Icon size={15} aria-hidden />
              <span className="clip">{command.title}</span>
              <span className={style.aside}>
                {command.aside}
                {i === selected && <CornerDownLeft size={13} aria-hidden />}
              </span>
            </div>
          );
        })}
        {commands.length === 0 && <p className={style.none}>{t("palette.nothing")}</p>}
      </div>
    </>
  );
}

function useCommands(text: string, actions: readonly Command[]): Command[] {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const { language, theme, namespace } = usePreferences();
  const me = useQuery(meQuery).data;
  const canRead = (resource: Resource) => canSomewhere(me, "read", resource);
  const workers = useQuery({ ...workersQuery, enabled: canRead("workers") }).data?.items;
  const queues = useQuery({ ...queuesQuery, enabled: canRead("queues") }).data?.items;
  const isId = /^(job|exe|wkr|sch|wfl|run|svc)_[0-9a-z]{26}$/.test(text);
  const isName = /^[A-Za-z0-9][\w.-]*$/.test(text) && !isId;
  const jobs = useQuery({ ...jobsByNameQuery(text, "*"), enabled: isName && canRead("jobs") }).data?.items;
  const schedules = useQuery({ ...suggestedSchedulesQuery(text), enabled: isName && canRead("schedules") });
  const workflows = useQuery({ ...suggestedWorkflowsQuery(text), enabled: isName && canRead("workflows") });
  const services = useQuery({ ...suggestedServicesQuery(text), enabled: isName && canRead("services") });

  return useMemo(() => {
    const query = text.toLowerCase();
    const matches = (...words: string[]) => words.some((word) => word.toLowerCase().includes(query));
    const isPagePrefix = (page: (typeof PAGES)[number]) =>
      text !== "" && [t(`nav.${page}`), page].some((word) => word.toLowerCase().startsWith(query));
    const commands: Command[] = [];
    const add = (command: Command) => commands.push(command);
    const isOpen = (path: string) => pageDenial(me, path) === null;
    const addPage = (page: (typeof PAGES)[number]) => {
      const to = page === "overview" ? "/" : (`/${page}` as const);
      if (!isOpen(to)) return;
      add({
        id: page,
        icon: ArrowRight,
        title: t(`nav.${page}`),
        run: () => void navigate({ to, search: scopedSearch(to, namespace) }),
      });
    };
    if (isId && text.startsWith("job_")) {
      const run = () => void navigate({ to: "/jobs/$id", params: { id: text } });
      add({ id: "id", icon: Hash, title: text, aside: t("palette.goTo"), run });
    } else if (isId && text.startsWith("exe_")) {
      const run = () => void navigate({ to: "/executions/$id", params: { id: text } });
      add({ id: "id", icon: Hash, title: text, aside: t("palette.goTo"), run });
    } else if (isId && text.startsWith("sch_")) {
      const run = () => void navigate({ to: "/schedules/$id", params: { id: text } });
      add({ id: "id", icon: CalendarClock, title: text, aside: t("palette.goTo"), run });
    } else if (isId && text.startsWith("wfl_")) {
      const run = () => void navigate({ to: "/workflows/$id", params: { id: text } });
      add({ id: "id", icon: Workflow, title: text, aside: t("palette.goTo"), run });
    } else if (isId && text.startsWith("run_")) {
      const run = () => void navigate({ to: "/runs/$id", params: { id: text } });
      add({ id: "id", icon: Workflow, title: text, aside: t("palette.goTo"), run });
    } else if (isId && text.startsWith("svc_")) {
      const run = () => void navigate({ to: "/services/$id", params: { id: text } });
      add({ id: "id", icon: RadioTower, title: text, aside: t("palette.goTo"), run });
    }
    // Pages come before search results: results arrive later and must not change what Enter selects.
    for (const page of PAGES) if (isPagePrefix(page)) addPage(page);
    if (text !== "") commands.push(...actions);
    for (const workflow of isName ? matchingItems(workflows, matches) : []) {
      add({
        id: workflow.id,
        icon: Workflow,
        title: workflow.name,
        aside: t("nav.workflows"),
        run: () => void navigate({ to: "/workflows/$id", params: { id: workflow.id } }),
      });
    }
    for (const service of isName ? matchingItems(services, matches) : []) {
      const { id, namespace, name } = service;
      add({
        id,
        icon: RadioTower,
        title: name,
        aside: t("nav.services"),
        run: () => void navigate({ to: "/services/$namespace/$name", params: { namespace, name } }),
      });
    }
    for (const schedule of isName ? matchingItems(schedules, matches) : []) {
      add({
        id: schedule.id,
        icon: CalendarClock,
        title: schedule.name,
        aside: <code>{schedule.when}</code>,
        run: () => void navigate({ to: "/schedules/$id", params: { id: schedule.id } }),
      });
    }
    for (const job of (jobs ?? []).slice(0, 5)) {
      add({
        id: job.id,
        icon: Hash,
        title: job.name,
        aside: (
          <>
            <RelativeTime at={job.created_at} />
            <StatusBadge status={job.status} plain />
          </>
        ),
        run: () => void navigate({ to: "/jobs/$id", params: { id: job.id } }),
      });
    }
    for (const namespace of new Set(jobs?.map((job) => job.namespace))) {
      const run = () =>
        void navigate({ to: "/jobs/named/$name", params: { name: text }, search: namedSearch(namespace) });
      const title = namespace === "default" ? text : `${namespace}/${text}`;
      add({ id: `name-${namespace}`, icon: ChartColumn, title, aside: t("palette.jobName"), run });
    }
    if (isOpen("/submit") && (text === "" || matches(t("nav.submit"), "submit new"))) {
      add({
        id: "submit",
        icon: Plus,
        title: t("nav.submit"),
        aside: "c",
        run: () => void navigate({ to: "/submit" }),
      });
    }
    if (text === "") commands.push(...actions);
    if (isOpen("/schedules/new") && text !== "" && matches(t("schedule.new"), "schedule new cron")) {
      const run = () => void navigate({ to: "/schedules/new" });
      add({ id: "new-schedule", icon: CalendarPlus, title: t("schedule.new"), run });
    }
    if (isOpen("/workflows/new") && text !== "" && matches(t("workflow.new"), "workflow new dag")) {
      const run = () => void navigate({ to: "/workflows/new" });
      add({ id: "new-workflow", icon: Workflow, title: t("workflow.new"), run });
    }
    if (isOpen("/services/new") && text !== "" && matches(t("service.new"), "service new")) {
      const run = () => void navigate({ to: "/services/new" });
      add({ id: "new-service", icon: RadioTower, title: t("service.new"), run });
    }
    for (const page of PAGES) {
      if (text === "" || (matches(t(`nav.${page}`), page) && !isPagePrefix(page))) addPage(page);
    }
    for (const status of isOpen("/jobs") ? (["failed", "running", "waiting"] as const) : []) {
      if (text !== "" && !matches(status, t(`status.${status}`))) continue;
      const title = t("palette.jobsThatAre", { status: t(`status.${status}`) });
      const run = () => void navigate({ to: "/jobs", search: { status } });
      add({ id: `status-${status}`, icon: Filter, title, run });
    }
    for (const worker of workers ?? []) {
      if (text === "" || !matches(worker.name, worker.id)) continue;
      const run = () => void navigate({ to: "/workers/$id", params: { id: worker.id } });
      add({ id: worker.id, icon: Server, title: worker.name, aside: t("nav.workers"), run });
    }
    for (const queue of queues ?? []) {
      if (text === "" || !matches(queue.name)) continue;
      const run = () => void navigate({ to: "/jobs", search: { queue: queue.name } });
      add({ id: `queue-${queue.name}`, icon: Rows3, title: queue.name, aside: t("nav.queues"), run });
    }
    if (isName && isOpen("/jobs")) {
      const run = () => void navigate({ to: "/jobs", search: { name: text } });
      add({ id: "named", icon: Filter, title: t("palette.jobsNamed", { name: text }), run });
    }
    if (text === "" || matches(t("palette.theme"), "theme dark light")) {
      const next = theme === "dark" ? "light" : "dark";
      add({ id: "theme", icon: Moon, title: t("palette.theme"), run: () => setPreferences({ theme: next }) });
    }
    if (text === "" || matches("language 语言 english 中文")) {
      const next = language === "en" ? "zh-CN" : "en";
      const title = next === "en" ? "Switch to English" : "切换到中文";
      add({ id: "language", icon: ArrowRight, title, run: () => setPreferences({ language: next }) });
    }
    return commands;
  }, [
    text,
    me,
    actions,
    isId,
    isName,
    jobs,
    schedules,
    workflows,
    services,
    workers,
    queues,
    language,
    theme,
    namespace,
    t,
    navigate,
  ]);
}

/**
 * Returns the first five items found. While the results for the current text are loading, these are the previous
 * results that match it.
 */
function matchingItems<T extends { name: string }>(
  found: { data: { items: T[] } | undefined; isPlaceholderData: boolean },
  fits: (name: string) => boolean,
): T[] {
  const items = found.data?.items ?? [];
  return (found.isPlaceholderData ? items.filter((item) => fits(item.name)) : items).slice(0, 5);
}
