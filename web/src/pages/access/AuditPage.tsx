/** The audit log: a search, and the entries with their changed fields. */

import { Button, Select, TextInput } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { Check, CircleHelp, ScrollText, ShieldX, X } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { auditQuery } from "../../api/audit";
import type { AuditEntry, AuditOutcome, FieldChange } from "../../api/schema";
import { RESOURCES } from "../../lib/access";
import { AUDIT_DAYS, AUDIT_OUTCOMES, type AuditSearch } from "../../lib/audit";
import { usePageTitle } from "../../lib/title";
import filters from "../../ui/filters.module.css";
import { EmptyState, ErrorBox, Loading, Page } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { ToneBadge } from "../../ui/Status";
import { AbsoluteTime, RelativeTime } from "../../ui/Time";
import style from "./audit.module.css";
import { Sections } from "./Sections";

const route = getRouteApi("/access/audit");
const COLUMNS = ["time", "actor", "action", "object", "outcome"] as const;

export function AuditPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.audit"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const found = useInfiniteQuery(auditQuery(search));
  const entries = found.data?.pages.flatMap((page) => page.items);
  return (
    <Page title={t("nav.access")}>
      <Sections />
      <Filters search={search} onChange={(next) => void navigate({ search: next, replace: true })} />
      {found.error && !entries && <ErrorBox error={found.error} onRetry={() => void found.refetch()} />}
      {!entries && !found.error && <Loading rows={6} />}
      {entries?.length === 0 && (
        <EmptyState icon={ScrollText} title={t("audit.none")}>
          {t("audit.noneText")}
        </EmptyState>
      )}
      {entries && entries.length > 0 && (
        <div className={frame.table} role="table" aria-label={t("nav.audit")}>
          <div className={`${frame.row} ${frame.head} ${style.entry}`} role="row">
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader">
                {t(`audit.columns.${column}`)}
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="audit-rows">
            {entries.map((entry) => (
              <Row key={entry.sequence} entry={entry} />
            ))}
          </div>
          {found.hasNextPage && (
            <div className={frame.more}>
              <Button
                variant="default"
                loading={found.isFetchingNextPage}
                onClick={() => void found.fetchNextPage()}
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

function Filters(props: { search: AuditSearch; onChange: (search: AuditSearch) => void }) {
  const { t } = useTranslation();
  const { search, onChange } = props;
  const change = (part: AuditSearch) => onChange({ ...search, ...part });
  return (
    <div className={filters.filters}>
      <TextFilter
        key={`actor ${search.actor ?? ""}`}
        label={t("audit.columns.actor")}
        value={search.actor}
        onChange={(actor) => change({ actor })}
      />
      <TextFilter
        key={`object ${search.object ?? ""}`}
        label={t("audit.columns.object")}
        value={search.object}
        onChange={(object) => change({ object })}
      />
      <Select
        aria-label={t("audit.resource")}
        placeholder={t("audit.anyResource")}
        className={filters.field}
        value={search.resource ?? null}
        onChange={(value) => change({ resource: value ?? undefined })}
        data={RESOURCES.map((value) => ({ value, label: t(`resource.${value}`) }))}
        clearable
      />
      <Select
        aria-label={t("audit.range")}
        placeholder={t("audit.anyTime")}
        className={filters.field}
        value={search.days ?? null}
        onChange={(value) => change({ days: value ?? undefined })}
        data={AUDIT_DAYS.map((days) => ({
          value: String(days),
          label: t("audit.lastDays", { count: days }),
        }))}
        clearable
      />
      <div className={filters.chips} role="group" aria-label={t("audit.columns.outcome")}>
        {AUDIT_OUTCOMES.map((each) => (
          <button
            key={each}
            type="button"
            aria-pressed={each === search.outcome}
            onClick={() => change({ outcome: each === search.outcome ? undefined : each })}
          >
            {t(`auditOutcome.${each}`)}
          </button>
        ))}
      </div>
    </div>
  );
}

/** An exact filter, applied with Enter or when the field is left. */
function TextFilter(props: { label: string; value?: string; onChange: (value?: string) => void }) {
  const { label, value = "", onChange } = props;
  const [typed, setTyped] = useState(value);
  const apply = () => typed.trim() !== value && onChange(typed.trim() || undefined);
  return (
    <TextInput
      aria-label={label}
      placeholder={label}
      className={filters.field}
      value={typed}
      onChange={(event) => setTyped(event.currentTarget.value)}
      onBlur={apply}
      onKeyDown={(event) => event.key === "Enter" && apply()}
    />
  );
}

const LOOKS = {
  allowed: { tone: "succeeded", icon: Check },
  denied: { tone: "failed", icon: ShieldX },
  failed: { tone: "retrying", icon: X },
  unknown: { tone: "cancelled", icon: CircleHelp },
} as const satisfies Record<AuditOutcome, object>;

function Row({ entry }: { entry: AuditEntry }) {
  const { t } = useTranslation();
  const [isOpen, setOpen] = useState(false);
  const { at, actor, action, object, namespace, outcome, code, repeats } = entry;
  return (
    <>
      <div className={`${frame.row} ${style.entry}`} role="row" data-outcome={outcome}>
        <span role="cell">
          <button
            type="button"
            className={style.open}
            aria-expanded={isOpen}
            onClick={() => setOpen(!isOpen)}
          >
            <RelativeTime at={at} light />
          </button>
        </span>
        <span role="cell" className="clip">
          {actor}
        </span>
        <span role="cell">
          <code className="clip">{action}</code>
        </span>
        <span role="cell" className="clip">
          {object ?? <span className="quiet">–</span>}
          {namespace && <span className="quiet"> {namespace}</span>}
        </span>
        <span role="cell" className={style.outcome}>
          <ToneBadge {...LOOKS[outcome]} word={t(`auditOutcome.${outcome}`)} plain />
          {code && <span className="quiet clip">{code}</span>}
          {repeats && <span className="quiet num">{t("audit.repeats", { count: repeats })}</span>}
        </span>
      </div>
      {isOpen && (
        <div role="row">
          <div role="cell" className={style.detail}>
            <Detail entry={entry} />
          </div>
        </div>
      )}
    </>
  );
}

function Detail({ entry }: { entry: AuditEntry }) {
  const { t } = useTranslation();
  const facts = [
    ["sequence", entry.sequence],
    ["address", entry.address],
    ["client", entry.user_agent],
    ["token", entry.token_id],
    ["server", entry.server],
    ["request", entry.request_id],
    ["affected", entry.affected],
    ["hash", entry.hash],
  ] as const;
  const known = facts.filter(([, value]) => value !== undefined && value !== null);
  return (
    <>
      <AbsoluteTime at={entry.at} />
      <dl className={style.facts}>
        {known.map(([fact, value]) => (
          <div key={fact}>
            <dt>{t(`audit.fact.${fact}`)}</dt>
            <dd>
              <code>{value}</code>
            </dd>
          </div>
        ))}
      </dl>
      {entry.changes && entry.changes.length > 0 && (
        <ul className={style.changes} aria-label={t("audit.changes")}>
          {entry.changes.map((change, index) => (
            <Change key={index} change={change} />
          ))}
          {entry.changes_truncated && <li className="quiet">{t("audit.truncated")}</li>}
        </ul>
      )}
    </>
  );
}

function Change({ change: { path, old, new: value } }: { change: FieldChange }) {
  const { t } = useTranslation();
  return (
    <li>
      <code>{path}</code>
      {old != null && (
        <del>
          <span className="unseen">{t("audit.old")}</span> {old}
        </del>
      )}
      {value != null && (
        <ins>
          <span className="unseen">{t("audit.new")}</span> {value}
        </ins>
      )}
    </li>
  );
}
