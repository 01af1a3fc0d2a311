/** Secrets of jobs: their keys and versions. Values are entered here, and never shown. */

import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { KeyRound, Pencil, Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import type { Secret } from "../../api/schema";
import { deleteSecret, secretsQuery } from "../../api/secrets";
import { useHasNamespaces } from "../../app/namespace";
import { usePageTitle } from "../../lib/title";
import { Allowed, AllowedSomewhere, useCan } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { EmptyState, ErrorBox, Loading, Page } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { RelativeTime } from "../../ui/Time";
import { SecretDialog } from "./SecretDialog";
import style from "./secrets.module.css";

const route = getRouteApi("/secrets");
const COLUMNS = ["name", "keys", "version", "changed", "actions"] as const;

const namespaceOf = ({ namespace = "default" }: Secret) => namespace;

export function SecretsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.secrets"));
  const { namespace } = route.useSearch();
  const { data, error, refetch } = useQuery(secretsQuery(namespace));
  const secrets = data?.items;
  const hasNamespaces = useHasNamespaces(
    namespace,
    secrets?.map((secret) => ({ namespace: namespaceOf(secret) })),
  );
  // The secret as it was when the dialog opened; null for a new one.
  const [edited, setEdited] = useState<Secret | null | undefined>(undefined);
  const create = (
    <AllowedSomewhere verb="change" on="secrets">
      <Button leftSection={<Plus size={14} />} onClick={() => setEdited(null)}>
        {t("secret.new")}
      </Button>
    </AllowedSomewhere>
  );
  return (
    <Page title={t("nav.secrets")} actions={create}>
      {error && !secrets && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!secrets && !error && <Loading rows={5} />}
      {secrets?.length === 0 && (
        <EmptyState icon={KeyRound} title={t("secret.none")}>
          {t("secret.noneText")}
        </EmptyState>
      )}
      {secrets && secrets.length > 0 && (
        <div className={frame.table} role="table" aria-label={t("nav.secrets")}>
          <div className={`${frame.row} ${frame.head} ${style.row}`} role="row">
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader" className={style[column]}>
                <span className={column === "actions" ? "unseen" : undefined}>
                  {t(`secret.columns.${column}`)}
                </span>
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="secret-rows">
            {secrets.map((secret) => (
              <Row
                key={`${namespaceOf(secret)}/${secret.name}`}
                secret={secret}
                hasNamespace={hasNamespaces}
                onEdit={() => setEdited(secret)}
              />
            ))}
          </div>
        </div>
      )}
      {edited !== undefined && <SecretDialog secret={edited} onClose={() => setEdited(undefined)} />}
    </Page>
  );
}

function Row(props: { secret: Secret; hasNamespace: boolean; onEdit: () => void }) {
  const { t } = useTranslation();
  const { secret, hasNamespace, onEdit } = props;
  const { name, description, values, version } = secret;
  const namespace = namespaceOf(secret);
  return (
    <div className={`${frame.row} ${style.row}`} role="row">
      <span role="cell" className={style.what}>
        <span className={`${style.secret} clip`}>{name}</span>
        <span className={style.under}>
          {hasNamespace && <span className="clip">{namespace}</span>}
          {description && <span className="clip">{description}</span>}
        </span>
      </span>
      <span role="cell" className={style.chips}>
        {Object.keys(values).map((key) => (
          <span key={key} className={`${style.chip} clip`}>
            {key}
          </span>
        ))}
      </span>
      <span role="cell" className="num">
        {version}
      </span>
      <span role="cell" className={style.changed}>
        <RelativeTime at={secret.updated_at} light />
        <span className="quiet clip">{secret.updated_by}</span>
      </span>
      <span role="cell" className={style.actions}>
        <Allowed verb="change" on="secrets" in={namespace}>
          <Tooltip label={t("secret.edit")}>
            <ActionIcon aria-label={t("secret.editOf", { name })} onClick={onEdit}>
              <Pencil size={14} />
            </ActionIcon>
          </Tooltip>
        </Allowed>
        <Delete name={name} namespace={namespace} />
      </span>
    </div>
  );
}

function Delete({ name, namespace }: { name: string; namespace: string }) {
  const { t } = useTranslation();
  const [asking, setAsking] = useState(false);
  if (!useCan()("delete", "secrets", namespace)) return null;
  return (
    <>
      <Tooltip label={t("secret.delete")}>
        <ActionIcon aria-label={t("secret.deleteOf", { name })} onClick={() => setAsking(true)}>
          <Trash2 size={14} />
        </ActionIcon>
      </Tooltip>
      {asking && (
        <ConfirmDialog
          title={t("secret.deleteTitle", { name })}
          text={t("secret.deleteText")}
          confirm={t("secret.delete")}
          red
          onConfirm={() => deleteSecret(name, namespace)}
          done={t("secret.deleted", { name })}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}
