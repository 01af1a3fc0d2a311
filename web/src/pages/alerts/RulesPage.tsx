/** Alert rules: their conditions, channels and open alerts. */

import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { CirclePause, CirclePlay, Pencil, Plus, Trash2, TriangleAlert } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { alertRulesQuery, deleteAlertRule } from "../../api/alerts";
import type { AlertRule } from "../../api/schema";
import { useHasNamespaces } from "../../app/namespace";
import { conditionSentence, selectionTexts } from "../../lib/alerts";
import { usePreferences } from "../../lib/preferences";
import { usePageTitle } from "../../lib/title";
import { Allowed, AllowedSomewhere, useCan } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { ErrorBox, Loading, Page } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { ToneBadge } from "../../ui/Status";
import style from "./alerts.module.css";
import { NoRules } from "./AlertsPage";
import { RuleDialog } from "./RuleDialog";
import { Sections } from "./Sections";
import { SeverityBadge } from "./words";

const route = getRouteApi("/alerts/rules");
const COLUMNS = ["name", "condition", "severity", "channels", "open", "enabled", "actions"] as const;
/** Value of `edit` for a new rule. */
const NEW = "+";

const namespaceOf = ({ namespace = "default" }: AlertRule) => namespace;
const keyOf = (rule: AlertRule) => `${namespaceOf(rule)}/${rule.name}`;

export function RulesPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.rules"));
  const search = route.useSearch();
  const { namespace, edit } = search;
  const navigate = route.useNavigate();
  const { data, error, refetch } = useQuery(alertRulesQuery(namespace));
  const rules = data?.items;
  const hasNamespaces = useHasNamespaces(
    namespace,
    rules?.map((rule) => ({ namespace: namespaceOf(rule) })),
  );
  const edited = rules?.find((rule) => keyOf(rule) === edit);
  const setEdit = (next: string | undefined) => void navigate({ search: { ...search, edit: next } });
  return (
    <Page
      title={t("nav.alerts")}
      actions={
        <AllowedSomewhere verb="change" on="alerts">
          <Button leftSection={<Plus size={14} />} onClick={() => setEdit(NEW)}>
            {t("alertRule.new")}
          </Button>
        </AllowedSomewhere>
      }
    >
      <Sections />
      {error && !rules && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!rules && !error && <Loading rows={5} />}
      {rules?.length === 0 && <NoRules namespace={namespace} />}
      {rules && rules.length > 0 && (
        <div className={frame.table} role="table" aria-label={t("nav.rules")}>
          <div className={`${frame.row} ${frame.head} ${style.ruleRow}`} role="row">
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader" className={style[column]}>
                <span className={column === "actions" ? "unseen" : undefined}>
                  {t(`alertRule.columns.${column}`)}
                </span>
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="rule-rows">
            {rules.map((rule) => (
              <Row
                key={keyOf(rule)}
                rule={rule}
                hasNamespace={hasNamespaces}
                onEdit={() => setEdit(keyOf(rule))}
              />
            ))}
          </div>
        </div>
      )}
      {edit === NEW && <RuleDialog rule={null} onClose={() => setEdit(undefined)} />}
      {edited && <RuleDialog key={edit} rule={edited} onClose={() => setEdit(undefined)} />}
    </Page>
  );
}

function Row(props: { rule: AlertRule; hasNamespace: boolean; onEdit: () => void }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const { rule, hasNamespace, onEdit } = props;
  const { name, description, owner, disabled, open_alerts: open } = rule;
  const namespace = namespaceOf(rule);
  const selection = selectionTexts(rule.match, t);
  return (
    <div className={`${frame.row} ${style.ruleRow}`} role="row" data-disabled={disabled || undefined}>
      <span role="cell" className={style.what}>
        <span className={`${style.name} clip`}>{name}</span>
        {disabled && (
          <span className={style.marked}>
            <StateBadge disabled />
          </span>
        )}
        <span className={style.under}>
          {hasNamespace && <span className="clip">{namespace}</span>}
          {owner && <span className="clip">{owner}</span>}
          {description && <span className="clip">{description}</span>}
        </span>
      </span>
      <span role="cell" className={style.what}>
        <span>{conditionSentence(rule.when, t)}</span>
        <span className={style.chips}>
          {selection.length === 0 ? (
            <span className="quiet">{t("alertRule.all")}</span>
          ) : (
            selection.map((text) => (
              <span key={text} className={style.chip}>
                {text}
              </span>
            ))
          )}
        </span>
      </span>
      <span role="cell">
        <SeverityBadge severity={rule.severity ?? "warning"} plain />
      </span>
      <span role="cell" className={style.chips}>
        <Channels rule={rule} />
      </span>
      <span role="cell" className={`${style.open} num`}>
        {open > 0 ? (
          <Link to="/alerts" search={{ namespace, rule: name }} className={style.link}>
            <span className={style.caption}>{t("alertRule.columns.open")} </span>
            {open.toLocaleString(language)}
          </Link>
        ) : (
          <span className="quiet">
            <span className={style.caption}>{t("alertRule.columns.open")} </span>0
          </span>
        )}
      </span>
      <span role="cell" className={style.enabled}>
        <StateBadge disabled={disabled ?? false} />
      </span>
      <span role="cell" className={style.actions}>
        <Allowed verb="change" on="alerts" in={namespace}>
          <Tooltip label={t("alertRule.edit")}>
            <ActionIcon aria-label={t("alertRule.editOf", { name })} onClick={onEdit}>
              <Pencil size={14} />
            </ActionIcon>
          </Tooltip>
        </Allowed>
        <Delete name={name} namespace={namespace} />
      </span>
    </div>
  );
}

function StateBadge({ disabled }: { disabled: boolean }) {
  const { t } = useTranslation();
  return disabled ? (
    <ToneBadge tone="cancelled" icon={CirclePause} word={t("alertRule.disabled")} plain />
  ) : (
    <ToneBadge tone="succeeded" icon={CirclePlay} word={t("alertRule.enabled")} plain />
  );
}

/** The channels of a rule; those that do not exist are marked. */
function Channels({ rule: { notify = [], missing_channels: missing = [] } }: { rule: AlertRule }) {
  const { t } = useTranslation();
  if (notify.length === 0) return <span className="quiet">{t("alertRule.noChannels")}</span>;
  return notify.map((name) =>
    missing.includes(name) ? (
      <span key={name} className={style.chip} data-missing>
        <TriangleAlert size={12} aria-hidden />
        {t("alertRule.missing", { name })}
      </span>
    ) : (
      <span key={name} className={style.chip}>
        {name}
      </span>
    ),
  );
}

function Delete({ name, namespace }: { name: string; namespace: string }) {
  const { t } = useTranslation();
  const [asking, setAsking] = useState(false);
  if (!useCan()("delete", "alerts", namespace)) return null;
  return (
    <>
      <Tooltip label={t("alertRule.delete")}>
        <ActionIcon aria-label={t("alertRule.deleteOf", { name })} onClick={() => setAsking(true)}>
          <Trash2 size={14} />
        </ActionIcon>
      </Tooltip>
      {asking && (
        <ConfirmDialog
          title={t("alertRule.deleteTitle", { name })}
          text={t("alertRule.deleteText")}
          confirm={t("alertRule.delete")}
          red
          onConfirm={() => deleteAlertRule(name, namespace)}
          done={t("alertRule.deleted", { name })}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}
