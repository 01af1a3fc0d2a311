/** One role: its permissions, and the accounts that have it. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { FilePen, Package, Trash2 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { bindingsQuery, deleteRole, roleQuery } from "../../api/access";
import type { Role } from "../../api/schema";
import { permissionsOf } from "../../lib/access";
import { usePageTitle } from "../../lib/title";
import { Allowed } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Card, ErrorBox, Loading, Page } from "../../ui/kit";
import { ToneBadge } from "../../ui/Status";
import style from "./access.module.css";
import { PermissionTable } from "./PermissionTable";
import { Crumbs, NamespaceName, roleDescription, RoleName } from "./words";

const route = getRouteApi("/access/roles/$name");

export function RolePage() {
  const { name } = route.useParams();
  usePageTitle(name);
  const { data, error, refetch } = useQuery(roleQuery(name));
  if (data && !error) return <RoleDetails role={data} />;
  return (
    <Page title={<Crumbs to="/access/roles" name={name} />}>
      {error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={8} />}
    </Page>
  );
}

function RoleDetails({ role }: { role: Role }) {
  const { t } = useTranslation();
  const { name, built_in } = role;
  return (
    <Page
      title={
        <Crumbs to="/access/roles" name={<RoleName name={name} />}>
          {built_in && <ToneBadge tone="cancelled" icon={Package} word={t("role.builtIn")} />}
        </Crumbs>
      }
      actions={!built_in && <Actions name={name} />}
    >
      <p className="quiet">{roleDescription(role, t)}</p>
      <div className={style.columns}>
        <Card title={t("role.permissions")} flush>
          <PermissionTable permissions={permissionsOf(role.rules)} />
        </Card>
        <Card title={t("binding.accounts")} flush>
          <Accounts role={name} />
        </Card>
      </div>
    </Page>
  );
}

function Accounts({ role }: { role: string }) {
  const { t } = useTranslation();
  const { data, error } = useQuery(bindingsQuery({ role }));
  if (!data) {
    return <div className={style.padded}>{error ? <ErrorBox error={error} /> : <Loading rows={2} />}</div>;
  }
  if (data.items.length === 0) return <p className={`${style.padded} quiet`}>{t("binding.noAccounts")}</p>;
  return (
    <ul className={style.bindings} aria-label={t("binding.accounts")}>
      {data.items.map(({ account, namespace }) => (
        <li key={`${account} ${namespace}`}>
          <Link to="/access/accounts/$name" params={{ name: account }} className="clip">
            {account}
          </Link>
          <span className="clip">
            <NamespaceName namespace={namespace} />
          </span>
        </li>
      ))}
    </ul>
  );
}

function Actions({ name }: { name: string }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [deleting, setDeleting] = useState(false);
  const remove = async () => {
    await deleteRole(name);
    void navigate({ to: "/access/roles" });
  };
  return (
    <>
      <Allowed verb="change" on="access">
        <Button
          variant="default"
          leftSection={<FilePen size={14} />}
          renderRoot={(props) => <Link to="/access/roles/$name/edit" params={{ name }} {...props} />}
        >
          {t("role.edit")}
        </Button>
      </Allowed>
      <Allowed verb="delete" on="access">
        <Button variant="default" leftSection={<Trash2 size={14} />} onClick={() => setDeleting(true)}>
          {t("role.delete")}
        </Button>
      </Allowed>
      {deleting && (
        <ConfirmDialog
          title={t("role.deleteTitle", { name })}
          text={t("role.deleteText")}
          confirm={t("role.delete")}
          red
          onConfirm={remove}
          done={t("role.deleted", { name })}
          onClose={() => setDeleting(false)}
        />
      )}
    </>
  );
}
