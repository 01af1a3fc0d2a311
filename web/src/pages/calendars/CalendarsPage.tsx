/** All calendars, built-in and user-defined. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Package, Plus, Upload } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { calendarsQuery } from "../../api/schedules";
import { calendarDescription } from "../../lib/codeTexts";
import { usePageTitle } from "../../lib/title";
import { AllowedSomewhere } from "../../ui/Allowed";
import { Loading, Page, ErrorBox } from "../../ui/kit";
import { ToneBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import { Sections } from "../schedules/Sections";
import style from "./calendars.module.css";
import { ImportDialog } from "./ImportDialog";

export function CalendarsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.calendars"));
  const { data, error, refetch } = useQuery(calendarsQuery);
  const [importing, setImporting] = useState(false);
  return (
    <Page
      title={t("nav.calendars")}
      actions={
        <AllowedSomewhere verb="change" on="calendars">
          <Button variant="default" leftSection={<Upload size={14} />} onClick={() => setImporting(true)}>
            {t("calendar.import")}
          </Button>
          <Button
            renderRoot={(props) => <Link to="/calendars/new" {...props} />}
            leftSection={<Plus size={14} />}
          >
            {t("calendar.new")}
          </Button>
        </AllowedSomewhere>
      }
    >
      <Sections />
      {error && !data && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading />}
      {data && (
        <ul className={style.list}>
          {data.items.map((calendar) => (
            <li key={`${calendar.namespace} ${calendar.name}`}>
              <span className={style.name}>
                <Link
                  to="/calendars/$name"
                  params={{ name: calendar.name }}
                  search={{ namespace: calendar.namespace ?? undefined }}
                  className="clip"
                >
                  {calendar.name}
                </Link>
                {calendar.built_in && (
                  <ToneBadge tone="cancelled" icon={Package} word={t("calendar.builtIn")} />
                )}
                {calendar.namespace && calendar.namespace !== "default" && (
                  <span className="quiet">{calendar.namespace}</span>
                )}
              </span>
              <span className="quiet">{calendarDescription(calendar, t)}</span>
              <span className={`${style.until} quiet`}>
                {calendar.known_until ? (
                  t("calendar.knownUntil", { day: calendar.known_until })
                ) : (
                  <RelativeTime at={calendar.updated_at} />
                )}
              </span>
            </li>
          ))}
        </ul>
      )}
      {importing && <ImportDialog onClose={() => setImporting(false)} />}
    </Page>
  );
}
