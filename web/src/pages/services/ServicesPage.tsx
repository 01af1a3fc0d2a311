/** The services page: availability and rollouts. */

import { Button, TextInput } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Plus, RadioTower, Search, SearchX, X } from "lucide-react";
import { useRef } from "react";
import { useTranslation } from "react-i18next";

import type { Service } from "../../api/schema";
import { servicesQuery } from "../../api/services";
import { useHasNamespaces } from "../../app/namespace";
import type { ServicesSearch } from "../../app/router";
import { useFilterShortcut } from "../../lib/filterShortcut";
import { usePageTitle } from "../../lib/title";
import { AllowedSomewhere } from "../../ui/Allowed";
import { EmptyState, ErrorBox, Labels, Loading, Page, Snippet } from "../../ui/kit";
import { RelativeTime } from "../../ui/Time";
import { AvailabilityBadge, RolloutBadge } from "./badges";
import filters from "../../ui/filters.module.css";
import frame from "../../ui/list.module.css";
import style from "./services.module.css";

const route = getRouteApi("/services");
const COLUMNS = ["name", "namespace", "available", "rollout", "owner", "updated"] as const;

/** A service in a file, for the empty list. */
const EXAMPLE = `name: web
replicas: 2
job:
  ports: [{name: http}]
  health:
    readiness: {http: {path: /healthz, port: http}}
  run:
    process:
      script: exec ./web --port "$BELFRY_PORT_HTTP"`;

export function ServicesPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.services"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const list = useInfiniteQuery(servicesQuery(search));
  const rows = list.data?.pages.flatMap((page) => page.items);
  const hasNamespaces = useHasNamespaces(search.namespace, rows);
  const change = (next: ServicesSearch) => void navigate({ search: next, replace: true });
  const isFiltered = Object.values(search).some((value) => value !== undefined);

  return (
    <Page
      title={t("nav.services")}
      actions={
        <AllowedSomewhere verb="change" on="services">
          <Button
            renderRoot={(props) => <Link to="/services/new" {...props} />}
            leftSection={<Plus size={14} />}
          >
            {t("service.new")}
          </Button>
        </AllowedSomewhere>
      }
    >
      <Filters search={search} onChange={change} />
      {list.error && !rows && <ErrorBox error={list.error} onRetry={() => void list.refetch()} />}
      {!rows && !list.error && <Loading rows={8} />}
      {rows?.length === 0 && (isFiltered ? <NothingMatches /> : <NoServices />)}
      {rows && rows.length > 0 && (
        <div
          className={frame.table}
          data-namespaces={hasNamespaces || undefined}
          role="table"
          aria-label={t("nav.services")}
        >
          <div className={`${frame.row} ${frame.head} ${style.row}`} role="row" data-head>
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader" className={style[column]}>
                {t(`service.columns.${column}`)}
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="service-rows">
            {rows.map((service) => (
              <Row
                key={service.id}
                service={service}
                onLabel={(label) =>
                  change({ ...search, label: [...new Set([...(search.label ?? []), label])] })
                }
              />
            ))}
          </div>
          {list.hasNextPage && (
            <div className={frame.more}>
              <Button
                variant="default"
                loading={list.isFetchingNextPage}
                onClick={() => void list.fetchNextPage()}
              >
                {t("common.more")}
              </Button>
            </div>
          )}
        </div>
      )}
    </Page>
  );
}

function Row({ service, onLabel }: { service: Service; onLabel: (label: string) => void }) {
  const { t } = useTranslation();
  const { name, namespace, owner, labels, description, rollout } = service;
  return (
    <div className={`${frame.row} ${style.row}`} role="row">
      <span role="cell" className={style.name}>
        <Link to="/services/$namespace/$name" params={{ namespace, name }} className={style.title}>
          {name}
        </Link>
        <span className={style.under}>
          {namespace !== "default" && <span className={`${style.ofName} quiet`}>{namespace}</span>}
          <Labels labels={labels} onPick={onLabel} />
          {description && <span className={`${style.about} quiet`}>{description}</span>}
        </span>
      </span>
      <span role="cell" className={`${style.namespace} quiet clip`}>
        {namespace}
      </span>
      <span role="cell" className={style.available}>
        <AvailabilityBadge service={service} />
      </span>
      <span role="cell" className={style.rollout}>
        <RolloutBadge rollout={rollout} plain />
        <span className="quiet num">{t("event.revision", { revision: rollout.revision })}</span>
      </span>
      <span role="cell" className={`${style.owner} clip`}>
        {owner ?? <span className="quiet">–</span>}
      </span>
      <span role="cell" className={`${style.updated} quiet`}>
        <RelativeTime at={service.updated_at} light />
      </span>
    </div>
  );
}

interface FiltersProps {
  search: ServicesSearch;
  onChange: (search: ServicesSearch) => void;
}

function Filters({ search, onChange }: FiltersProps) {
  const { t } = useTranslation();
  const input = useRef<HTMLInputElement>(null);
  useFilterShortcut(input);
  const others = [
    ...(search.owner ? [["owner", search.owner] as const] : []),
    ...(search.namespace ? [["namespace", search.namespace] as const] : []),
    ...(search.label ?? []).map((label) => ["label", label] as const),
  ];
  const without = (key: string, value: string) => {
    const label = search.label?.filter((each) => each !== value);
    onChange(
      key === "label"
        ? { ...search, label: label?.length ? label : undefined }
        : { ...search, [key]: undefined },
    );
  };
  return (
    <div className={filters.filters}>
      <TextInput
        ref={input}
        leftSection={<Search size={13} />}
        placeholder={t("service.find")}
        aria-label={t("service.find")}
        value={search.text ?? ""}
        onChange={(event) => onChange({ ...search, text: event.currentTarget.value || undefined })}
        className={style.find}
      />
      {others.map(([key, value]) => (
        <Button
          key={key + value}
          variant="default"
          rightSection={<X size={12} />}
          aria-label={t("jobs.removeFilter", { filter: value })}
          onClick={() => without(key, value)}
        >
          <span className="quiet">{t(`jobs.keys.${key}`)}</span>&nbsp;{value}
        </Button>
      ))}
    </div>
  );
}

function NothingMatches() {
  const { t } = useTranslation();
  return (
    <EmptyState
      icon={SearchX}
      title={t("service.nothingMatches")}
      action={
        <Button variant="default" renderRoot={(props) => <Link to="/services" {...props} />}>
          {t("jobs.clearFilters")}
        </Button>
      }
    />
  );
}

function NoServices() {
  const { t } = useTranslation();
  return (
    <EmptyState icon={RadioTower} title={t("service.none")}>
      <p>{t("service.noneText")}</p>
      <br />
      <Snippet text={EXAMPLE} />
      <br />
      <Snippet text="belfry apply -f service.yaml" />
    </EmptyState>
  );
}
