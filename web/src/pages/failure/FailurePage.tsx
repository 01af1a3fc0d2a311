/** A failure group: its hours, job names and newest jobs, and its state. */

import { Button } from "@mantine/core";
import { useQueries, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { BellOff, Check, ChevronRight, type LucideIcon, PenLine, RotateCcw, Wrench } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { failureQuery } from "../../api/failures";
import { ApiError } from "../../api/errors";
import { jobQuery } from "../../api/queries";
import type { FailureGroup, FailureState } from "../../api/schema";
import { FAILURE_STATES, hoursUntil } from "../../lib/failures";
import { useNow } from "../../lib/now";
import { usePreferences } from "../../lib/preferences";
import { failureError, failureText, resultText } from "../../lib/serverMessages";
import { usePageTitle } from "../../lib/title";
import { FailedJobs } from "../../ui/charts/Charts";
import { Allowed } from "../../ui/Allowed";
import { Card, ErrorBox, Id, KeyValueList, Loading, Page } from "../../ui/kit";
import { FailureBadge, StatusBadge } from "../../ui/Status";
import { AbsoluteTime, RelativeTime } from "../../ui/Time";
import { namedSearch } from "../jobName/search";
import style from "./failure.module.css";
import { StateDialog } from "./StateDialog";

const route = getRouteApi("/failures/$id");

export function FailurePage() {
  const { t } = useTranslation();
  const { id } = route.useParams();
  const { namespace = "default" } = route.useSearch();
  const { data: group, error, refetch } = useQuery(failureQuery(id, namespace));
  usePageTitle(group ? failureText(group, t).message : t("nav.failures"));
  if (group) return <Group group={group} />;
  return (
    <Page title={t("nav.failures")}>
      {error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={8} />}
    </Page>
  );
}

function Group({ group }: { group: FailureGroup }) {
  const { t } = useTranslation();
  const { message } = failureText(group, t);
  return (
    <Page
      title={
        <div className={style.crumbs}>
          <Link to="/failures" className="quiet">
            {t("nav.failures")}
          </Link>
          <ChevronRight size={14} className="quiet" aria-hidden />
          <h1 title={message}>{message}</h1>
          <FailureBadge group={group} />
        </div>
      }
      actions={
        <Allowed verb="operate" on="jobs" in={group.namespace}>
          <Actions group={group} />
        </Allowed>
      }
    >
      <StateLine group={group} />
      <div className={style.columns}>
        <div className={style.main}>
          <Card title={t("chart.history")}>
            <Hours group={group} />
          </Card>
          <Card title={t("failureGroup.jobs")} flush>
            <NewestJobs group={group} />
          </Card>
        </div>
        <div className={style.side}>
          <Details group={group} />
          <Card title={t("failureGroup.columns.names")} flush>
            <Names group={group} />
          </Card>
        </div>
      </div>
    </Page>
  );
}

const ICONS: Record<FailureState, LucideIcon> = {
  open: RotateCcw,
  known: Wrench,
  muted: BellOff,
  resolved: Check,
};

/** The other states that a user can set. */
function Actions({ group }: { group: FailureGroup }) {
  const { t } = useTranslation();
  const [asked, setAsked] = useState<FailureState | null>(null);
  return (
    <>
      {FAILURE_STATES.filter((state) => state !== group.state).map((state) => {
        const Icon = ICONS[state];
        return (
          <Button
            key={state}
            variant="default"
            leftSection={<Icon size={14} />}
            onClick={() => setAsked(state)}
          >
            {t(`failureGroup.mark.${state}`)}
          </Button>
        );
      })}
      {asked && <StateDialog group={group} state={asked} onClose={() => setAsked(null)} />}
    </>
  );
}

/** Who set the state, when, and the note. */
function StateLine({ group }: { group: FailureGroup }) {
  const { t } = useTranslation();
  const [isEditing, setEditing] = useState(false);
  const { state_set_by: name, state_set_at: at, note, reopened } = group;
  const state = reopened ? "resolved" : group.state;
  if (state === "open" || !name || !at) return null;
  return (
    <div className={style.stateLine}>
      <p>
        {t(`failureGroup.setBy.${state}`, { name })} · <RelativeTime at={at} />
        {reopened && ` · ${t("failureGroup.failedSince")}`}
        {note && <q>{note}</q>}
      </p>
      {!reopened && (
        <Allowed verb="operate" on="jobs" in={group.namespace}>
          <Button variant="subtle" leftSection={<PenLine size={13} />} onClick={() => setEditing(true)}>
            {t("failureGroup.editNote")}
          </Button>
        </Allowed>
      )}
      {isEditing && <StateDialog group={group} state={group.state} onClose={() => setEditing(false)} />}
    </div>
  );
}

/** Hours of the chart: those that a group counts. */
const CHART_HOURS = 168;
const HOUR_MS = 3_600_000;

function Hours({ group }: { group: FailureGroup }) {
  const now = useNow();
  const last = Date.parse(group.last_seen);
  // Without failures in the last days, the chart shows the days before the newest one.
  const end = now - last < CHART_HOURS * HOUR_MS ? now : last;
  return <FailedJobs hours={hoursUntil(group.hours, end, CHART_HOURS)} />;
}

function Details({ group }: { group: FailureGroup }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  return (
    <Card title={t("failureGroup.details")}>
      <KeyValueList
        rows={[
          [t("failureGroup.error"), failureError(group, t)],
          [t("failureGroup.code"), <code key="">{group.error}</code>],
          [
            t("failureGroup.columns.day"),
            <span key="" className="num">
              {group.last_24h.toLocaleString(language)}
            </span>,
          ],
          [
            t("failureGroup.columns.total"),
            <span key="" className="num">
              {group.count.toLocaleString(language)}
            </span>,
          ],
          [t("failureGroup.columns.first"), <AbsoluteTime key="" at={group.first_seen} />],
          [t("failureGroup.columns.last"), <AbsoluteTime key="" at={group.last_seen} />],
          [t("job.details.namespace"), group.namespace],
          [t("failureGroup.signature"), group.signature ? <code key="">{group.signature}</code> : "–"],
          ["ID", <Id key="" id={group.id} />],
        ]}
      />
    </Card>
  );
}

function Names({ group }: { group: FailureGroup }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  return (
    <ul className={style.names} aria-label={t("failureGroup.columns.names")}>
      {group.names.map(({ name, count, last_seen: last }) => (
        <li key={name ?? ""}>
          {name ? (
            <Link
              to="/jobs/named/$name"
              params={{ name }}
              search={namedSearch(group.namespace)}
              className="clip"
            >
              {name}
            </Link>
          ) : (
            <span className="clip">{t("failureGroup.otherNames")}</span>
          )}
          <span className="num">{count.toLocaleString(language)}</span>
          <span className="quiet">
            <RelativeTime at={last} />
          </span>
        </li>
      ))}
      {group.unlisted_names > 0 && (
        <li>
          <span className="quiet">{t("failureGroup.unlisted")}</span>
          <span className="num">{group.unlisted_names.toLocaleString(language)}</span>
        </li>
      )}
    </ul>
  );
}

/** The newest jobs of the group, at most ten. A job may be deleted before its group. */
function NewestJobs({ group }: { group: FailureGroup }) {
  const { t } = useTranslation();
  const jobs = useQueries({ queries: group.jobs.map((id) => ({ ...jobQuery(id), staleTime: Infinity })) });
  if (jobs.some(({ isPending }) => isPending)) {
    return (
      <div className={style.padded}>
        <Loading rows={group.jobs.length} />
      </div>
    );
  }
  return (
    <ul className={style.jobs} aria-label={t("failureGroup.jobs")} data-testid="group-jobs">
      {jobs.map(({ data: job, error }, i) => {
        const id = group.jobs[i] ?? "";
        if (!job) {
          const isDeleted = ApiError.from(error).status === 404;
          return (
            <li key={id} className="quiet">
              <span>{isDeleted ? t("failureGroup.deletedJob") : "–"}</span>
              <code className="clip">{id}</code>
            </li>
          );
        }
        return (
          <li key={id}>
            <StatusBadge status={job.status} plain />
            <span className={style.job}>
              <Link to="/jobs/$id" params={{ id }}>
                {job.name}
              </Link>
              <span className="quiet clip">{job.status === "failed" && resultText(job.result, t)}</span>
            </span>
            <span className="quiet">
              <RelativeTime at={job.finished_at} />
            </span>
          </li>
        );
      })}
    </ul>
  );
}
