/** The list of failure groups, with filters. */

import { Button, SegmentedControl, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { CircleCheck, Search, SearchX } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { failuresQuery } from "../../api/failures";
import type { FailureGroup } from "../../api/schema";
import { useHasNamespaces } from "../../app/namespace";
import {
  FAILURE_ORDERS,
  FAILURE_SPANS,
  FAILURE_STATES,
  type FailuresSearch,
  hoursUntil,
  orderOf,
  statesOf,
  withState,
} from "../../lib/failures";
import { useFilterShortcut } from "../../lib/filterShortcut";
import { useNow } from "../../lib/now";
import { usePreferences } from "../../lib/preferences";
import { failureText } from "../../lib/serverMessages";
import { usePageTitle } from "../../lib/title";
import { Sparkline } from "../../ui/charts/Sparkline";
import { FailureLink } from "../../ui/FailureLink";
import { FailureNames } from "../../ui/FailureNames";
import { FilterField } from "../../ui/FilterField";
import filters from "../../ui/filters.module.css";
import frame from "../../ui/list.module.css";
import { EmptyState, ErrorBox, Loading, Page } from "../../ui/kit";
import { FailureBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import style from "./failures.module.css";

const route = getRouteApi("/failures");
const COLUMNS = ["message", "namespace", "state", "day", "total", "names", "first", "last"] as const;
/** Groups that are read at first, and at most. */
const PAGE = 100;
const PAGE_MAX = 1_000;
/** Hours of a sparkline. */
const SPARK_HOURS = 24;

export function FailuresPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.failures"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [limit, setLimit] = useState(PAGE);
  const list = useQuery(failuresQuery(search, limit));
  const rows = list.data?.items;
  const hasNamespaces = useHasNamespaces(search.namespace, rows);
  const change = (next: FailuresSearch) => void navigate({ search: next, replace: true });
  const hasMore = rows !== undefined && rows.length < (list.data?.total ?? 0) && limit < PAGE_MAX;

  return (
    <Page
      title={t("nav.failures")}
      actions={
        list.data && <span className="quiet num">{t("failureGroup.count", { count: list.data.total })}</span>
      }
    >
      <Filters search={search} onChange={change} />
      {list.error && !rows && <ErrorBox error={list.error} onRetry={() => void list.refetch()} />}
      {!rows && !list.error && <Loading rows={8} />}
      {rows?.length === 0 && <Empty search={search} />}
      {rows && rows.length > 0 && (
        <div
          className={frame.table}
          data-namespaces={hasNamespaces || undefined}
          role="table"
          aria-label={t("nav.failures")}
        >
          <div className={`${frame.row} ${frame.head} ${style.row}`} role="row" data-head>
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader" className={style[column]}>
                {t(`failureGroup.columns.${column}`)}
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="failure-rows">
            {rows.map((group) => (
              <Row key={`${group.namespace}/${group.id}`} group={group} />
            ))}
          </div>
          {hasMore && (
            <div className={frame.more}>
              <Button variant="default" loading={list.isFetching} onClick={() => setLimit(PAGE_MAX)}>
                {t("common.more")}
              </Button>
            </div>
          )}
        </div>
      )}
    </Page>
  );
}

function Row({ group }: { group: FailureGroup }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const now = useNow();
  const { namespace, last_24h: day, count, first_seen: first, last_seen: last } = group;
  const { error } = failureText(group, t);
  return (
    <div className={`${frame.row} ${style.row}`} role="row">
      <span role="cell" className={style.message}>
        <FailureLink group={group} className={`${frame.open} ${style.open} clip`} />
        <span className={style.under}>
          {namespace !== "default" && <span className={style.ofName}>{namespace}</span>}
          {error && <span className="clip">{error}</span>}
          {group.note && <q className="clip">{group.note}</q>}
        </span>
      </span>
      <span role="cell" className={`${style.namespace} quiet clip`}>
        {namespace}
      </span>
      <span role="cell" className={style.state}>
        <FailureBadge group={group} plain />
      </span>
      <span role="cell" className={style.day}>
        <Sparkline hours={hoursUntil(group.hours, now, SPARK_HOURS)} />
        <span className="num">{day.toLocaleString(language)}</span>
      </span>
      <span role="cell" className={`${style.total} num`}>
        {count.toLocaleString(language)}
      </span>
      <span role="cell" className={style.names}>
        <FailureNames group={group} className={style.namesBox} />
      </span>
      <span role="cell" className={`${style.first} quiet`}>
        <RelativeTime at={first} light />
      </span>
      <span role="cell" className={`${style.last} quiet`}>
        <RelativeTime at={last} light />
      </span>
    </div>
  );
}

function Filters(props: { search: FailuresSearch; onChange: (search: FailuresSearch) => void }) {
  const { t } = useTranslation();
  const { search, onChange } = props;
  const input = useRef<HTMLInputElement>(null);
  useFilterShortcut(input);
  const [text, setText] = useState(search.text ?? "");
  useEffect(() => setText(search.text ?? ""), [search.text]);
  const shown = statesOf(search);
  return (
    <div className={filters.filters}>
      <TextInput
        ref={input}
        leftSection={<Search size={13} />}
        placeholder={t("failureGroup.find")}
        aria-label={t("failureGroup.find")}
        value={text}
        onChange={(event) => {
          setText(event.currentTarget.value);
          onChange({ ...search, text: event.currentTarget.value || undefined });
        }}
        className={style.find}
      />
      <FilterField
        label={t("failureGroup.name")}
        value={search.name}
        onChange={(name) => onChange({ ...search, name })}
      />
      <div className={filters.chips} role="group" aria-label={t("failureGroup.columns.state")}>
        {FAILURE_STATES.map((state) => (
          <button
            key={state}
            type="button"
            aria-pressed={shown.includes(state)}
            onClick={() => onChange(withState(search, state))}
          >
            {t(`failureState.${state}`)}
          </button>
        ))}
      </div>
      <div className={style.right}>
        <SegmentedControl
          aria-label={t("failureGroup.since")}
          value={search.since ?? ""}
          onChange={(since) => onChange({ ...search, since: since || undefined })}
          data={[
            ...FAILURE_SPANS.map((value) => ({ value, label: t(`chart.rangeShort.${value}`) })),
            { value: "", label: t("failureGroup.anyAge") },
          ]}
        />
        <Select
          aria-label={t("failureGroup.order")}
          value={orderOf(search)}
          onChange={(order) =>
            onChange({ ...search, order: order === FAILURE_ORDERS[0] ? undefined : (order ?? undefined) })
          }
          data={FAILURE_ORDERS.map((value) => ({ value, label: t(`failureOrder.${value}`) }))}
          allowDeselect={false}
          className={style.order}
        />
      </div>
    </div>
  );
}

function Empty({ search }: { search: FailuresSearch }) {
  const { t } = useTranslation();
  const { namespace, state, name, text, since } = search;
  const isFiltered = [state, name, text, since].some((value) => value !== undefined);
  if (!isFiltered) {
    return (
      <EmptyState icon={CircleCheck} title={t("failureGroup.none")}>
        {t("failureGroup.noneText")}
      </EmptyState>
    );
  }
  return (
    <EmptyState
      icon={SearchX}
      title={t("failureGroup.nothingMatches")}
      action={
        <Button
          variant="default"
          renderRoot={(props) => <Link to="/failures" search={{ namespace }} {...props} />}
        >
          {t("jobs.clearFilters")}
        </Button>
      }
    />
  );
}
