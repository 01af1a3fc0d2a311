/** The namespaces page: usage with its quota, highest priority class, settings. */

import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Plus, SlidersHorizontal, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { deleteNamespaceSettings } from "../../api/actions";
import { namespaceQuotasQuery } from "../../api/queries";
import type { Namespace } from "../../api/schema";
import { customUsage, highestClass, QUOTA_RESOURCES, type UsedAmount, usageOf } from "../../lib/quotas";
import { usePageTitle } from "../../lib/title";
import { Allowed, useCan } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { ErrorBox, Loading, Page } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { NamespaceDialog } from "./NamespaceDialog";
import style from "./namespaces.module.css";

const route = getRouteApi("/namespaces");
const COLUMNS = ["name", ...QUOTA_RESOURCES, "class", "actions"] as const;

export function NamespacesPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.namespaces"));
  const { edit } = route.useSearch();
  const navigate = route.useNavigate();
  const canChange = useCan()("change", "namespaces");
  const { data, error, refetch } = useQuery(namespaceQuotasQuery);
  const namespaces = data?.items;
  const editing = edit === undefined ? undefined : (namespaces?.find(({ name }) => name === edit) ?? null);
  const onEdit = (name: string | undefined) => void navigate({ search: { edit: name } });

  return (
    <Page
      title={t("nav.namespaces")}
      actions={
        <Allowed verb="change" on="namespaces">
          <Button variant="default" leftSection={<Plus size={14} />} onClick={() => onEdit("+")}>
            {t("namespace.setUp")}
          </Button>
        </Allowed>
      }
    >
      {error && !data && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!namespaces && !error && <Loading rows={5} />}
      {namespaces && (
        <div className={frame.table} role="table" aria-label={t("nav.namespaces")}>
          <div className={`${style.row} ${style.head}`} role="row">
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader">
                {column === "actions" ? (
                  <span className={style.hidden}>{t("namespace.actions")}</span>
                ) : (
                  t(`namespace.${column}`)
                )}
              </span>
            ))}
          </div>
          {namespaces.map((namespace) => (
            <NamespaceRow key={namespace.name} namespace={namespace} onEdit={() => onEdit(namespace.name)} />
          ))}
        </div>
      )}
      {namespaces && <p className="quiet">{t("namespace.listed")}</p>}
      {namespaces && editing !== undefined && canChange && (
        <NamespaceDialog namespace={editing} onClose={() => onEdit(undefined)} />
      )}
    </Page>
  );
}

function NamespaceRow({ namespace, onEdit }: { namespace: Namespace; onEdit: () => void }) {
  const { t } = useTranslation();
  const can = useCan();
  const [deleting, setDeleting] = useState(false);
  const { name, settings, version } = namespace;
  const custom = customUsage(namespace);
  const { sandbox } = settings;
  return (
    <div className={style.row} role="row">
      <span role="cell" className={style.name}>
        {can("read", "jobs", name) ? (
          <Link to="/jobs" search={{ namespace: name }}>
            {name}
          </Link>
        ) : (
          name
        )}
        {sandbox && sandbox.level && sandbox.level !== "none" && (
          <span className={style.custom}>
            {t("namespace.minSandbox")}
            {t("common.colon")}
            {t(`sandboxLevel.${sandbox.level}`)}
          </span>
        )}
        {sandbox?.network && (
          <span className={style.custom}>
            {t("namespace.maxNetwork")}
            {t("common.colon")}
            {t(`sandboxNetwork.${sandbox.network}`)}
          </span>
        )}
        {settings.note && <q className="quiet clip">{settings.note}</q>}
        {custom.map((each) => (
          <span key={each.name} className={`${style.custom} num`}>
            {each.name}
            {t("common.colon")}
            <UsageText amount={each} />
          </span>
        ))}
      </span>
      {QUOTA_RESOURCES.map((resource) => (
        <span key={resource} role="cell" className="num">
          <span className={style.caption}>{t(`namespace.${resource}`)} </span>
          <UsageText amount={usageOf(namespace, resource)} />
        </span>
      ))}
      <span role="cell">
        <span className={style.caption}>{t("namespace.class")} </span>
        {t(`priorityClass.${highestClass(settings)}`)}
      </span>
      <span role="cell" className={style.acts}>
        <Allowed verb="change" on="namespaces">
          <Tooltip label={t("namespace.settings")}>
            <ActionIcon variant="default" aria-label={t("namespace.settingsOf", { name })} onClick={onEdit}>
              <SlidersHorizontal size={14} />
            </ActionIcon>
          </Tooltip>
        </Allowed>
        {version > 0 && (
          <Allowed verb="delete" on="namespaces">
            <Tooltip label={t("namespace.delete")}>
              <ActionIcon
                variant="default"
                aria-label={t("namespace.deleteOf", { name })}
                onClick={() => setDeleting(true)}
              >
                <Trash2 size={14} />
              </ActionIcon>
            </Tooltip>
          </Allowed>
        )}
      </span>
      {deleting && (
        <ConfirmDialog
          title={t("namespace.deleteTitle", { name })}
          text={t("namespace.deleteText")}
          confirm={t("namespace.delete")}
          red
          onConfirm={() => deleteNamespaceSettings(name)}
          done={t("namespace.deleted", { name })}
          onClose={() => setDeleting(false)}
        />
      )}
    </div>
  );
}

function UsageText({ amount: { used, limit } }: { amount: UsedAmount }) {
  const { t } = useTranslation();
  return limit === null ? used : t("namespace.usedOf", { used, limit });
}
