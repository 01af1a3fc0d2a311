/** One schedule: its rule in words, statistics, history, next firings, ledger, backfills and spec. */

import { ActionIcon, Button, Menu, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import {
  BookOpenText,
  ChevronRight,
  CirclePause,
  Copy,
  Ellipsis,
  FileCode2,
  FilePen,
  History,
  ListChecks,
  Pause,
  Play,
  TimerOff,
  Trash2,
  Zap,
} from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import {
  newestScheduleRunsQuery,
  nextFiringsQuery,
  resumeSchedule,
  scheduleQuery,
} from "../../api/schedules";
import type { Schedule, LateOrStuckRun } from "../../api/schema";
import { usePreferences, useScheduleZone } from "../../lib/preferences";
import { toYaml } from "../../lib/spec";
import { parseRange } from "../../lib/statistics";
import { usePageTitle } from "../../lib/title";
import { Allowed, AllowedSomewhere } from "../../ui/Allowed";
import { runAction } from "../../ui/notify";
import { JobDaysCard, RunDaysCard } from "../../ui/heatMap/DaysCard";
import { HistoryCard } from "../../ui/charts/History";
import { CodeHighlight } from "../../ui/Code";
import { Card, Loading, Page, ErrorBox } from "../../ui/kit";
import { RelativeTime } from "../../ui/Time";
import { AllRunsLink, ScheduleRunBars } from "../schedules/ScheduleRunBars";
import { HealthBadges, ScheduleBadge } from "../schedules/ScheduleBadge";
import { Backfills } from "./Backfills";
import { BackfillDialog } from "./BackfillDialog";
import { DeleteDialog, PauseDialog, TriggerDialog } from "./dialogs";
import { LedgerView } from "./LedgerView";
import { NextFirings } from "./NextFirings";
import { ScheduleSummary, ScheduleStatistics, Policies } from "./Policies";
import style from "./schedule.module.css";

const route = getRouteApi("/schedules/$id");
const TABS = ["ledger", "backfills", "spec"] as const;
type Tab = (typeof TABS)[number];
const ICONS = { ledger: BookOpenText, backfills: History, spec: FileCode2 };
const NEXT_FIRINGS = 15;

export function SchedulePage() {
  const { id } = route.useParams();
  const { namespace } = route.useSearch();
  const { data, error, refetch } = useQuery(scheduleQuery(id, namespace));
  usePageTitle(data?.name ?? "");
  if (error && (!data || ApiError.from(error).code === "schedule_not_found")) {
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
  return <ScheduleDetails schedule={data} />;
}

export function Crumbs({ name, children }: { name: string; children?: React.ReactNode }) {
  const { t } = useTranslation();
  return (
    <div className={style.crumbs}>
      <Link to="/schedules" className="quiet">
        {t("nav.schedules")}
      </Link>
      <ChevronRight size={14} className="quiet" aria-hidden />
      <h1 className="clip">{name}</h1>
      {children}
    </div>
  );
}

function ScheduleDetails({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  useScheduleZone(schedule.zone);
  const { language } = usePreferences();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const tab: Tab = TABS.find((each) => each === search.tab) ?? "ledger";
  const next = useQuery(nextFiringsQuery(schedule.id, NEXT_FIRINGS));
  const runs = useQuery(newestScheduleRunsQuery(schedule)).data ?? [];
  const description = next.data?.description[language];

  return (
    <Page
      title={
        <Crumbs name={schedule.name}>
          <ScheduleBadge status={schedule.status} />
          <HealthBadges health={schedule.health} />
        </Crumbs>
      }
      actions={<Actions schedule={schedule} />}
    >
      <div className={style.words}>
        <p data-testid="words">{description ?? schedule.when}</p>
        {schedule.description && <p className="quiet">{schedule.description}</p>}
      </div>
      {schedule.pause && <PausedBanner schedule={schedule} />}
      <LateOrStuckRuns kind="late" runs={schedule.health?.late_runs ?? []} />
      <LateOrStuckRuns kind="stuck" runs={schedule.health?.stuck_runs ?? []} />
      <ScheduleStatistics schedule={schedule} />
      <div className={style.columns}>
        <div className={style.main}>
          {runs.length > 0 && (
            <Card
              title={t("schedule.recentRuns")}
              aside={<AllRunsLink schedule={schedule}>{t("schedule.allRuns")}</AllRunsLink>}
            >
              <ScheduleRunBars runs={runs} linked />
            </Card>
          )}
          <HistoryCard
            subject={{ schedule: schedule.id }}
            charts={["ended", "runTime", "startDelay"]}
            range={parseRange(search.range)}
            onRange={(range) => void navigate({ search: { ...search, range }, replace: true })}
          />
          {schedule.spec?.workflow ? (
            <RunDaysCard filter={{ schedule: schedule.id }} />
          ) : (
            <JobDaysCard subject={{ schedule: schedule.id }} />
          )}
          <Card flush className={style.tabs}>
            <Tabs
              value={tab}
              onChange={(chosen) =>
                void navigate({ search: { ...search, tab: chosen ?? undefined }, replace: true })
              }
              keepMounted={false}
            >
              <Tabs.List>
                {TABS.map((each) => {
                  const Icon = ICONS[each];
                  return (
                    <Tabs.Tab key={each} value={each} leftSection={<Icon size={14} aria-hidden />}>
                      {t(`schedule.tabs.${each}`)}
                    </Tabs.Tab>
                  );
                })}
              </Tabs.List>
              <Tabs.Panel value="ledger">
                <LedgerView
                  schedule={schedule}
                  search={search}
                  onChange={(part) => void navigate({ search: { ...search, ...part }, replace: true })}
                />
              </Tabs.Panel>
              <Tabs.Panel value="backfills">
                <Backfills schedule={schedule} />
              </Tabs.Panel>
              <Tabs.Panel value="spec">
                {schedule.spec && <CodeHighlight text={toYaml(schedule.spec)} />}
              </Tabs.Panel>
            </Tabs>
          </Card>
        </div>
        <aside className={style.side}>
          <NextFirings schedule={schedule} preview={next.data} error={next.error} />
          {schedule.spec && <Policies spec={schedule.spec} />}
          <ScheduleSummary schedule={schedule} />
        </aside>
      </div>
    </Page>
  );
}

function PausedBanner({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const { pause, id, name } = schedule;
  if (!pause) return null;
  const by =
    pause.by === "belfry" ? t("schedule.pausedByBelfry") : t("schedule.pausedBy", { name: pause.by });
  return (
    <div className={style.banner} role="status">
      <CirclePause size={16} aria-hidden />
      <div>
        <strong>{by}</strong>{" "}
        <span className="quiet">
          <RelativeTime at={pause.at} />
        </span>
        {pause.note && <q>{pause.note}</q>}
      </div>
      <Allowed verb="operate" on="schedules" in={schedule.namespace}>
        <Button
          variant="default"
          leftSection={<Play size={13} />}
          onClick={() => void runAction(() => resumeSchedule(id), t("schedule.resumed", { name }))}
        >
          {t("schedule.resume")}
        </Button>
      </Allowed>
    </div>
  );
}

function LateOrStuckRuns({ kind, runs }: { kind: "late" | "stuck"; runs: readonly LateOrStuckRun[] }) {
  const { t } = useTranslation();
  if (runs.length === 0) return null;
  return (
    <div className={style.banner} data-bad={kind === "stuck" || undefined} role="status">
      <TimerOff size={16} aria-hidden />
      <div>
        <strong>{t(`schedule.${kind}Now`, { count: runs.length })}</strong>
        <ul>
          {runs.slice(0, 5).map((run) => (
            <li key={run.job_id ?? run.run_id}>
              <RunLink run={run} />
              <span>
                {t(`schedule.${kind}By`)} <RelativeTime at={run.expected_by} />
              </span>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

function RunLink({ run: { job_id, run_id } }: { run: LateOrStuckRun }) {
  const id = run_id ?? job_id ?? "";
  return (
    <Link to={run_id ? "/runs/$id" : "/jobs/$id"} params={{ id }} className="mono">
      …{id.slice(-8)}
    </Link>
  );
}

function Actions({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState<"trigger" | "pause" | "backfill" | "delete" | null>(null);
  const close = () => setOpen(null);
  const { id, name, namespace } = schedule;
  return (
    <>
      <Allowed verb="operate" on="schedules" in={namespace}>
        <Button leftSection={<Zap size={14} />} onClick={() => setOpen("trigger")}>
          {t("schedule.trigger")}
        </Button>
        {schedule.status === "paused" ? (
          <Button
            variant="default"
            leftSection={<Play size={14} />}
            onClick={() => void runAction(() => resumeSchedule(id), t("schedule.resumed", { name }))}
          >
            {t("schedule.resume")}
          </Button>
        ) : (
          <Button
            variant="default"
            leftSection={<Pause size={14} />}
            onClick={() => setOpen("pause")}
            disabled={schedule.status === "completed"}
          >
            {t("schedule.pause")}
          </Button>
        )}
      </Allowed>
      <Allowed verb="change" on="schedules" in={namespace}>
        <Button
          renderRoot={(props) => <Link to="/schedules/$id/edit" params={{ id }} {...props} />}
          variant="default"
          leftSection={<FilePen size={14} />}
          visibleFrom="sm"
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
          <Allowed verb="change" on="schedules" in={namespace}>
            <Menu.Item
              renderRoot={(props) => <Link to="/schedules/$id/edit" params={{ id }} {...props} />}
              leftSection={<FilePen size={14} />}
              hiddenFrom="sm"
            >
              {t("schedule.edit")}
            </Menu.Item>
          </Allowed>
          <Allowed verb="operate" on="schedules" in={namespace}>
            <Menu.Item leftSection={<History size={14} />} onClick={() => setOpen("backfill")}>
              {t("backfill.start")}
            </Menu.Item>
          </Allowed>
          <Menu.Item
            leftSection={<ListChecks size={14} />}
            renderRoot={(props) => <AllRunsLink schedule={schedule} {...props} />}
          >
            {t("schedule.allRuns")}
          </Menu.Item>
          <AllowedSomewhere verb="change" on="schedules">
            <Menu.Item
              leftSection={<Copy size={14} />}
              renderRoot={(props) => <Link to="/schedules/new" search={{ from: id }} {...props} />}
            >
              {t("schedule.duplicate")}
            </Menu.Item>
          </AllowedSomewhere>
          <Allowed verb="delete" on="schedules" in={namespace}>
            <Menu.Divider />
            <Menu.Item leftSection={<Trash2 size={14} />} color="red" onClick={() => setOpen("delete")}>
              {t("schedule.delete")}
            </Menu.Item>
          </Allowed>
        </Menu.Dropdown>
      </Menu>
      {open === "trigger" && <TriggerDialog schedule={schedule} onClose={close} />}
      {open === "pause" && <PauseDialog schedule={schedule} onClose={close} />}
      {open === "backfill" && <BackfillDialog schedule={schedule} onClose={close} />}
      {open === "delete" && <DeleteDialog schedule={schedule} onClose={close} />}
    </>
  );
}
