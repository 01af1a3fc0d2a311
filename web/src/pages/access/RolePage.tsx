/** One role: its permissions, and the accounts and groups that have it. */

import { ActionIcon, Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { FilePen, Package, Plus, Trash2, Unlink } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { bindingsQuery, deleteRole, roleQuery } from "../../api/access";
import type { Binding, Role } from "../../api/schema";
import { permissionsOf } from "../../lib/access";
import { usePageTitle } from "../../lib/title";
import { Allowed, AllowedSomewhere } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Card, ErrorBox, Loading, Page } from "../../ui/kit";
import { ToneBadge } from "../../ui/Status";
import style from "./access.module.css";
import { BindGroupDialog, UnbindDialog } from "./AccountDialogs";
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
        <Card title={t("binding.accounts")} aside={<BindGroup role={name} />} flush>
          <Accounts role={name} />
        </Card>
      </div>
    </Page>
  );
}

function BindGroup({ role }: { role: string }) {
  const { t } = useTranslation();
  const [binding, setBinding] = useState(false);
  return (
    <AllowedSomewhere verb="change" on="access">
      <Button variant="default" leftSection={<Plus size={13} />} onClick={() => setBinding(true)}>
        {t("binding.bindToGroup")}
      </Button>
      {binding && <BindGroupDialog role={role} onClose={() => setBinding(false)} />}
    </AllowedSomewhere>
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
      {data.items.map((binding) =>
        binding.account != null ? (
          <li key={`${binding.account} ${binding.namespace}`}>
            <Link to="/access/accounts/$name" params={{ name: binding.account }} className="clip">
              {binding.account}
            </Link>
            <span className="clip">
              <NamespaceName namespace={binding.namespace} />
            </span>
          </li>
        ) : (
          <GroupBinding key={`group:${binding.group} ${binding.namespace}`} binding={binding} />
        ),
      )}
    </ul>
  );
}

/** A binding of a group. It can be removed here, because groups have no page. */
function GroupBinding({ binding }: { binding: Binding }) {
  const { t } = useTranslation();
  const [unbinding, setUnbinding] = useState(false);
  const { role, group, namespace } = binding;
  return (
    <li>
      <span className="clip">{t("binding.groupName", { group })}</span>
      <span className="clip">
        <NamespaceName namespace={namespace} />
      </span>
      <Allowed verb="change" on="access" in={namespace}>
        <ActionIcon
          aria-label={t("binding.unbindOf", { role, namespace })}
          onClick={() => setUnbinding(true)}
        >
          <Unlink size={15} />
        </ActionIcon>
      </Allowed>
      {unbinding && <UnbindDialog binding={binding} onClose={() => setUnbinding(false)} />}
    </li>
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
