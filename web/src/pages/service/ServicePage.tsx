/** One service: availability, replicas, rollout, revisions, endpoints, jobs and spec. */

import { Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { FileCode2, History, LayoutGrid, ListChecks, Plug } from "lucide-react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import type { Replica, ScalingChange, Service } from "../../api/schema";
import { endpointsQuery, replicasQuery, serviceQuery } from "../../api/services";
import { availabilityOf, rolloutStateOf, scalingCauseText } from "../../lib/services";
import { toYaml } from "../../lib/spec";
import { usePageTitle } from "../../lib/title";
import { useCan } from "../../ui/Allowed";
import { CodeHighlight } from "../../ui/Code";
import { Card, ErrorBox, Id, KeyValueList, Labels, Loading, Page } from "../../ui/kit";
import { RelativeTime } from "../../ui/Time";
import { WaitingReasons } from "../job/WaitingReasons";
import { AvailabilityBadge, RolloutBadge } from "../services/badges";
import { Crumbs } from "../services/EditPage";
import { Actions } from "./Actions";
import { Endpoints } from "./Endpoints";
import { ReplicaTable } from "./ReplicaTable";
import { Revisions } from "./Revisions";
import { RolloutCard } from "./RolloutCard";
import style from "./service.module.css";
import { ServiceJobs } from "./ServiceJobs";
import { Situation } from "./Situation";

const route = getRouteApi("/services/$namespace/$name");
const TABS = ["overview", "revisions", "endpoints", "jobs", "spec"] as const;
type Tab = (typeof TABS)[number];
const ICONS = {
  overview: LayoutGrid,
  revisions: History,
  endpoints: Plug,
  jobs: ListChecks,
  spec: FileCode2,
};

export function ServicePage() {
  const { namespace, name } = route.useParams();
  const { data, error, refetch } = useQuery(serviceQuery(name, namespace));
  usePageTitle(name);
  // A deleted service disappears from its open page.
  if (error && (!data || ApiError.from(error).code === "service_not_found")) {
    return (
      <Page title={<Crumbs name={name} />}>
        <ErrorBox error={error} onRetry={() => void refetch()} />
      </Page>
    );
  }
  if (!data) {
    return (
      <Page title={<Crumbs name={name} />}>
        <Loading rows={8} />
      </Page>
    );
  }
  return <ServiceDetails service={data} />;
}

function ServiceDetails({ service }: { service: Service }) {
  const { t } = useTranslation();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const canReadJobs = useCan()("read", "jobs", service.namespace);
  const tab: Tab = TABS.find((each) => each === search.tab) ?? "overview";
  const replicas = useQuery(replicasQuery(service.id));
  const endpoints = useQuery(endpointsQuery(service.id)).data?.items ?? [];
  const items = replicas.data?.items ?? [];
  const waiting = firstWaiting(service, items);
  const change = (part: typeof search) => void navigate({ search: { ...search, ...part }, replace: true });

  return (
    <Page
      title={
        <Crumbs name={service.name}>
          <AvailabilityBadge service={service} />
          {rolloutStateOf(service.rollout) !== "completed" && <RolloutBadge rollout={service.rollout} />}
        </Crumbs>
      }
      actions={<Actions service={service} />}
    >
      {service.description && <p className={style.about}>{service.description}</p>}
      <Situation service={service} replicas={items} />
      {waiting && canReadJobs && <WaitingReasons id={waiting.job} />}
      <div className={style.columns}>
        <Card flush className={style.tabs}>
          <Tabs value={tab} onChange={(next) => change({ tab: next ?? undefined })} keepMounted={false}>
            <Tabs.List>
              {TABS.map((each) => {
                const Icon = ICONS[each];
                return (
                  <Tabs.Tab key={each} value={each} leftSection={<Icon size={14} aria-hidden />}>
                    {t(`service.tabs.${each}`)}
                  </Tabs.Tab>
                );
              })}
            </Tabs.List>
            <Tabs.Panel value="overview" className={style.list}>
              {replicas.error && !replicas.data && (
                <ErrorBox error={replicas.error} onRetry={() => void replicas.refetch()} />
              )}
              {!replicas.data && !replicas.error && <Loading rows={4} />}
              {replicas.data && <ReplicaTable service={service} replicas={items} endpoints={endpoints} />}
            </Tabs.Panel>
            <Tabs.Panel value="revisions" className={style.list}>
              <Revisions
                service={service}
                shown={search.revision === undefined ? undefined : Number(search.revision)}
                onShow={(revision) => change({ revision: revision?.toString() })}
              />
            </Tabs.Panel>
            <Tabs.Panel value="endpoints" className={style.list}>
              <Endpoints service={service} />
            </Tabs.Panel>
            <Tabs.Panel value="jobs" className={style.list}>
              <ServiceJobs service={service} />
            </Tabs.Panel>
            <Tabs.Panel value="spec">
              {service.spec && <CodeHighlight text={toYaml(service.spec)} />}
            </Tabs.Panel>
          </Tabs>
        </Card>
        <aside className={style.side}>
          <RolloutCard service={service} />
          <Summary service={service} />
        </aside>
      </div>
    </Page>
  );
}

/** Returns a replica whose waiting reasons explain why the service is not fully available. */
function firstWaiting(service: Service, replicas: readonly Replica[]): Replica | undefined {
  const availability = availabilityOf(service);
  if (availability !== "degraded" && availability !== "none") return undefined;
  return replicas.find(({ status, stopping }) => status === "waiting" && !stopping);
}

function LastScaling({ change }: { change: ScalingChange }) {
  const { t } = useTranslation();
  const { from, to } = change;
  return (
    <>
      {`${from} → ${to}`}
      <span className="quiet">
        {`${t("common.listSeparator")}${scalingCauseText(change, t)}${t("common.listSeparator")}`}
        <RelativeTime at={change.at} />
      </span>
    </>
  );
}

function Summary({ service }: { service: Service }) {
  const { t } = useTranslation();
  const { spec, counts, labels } = service;
  const number = (value: number | undefined) => <span className="num">{(value ?? 0).toLocaleString()}</span>;
  return (
    <Card title={t("schedule.about")}>
      <KeyValueList
        rows={[
          [t("service.replicas"), number(service.replicas)],
          spec?.scaling
            ? [
                t("service.scaling"),
                t("service.scalingRange", { min: spec.scaling.min ?? 1, max: spec.scaling.max }),
              ]
            : null,
          service.last_scaling
            ? [t("service.lastScaling"), <LastScaling key="" change={service.last_scaling} />]
            : null,
          [t("service.minAvailable"), number(service.min_available)],
          counts.stopping > 0 && [t("replicaState.stopping"), number(counts.stopping)],
          spec?.min_healthy ? [t("service.minHealthy"), spec.min_healthy] : null,
          spec?.update && [t("service.update.max_surge"), number(spec.update.max_surge ?? 1)],
          spec?.update && [t("service.update.max_unavailable"), number(spec.update.max_unavailable)],
          spec?.update?.canaries ? [t("service.update.canaries"), number(spec.update.canaries)] : null,
          spec?.priority_class && [t("job.details.priorityClass"), t(`priorityClass.${spec.priority_class}`)],
          [t("job.details.namespace"), service.namespace],
          service.owner ? [t("job.details.owner"), service.owner] : null,
          Object.keys(labels ?? {}).length > 0 && [
            t("job.details.labels"),
            <Labels key="" labels={labels} />,
          ],
          [t("schedule.created"), <RelativeTime key="" at={service.created_at} />],
          [t("schedule.updated"), <RelativeTime key="" at={service.updated_at} />],
          ["ID", <Id key="" id={service.id} />],
        ]}
      />
    </Card>
  );
}
