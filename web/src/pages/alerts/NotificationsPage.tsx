/** The history of notifications. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Send, SearchX } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { notificationsQuery } from "../../api/alerts";
import { NOTIFICATION_STATUSES, type NotificationsSearch } from "../../lib/alerts";
import { usePageTitle } from "../../lib/title";
import { FilterField } from "../../ui/FilterField";
import filters from "../../ui/filters.module.css";
import { EmptyState, ErrorBox, Loading, Page } from "../../ui/kit";
import { NotificationTable } from "./NotificationTable";
import { Sections } from "./Sections";

const route = getRouteApi("/alerts/notifications");
/** Notifications that are read at first, and at most. */
const PAGE = 100;
const PAGE_MAX = 1_000;

export function NotificationsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.notifications"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [limit, setLimit] = useState(PAGE);
  const list = useQuery(notificationsQuery(search, limit));
  const { data, error } = list;
  const change = (next: NotificationsSearch) => void navigate({ search: next, replace: true });
  return (
    <Page title={t("nav.alerts")}>
      <Sections />
      <div className={filters.filters}>
        <FilterField
          label={t("notification.columns.rule")}
          value={search.rule}
          onChange={(rule) => change({ ...search, rule })}
          isFirst
        />
        <FilterField
          label={t("notification.columns.channel")}
          value={search.channel}
          onChange={(channel) => change({ ...search, channel })}
        />
        <div className={filters.chips} role="group" aria-label={t("notification.columns.status")}>
          {NOTIFICATION_STATUSES.map((status) => {
            const isChosen = status === search.status;
            return (
              <button
                key={status}
                type="button"
                aria-pressed={isChosen}
                onClick={() => change({ ...search, status: isChosen ? undefined : status })}
              >
                {t(`notificationStatus.${status}`)}
              </button>
            );
          })}
        </div>
      </div>
      {error && !data && <ErrorBox error={error} onRetry={() => void list.refetch()} />}
      {!data && !error && <Loading rows={6} />}
      {data?.items.length === 0 && <Empty search={search} />}
      {data && data.items.length > 0 && <NotificationTable notifications={data.items} />}
      {data?.more && limit < PAGE_MAX && (
        <div>
          <Button variant="default" loading={list.isFetching} onClick={() => setLimit(PAGE_MAX)}>
            {t("common.more")}
          </Button>
        </div>
      )}
    </Page>
  );
}

function Empty({ search: { namespace, status, rule, channel } }: { search: NotificationsSearch }) {
  const { t } = useTranslation();
  if ([status, rule, channel].every((value) => value === undefined)) {
    return (
      <EmptyState icon={Send} title={t("notification.none")}>
        {t("notification.noneText")}
      </EmptyState>
    );
  }
  return (
    <EmptyState
      icon={SearchX}
      title={t("notification.nothingMatches")}
      action={
        <Button
          variant="default"
          renderRoot={(props) => <Link to="/alerts/notifications" search={{ namespace }} {...props} />}
        >
          {t("jobs.clearFilters")}
        </Button>
      }
    />
  );
}
