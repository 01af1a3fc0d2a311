/** One job: status and waiting reasons, executions, log, timeline, spec, artifacts. */

import { Button, Menu, Tabs, ActionIcon } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import {
  Ban,
  ChevronRight,
  Ellipsis,
  FileCode2,
  FilePen,
  FolderOpen,
  GitCompareArrows,
  History,
  RotateCcw,
  ScrollText,
} from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { retryJob } from "../../api/actions";
import { lastSuccessOfJob } from "../../api/compare";
import { jobEventsQuery, jobExecutionsQuery, jobQuery, jobsByNameQuery } from "../../api/queries";
import type { Execution, Job } from "../../api/schema";
import { stepWhyQuery } from "../../api/workflows";
import { jobFailureOf, stepCauseOf } from "../../lib/failureCauses";
import { toResubmitCommand } from "../../lib/submitCommands";
import { isLive } from "../../lib/statuses";
import { usePageTitle } from "../../lib/title";
import { runAction, copyAndNotify, notify } from "../../ui/notify";
import { Allowed, AllowedSomewhere } from "../../ui/Allowed";
import { Card, Id, Loading, Page, ErrorBox } from "../../ui/kit";
import { OverdueBadge, StatusBadge } from "../../ui/Status";
import { WatchButton } from "../../ui/WatchButton";
import { namedSearch } from "../jobName/search";
import { Artifacts } from "./Artifacts";
import { CancelDialog } from "./CancelDialog";
import { FailureSection, JobFailureDetails } from "./FailureCard";
import { Gantt } from "./Gantt";
import style from "./job.module.css";
import { LogView } from "./LogView";
import { RecentJobs } from "./RecentJobs";
import { JobSpecView } from "./JobSpecView";
import { ReplicaOf } from "./ReplicaOf";
import { Summary } from "./Summary";
import { Timeline } from "./Timeline";
import { WaitingReasons } from "./WaitingReasons";

const route = getRouteApi("/jobs/$id");
const TABS = ["log", "timeline", "spec", "files"] as const;
type Tab = (typeof TABS)[number];
const ICONS = { log: ScrollText, timeline: History, spec: FileCode2, files: FolderOpen };

export function JobPage() {
  const { id } = route.useParams();
  const job = useQuery(jobQuery(id));
  const executions = useQuery(jobExecutionsQuery(id));
  usePageTitle(job.data?.name ?? "");
  if (job.error && !job.data) {
    return (
      <Page title={<Crumbs name={id} />}>
        <ErrorBox error={job.error} onRetry={() => void job.refetch()} />
      </Page>
    );
  }
  if (!job.data) {
    return (
      <Page title={<Crumbs name="…" />}>
        <Loading rows={8} />
      </Page>
    );
  }
  return <JobDetails key={id} job={job.data} executions={executions.data?.items ?? []} />;
}

function Crumbs(props: { name: string; namespace?: string; children?: React.ReactNode }) {
  const { name, namespace, children } = props;
  const { t } = useTranslation();
  return (
    <div className={style.crumbs}>
      <Link to="/jobs" className="quiet">
        {t("nav.jobs")}
      </Link>
      <ChevronRight size={14} className="quiet" aria-hidden />
      <h1 className="clip">
        {namespace === undefined ? (
          name
        ) : (
          <Link
            to="/jobs/named/$name"
            params={{ name }}
            search={namedSearch(namespace)}
            title={t("jobName.link", { name })}
          >
            {name}
          </Link>
        )}
      </h1>
      {children}
    </div>
  );
}

function JobDetails({ job, executions }: { job: Job; executions: readonly Execution[] }) {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const recentJobs = useQuery(jobsByNameQuery(job.name, job.namespace)).data?.items ?? [];
  const events = useQuery(jobEventsQuery(job.id));
  const tab: Tab = TABS.find((each) => each === search.tab) ?? "log";
  const number = search.execution === undefined ? undefined : Number(search.execution);
  const line = search.line === undefined ? undefined : Number(search.line);
  const live = isLive(job.status);
  const { step } = job;
  const stepWhy = useQuery({
    ...stepWhyQuery(step?.run ?? "", step?.name ?? ""),
    enabled: job.status === "cancelled" && step != null && step.element == null,
    retry: false,
  }).data;
  const failure = jobFailureOf(job, events.data?.items ?? [], stepCauseOf(job, stepWhy));
  const execution = executions.find(({ id }) => id === job.execution_id);

  return (
    <Page
      title={
        <Crumbs name={job.name} namespace={job.namespace}>
          <StatusBadge status={job.status} />
          {job.overdue && <OverdueBadge job={job} />}
        </Crumbs>
      }
      actions={<Actions job={job} />}
    >
      <div className={style.sub}>
        <Id id={job.id} />
        {job.replica && <ReplicaOf replica={job.replica} namespace={job.namespace} />}
        {recentJobs.length > 1 && <RecentJobs job={job} jobs={recentJobs} />}
      </div>
      {live && <WaitingReasons id={job.id} />}
      {failure && (
        <FailureSection status={job.status as "failed" | "expired" | "cancelled"}>
          <JobFailureDetails
            job={job}
            failure={failure}
            execution={execution}
            logLink={(text, line) => (
              <Link
                to="/jobs/$id"
                params={{ id: job.id }}
                search={{ ...search, tab: "log", execution: undefined, line: line?.toString() }}
              >
                {text}
              </Link>
            )}
          />
        </FailureSection>
      )}
      <div className={style.columns}>
        <div className={style.main}>
          {executions.length > 0 && (
            <Card
              title={t("job.attempts")}
              aside={<ExecutionsAside job={job} executions={executions} selected={number} />}
            >
              <Gantt
                job={job}
                executions={executions}
                selected={number}
                onSelect={(chosen) =>
                  void navigate({
                    search: { ...search, execution: String(chosen), line: undefined, tab: "log" },
                    replace: true,
                  })
                }
              />
            </Card>
          )}
          <Card flush className={style.tabs}>
            <Tabs
              value={tab}
              onChange={(next) =>
                void navigate({ search: { ...search, tab: next ?? undefined }, replace: true })
              }
              keepMounted={false}
              classNames={{ root: style.tabsRoot, panel: style.panel }}
            >
              <Tabs.List>
                {TABS.map((each) => {
                  const Icon = ICONS[each];
                  return (
                    <Tabs.Tab key={each} value={each} leftSection={<Icon size={14} aria-hidden />}>
                      {t(`job.tabs.${each}`)}
                    </Tabs.Tab>
                  );
                })}
              </Tabs.List>
              <Tabs.Panel value="log">
                <LogView
                  key={`${job.id} ${number ?? job.execution_id}`}
                  job={job.id}
                  name={job.name}
                  execution={number}
                  live={live}
                  line={line}
                  onLine={(next) =>
                    void navigate({ search: { ...search, line: next?.toString() }, replace: true })
                  }
                />
              </Tabs.Panel>
              <Tabs.Panel value="timeline">
                {events.error ? (
                  <ErrorBox error={events.error} />
                ) : (
                  <Timeline events={events.data?.items ?? []} />
                )}
              </Tabs.Panel>
              <Tabs.Panel value="spec">{job.spec && <JobSpecView spec={job.spec} />}</Tabs.Panel>
              <Tabs.Panel value="files">{job.spec && <Artifacts spec={job.spec} />}</Tabs.Panel>
            </Tabs>
          </Card>
        </div>
        <aside className={style.side}>
          <Summary
            job={job}
            execution={execution}
            selected={executions.find((each) => each.number === number) ?? execution}
            isExplained={failure !== null}
          />
        </aside>
      </div>
    </Page>
  );
}

