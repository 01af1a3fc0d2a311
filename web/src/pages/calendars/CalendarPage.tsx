/** One calendar: its days of a year, and its spec. */

import { ActionIcon, Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { ChevronLeft, ChevronRight, FilePen, Package, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { calendarDaysQuery, calendarQuery, deleteCalendar } from "../../api/schedules";
import { useNow } from "../../lib/now";
import { usePreferences } from "../../lib/preferences";
import { toYaml } from "../../lib/spec";
import { toWallTime } from "../../lib/time";
import { calendarDescription } from "../../lib/codeTexts";
import { usePageTitle } from "../../lib/title";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { CodeHighlight } from "../../ui/Code";
import { Allowed } from "../../ui/Allowed";
import { Card, Loading, Page, ErrorBox } from "../../ui/kit";
import { ToneBadge } from "../../ui/Status";
import style from "./calendars.module.css";
import { YearGrid } from "./YearGrid";

const route = getRouteApi("/calendars/$name");

export function CalendarPage() {
  const { t } = useTranslation();
  const { name } = route.useParams();
  const search = route.useSearch();
  const { namespace } = search;
  const { zone } = usePreferences();
  const today = toWallTime(useNow(), zone).slice(0, 10);
  const year = Number(search.year ?? today.slice(0, 4)) || Number(today.slice(0, 4));
  const navigate = route.useNavigate();
  const [deleting, setDeleting] = useState(false);
  const { data, error, refetch } = useQuery(calendarQuery(name, namespace));
  const days = useQuery(calendarDaysQuery(name, namespace, year));
  usePageTitle(name);
  const go = (to: number) => void navigate({ search: { ...search, year: String(to) }, replace: true });
  const count = days.data?.days.length ?? 0;

  return (
    <Page
      title={
        <CalendarCrumbs name={name}>
          {data?.built_in && <ToneBadge tone="cancelled" icon={Package} word={t("calendar.builtIn")} />}
        </CalendarCrumbs>
      }
      actions={
        data &&
        !data.built_in && (
          <>
            <Allowed verb="change" on="calendars" in={data.namespace ?? undefined}>
              <Button
                variant="default"
                leftSection={<FilePen size={14} />}
                renderRoot={(props) => (
                  <Link to="/calendars/$name/edit" params={{ name }} search={{ namespace }} {...props} />
                )}
              >
                {t("schedule.edit")}
              </Button>
            </Allowed>
            <Allowed verb="delete" on="calendars" in={data.namespace ?? undefined}>
              <Button variant="default" leftSection={<Trash2 size={14} />} onClick={() => setDeleting(true)}>
                {t("schedule.delete")}
              </Button>
            </Allowed>
          </>
        )
      }
    >
      {data?.description && <p className={style.description}>{calendarDescription(data, t)}</p>}
      {error && !data && <ErrorBox error={error} onRetry={() => void refetch()} />}
      <Card
        title={
          <span className={style.yearHead}>
            <ActionIcon aria-label={t("calendar.yearBefore")} onClick={() => go(year - 1)}>
              <ChevronLeft size={16} />
            </ActionIcon>
            <span className="num">{year}</span>
            <ActionIcon aria-label={t("calendar.yearAfter")} onClick={() => go(year + 1)}>
              <ChevronRight size={16} />
            </ActionIcon>
          </span>
        }
        aside={days.data && t("calendar.days", { count })}
      >
        {days.data?.known_until && days.data.known_until < `${year}-12-31` && (
          <p className={style.unknown}>{t("calendar.unknown", { day: days.data.known_until })}</p>
        )}
        {days.error && !days.data ? <ErrorBox error={days.error} /> : null}
        {!days.data && !days.error && <Loading rows={8} />}
        {days.data && (
          <YearGrid
            year={year}
            days={new Set(days.data.days)}
            today={today}
            knownUntil={days.data.known_until}
          />
        )}
      </Card>
      {data?.spec && (
        <Card title={t("calendar.file")} flush>
          <CodeHighlight text={toYaml(data.spec)} />
        </Card>
      )}
      {deleting && <DeleteDialog name={name} namespace={namespace} onClose={() => setDeleting(false)} />}
    </Page>
  );
}

export function CalendarCrumbs({ name, children }: { name: string; children?: React.ReactNode }) {
  const { t } = useTranslation();
  return (
    <div className={style.crumbs}>
      <Link to="/calendars" className="quiet">
        {t("nav.calendars")}
      </Link>
      <ChevronRight size={14} className="quiet" aria-hidden />
      <h1 className="clip">{name}</h1>
      {children}
    </div>
  );
}

function DeleteDialog(props: { name: string; namespace?: string; onClose: () => void }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const { name, namespace, onClose } = props;
  const remove = async () => {
    await deleteCalendar(name, namespace);
    void navigate({ to: "/calendars" });
  };
  return (
    <ConfirmDialog
      title={t("schedule.deleteTitle", { name })}
      text={t("calendar.deleteText")}
      confirm={t("schedule.delete")}
      red
      onConfirm={remove}
      done={t("schedule.deleted", { name })}
      onClose={onClose}
    />
  );
}
