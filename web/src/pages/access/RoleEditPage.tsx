/** The form of a custom role. */

import { Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { Check } from "lucide-react";
import { type FormEvent, useState } from "react";
import { useTranslation } from "react-i18next";

import { roleQuery, saveRole } from "../../api/access";
import type { Role } from "../../api/schema";
import { permissionsOf, rulesOf } from "../../lib/access";
import { usePageTitle } from "../../lib/title";
import { Card, ErrorBox, Loading, Page } from "../../ui/kit";
import { notify } from "../../ui/notify";
import style from "./access.module.css";
import { PermissionTable } from "./PermissionTable";
import { Crumbs } from "./words";

const editRoute = getRouteApi("/access/roles/$name/edit");
const FORM = "role-form";

export function NewRolePage() {
  return <RoleForm />;
}

export function EditRolePage() {
  const { name } = editRoute.useParams();
  const { data, error, refetch } = useQuery(roleQuery(name));
  if (data) return <RoleForm key={name} role={data} />;
  return (
    <Page title={<Crumbs to="/access/roles" name={name} />}>
      {error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={8} />}
    </Page>
  );
}

function RoleForm({ role }: { role?: Role }) {
  const { t } = useTranslation();
  usePageTitle(role?.name ?? t("role.new"));
  const navigate = useNavigate();
  const [name, setName] = useState(role?.name ?? "");
  const [description, setDescription] = useState(role?.description ?? "");
  const [permissions, setPermissions] = useState(() => permissionsOf(role?.rules ?? []));
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const save = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await saveRole(name.trim(), description.trim(), rulesOf(permissions));
    } catch (error) {
      setError(error);
      return setBusy(false);
    }
    notify(t("role.saved", { name: name.trim() }));
    void navigate({ to: "/access/roles/$name", params: { name: name.trim() } });
  };
  return (
    <Page
      title={<Crumbs to="/access/roles" name={role?.name ?? t("role.new")} />}
      actions={
        <Button
          type="submit"
          form={FORM}
          leftSection={<Check size={14} />}
          loading={busy}
          disabled={name.trim() === "" || permissions.size === 0}
        >
          {t("role.save")}
        </Button>
      }
    >
      <p className="quiet">{t("role.formText")}</p>
      {error !== null && <ErrorBox error={error} />}
      <form id={FORM} onSubmit={(event) => void save(event)} className={style.main}>
        <div className={style.fields}>
          {!role && (
            <TextInput
              label={t("role.name")}
              description={t("role.nameHint")}
              inputWrapperOrder={["label", "input", "description", "error"]}
              value={name}
              onChange={(event) => setName(event.currentTarget.value)}
              required
              autoFocus
              autoComplete="off"
            />
          )}
          <TextInput
            label={t("role.description")}
            placeholder={t("common.optional")}
            value={description}
            onChange={(event) => setDescription(event.currentTarget.value)}
            maxLength={200}
          />
        </div>
        <Card title={t("role.permissions")} flush>
          <PermissionTable permissions={permissions} onChange={setPermissions} />
        </Card>
      </form>
    </Page>
  );
}