interface ExecutionsAsideProps {
  job: Job;
  executions: readonly Execution[];
  selected: number | undefined;
}

/** A hint, and the comparison of the selected or newest execution with the one before. */
function ExecutionsAside({ job: { id, executions: count }, executions, selected }: ExecutionsAsideProps) {
  const { t } = useTranslation();
  if (executions.length < 2) return null;
  const last = Math.max(2, selected ?? count);
  const pair = { execution_a: String(last - 1), execution_b: String(last) };
  return (
    <>
      {t("job.attemptsHint")}{" "}
      <Link to="/compare" search={{ a: id, b: id, ...pair }}>
        {t("compare.executions", { a: last - 1, b: last })}
      </Link>
    </>
  );
}

function Actions({ job }: { job: Job }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [cancelling, setCancelling] = useState(false);
  const live = isLive(job.status);
  const compare = async () => {
    const success = await runAction(() => lastSuccessOfJob(job));
    if (success === null) notify(t("compare.noSuccess"));
    else if (success) void navigate({ to: "/compare", search: { a: success, b: job.id } });
  };
  const retry = async () => {
    const id = await runAction(() => retryJob(job.id));
    if (!id) return;
    notify(t("job.retried"));
    void navigate({ to: "/jobs/$id", params: { id } });
  };
  return (
    <>
      {live && <WatchButton target={{ kind: "jobs", id: job.id, name: job.name }} />}
      <Allowed verb="operate" on="jobs" in={job.namespace}>
        {live ? (
          <Button
            variant="default"
            leftSection={<Ban size={14} />}
            onClick={() => setCancelling(true)}
            disabled={Boolean(job.cancel_requested_at)}
          >
            {job.cancel_requested_at ? t("job.cancelling") : t("job.cancel")}
          </Button>
        ) : (
          <Button leftSection={<RotateCcw size={14} />} onClick={() => void retry()}>
            {t("job.retry")}
          </Button>
        )}
      </Allowed>
      <AllowedSomewhere verb="create" on="jobs">
        <Button
          renderRoot={(props) => <Link to="/submit" search={{ from: job.id }} {...props} />}
          variant="default"
          leftSection={<FilePen size={14} />}
          visibleFrom="sm"
        >
          {t("job.again")}
        </Button>
      </AllowedSomewhere>
      <Menu>
        <Menu.Target>
          <ActionIcon variant="default" aria-label={t("job.more")}>
            <Ellipsis size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <AllowedSomewhere verb="create" on="jobs">
            <Menu.Item
              renderRoot={(props) => <Link to="/submit" search={{ from: job.id }} {...props} />}
              hiddenFrom="sm"
            >
              {t("job.again")}
            </Menu.Item>
          </AllowedSomewhere>
          <Menu.Item
            renderRoot={(props) => (
              <Link
                to="/jobs/named/$name"
                params={{ name: job.name }}
                search={namedSearch(job.namespace)}
                {...props}
              />
            )}
          >
            {t("job.sameName")}
          </Menu.Item>
          <Menu.Item leftSection={<GitCompareArrows size={14} />} onClick={() => void compare()}>
            {t("compare.withSuccess")}
          </Menu.Item>
          {job.spec && (
            <Menu.Item onClick={() => void copyAndNotify(toResubmitCommand(job.spec!))}>
              {t("job.copySubmit")}
            </Menu.Item>
          )}
          <Menu.Item onClick={() => void copyAndNotify(`belfry job get ${job.id}`)}>
            {t("job.copyGet")}
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      {cancelling && <CancelDialog job={job} onClose={() => setCancelling(false)} />}
    </>
  );
}
