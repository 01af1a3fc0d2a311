/** Dialogs about accounts and their roles. */

import { Autocomplete, SegmentedControl, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import {
  bindRole,
  changeAccount,
  createAccount,
  deleteAccount,
  rolesQuery,
  unbindRole,
} from "../../api/access";
import { meQuery } from "../../api/queries";
import type { Account, AccountKind, Binding } from "../../api/schema";
import { namespacesQuery } from "../../api/statistics";
import { ACCOUNT_KINDS } from "../../lib/access";
import { ALL_NAMESPACES, namespaceChoices } from "../../lib/namespaces";
import { namespacesOf } from "../../lib/rights";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import style from "./access.module.css";
import { roleDescription, roleOption } from "./words";

export function CreateAccountDialog({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [name, setName] = useState("");
  const [kind, setKind] = useState<AccountKind>("user");
  const create = async (title: string) => {
    await createAccount(name.trim(), kind, title);
    void navigate({ to: "/access/accounts/$name", params: { name: name.trim() } });
  };
  return (
    <ConfirmDialog
      title={t("account.new")}
      text={t("account.createText")}
      field={{ label: t("account.title") }}
      confirm={t("account.create")}
      onConfirm={create}
      done={t("account.created", { name: name.trim() })}
      onClose={onClose}
    >
      <div className={style.form}>
        <SegmentedControl
          aria-label={t("account.kind")}
          value={kind}
          onChange={setKind}
          data={ACCOUNT_KINDS.map((value) => ({ value, label: t(`tokenKind.${value}`) }))}
        />
        <TextInput
          label={t("account.columns.name")}
          description={t("account.nameHint")}
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          required
          autoComplete="off"
          data-autofocus
        />
      </div>
    </ConfirmDialog>
  );
}

/** Binds a role to a group of the OpenID provider. */
export function BindGroupDialog({ role, onClose }: { role: string; onClose: () => void }) {
  const { t } = useTranslation();
  const [group, setGroup] = useState("");
  const [namespace, setNamespace] = useState("");
  const namespaces = useBindingNamespaces();
  return (
    <ConfirmDialog
      title={t("binding.bindGroupTitle", { role })}
      text={t("binding.bindGroupText")}
      confirm={t("binding.bind")}
      onConfirm={() => bindRole({ role, group, namespace: namespace.trim() })}
      done={t("binding.bound", { role, account: t("binding.groupName", { group }) })}
      onClose={onClose}
    >
      <div className={style.form}>
        <TextInput
          label={t("binding.group")}
          description={t("binding.groupHint")}
          inputWrapperOrder={["label", "input", "description", "error"]}
          value={group}
          onChange={(event) => setGroup(event.currentTarget.value)}
          required
          autoComplete="off"
          data-autofocus
        />
        <NamespaceField value={namespace} onChange={setNamespace} namespaces={namespaces} />
      </div>
    </ConfirmDialog>
  );
}

/** Returns the namespaces whose bindings the caller may change. */
function useBindingNamespaces(): string[] {
  const known = useQuery(namespacesQuery).data ?? [];
  const me = useQuery(meQuery).data;
  const permitted = namespacesOf(me, "change", "access");
  return permitted.includes(ALL_NAMESPACES)
    ? [ALL_NAMESPACES, ...namespaceChoices(["default", ...known])]
    : namespaceChoices(permitted);
}

interface NamespaceFieldProps {
  value: string;
  onChange: (value: string) => void;
  namespaces: string[];
}

function NamespaceField({ value, onChange, namespaces }: NamespaceFieldProps) {
  const { t } = useTranslation();
  return (
    <Autocomplete
      label={t("binding.columns.namespace")}
      description={t("binding.namespaceHint")}
      inputWrapperOrder={["label", "input", "description", "error"]}
      value={value}
      onChange={onChange}
      data={namespaces}
      limit={200}
      required
    />
  );
}

/** Binds a role to an account. */
export function BindDialog({ account, onClose }: { account: string; onClose: () => void }) {
  const { t, i18n } = useTranslation();
  const roles = useQuery(rolesQuery).data?.items ?? [];
  const [role, setRole] = useState<string | null>(null);
  const [namespace, setNamespace] = useState("");
  const namespaces = useBindingNamespaces();
  const chosen = roles.find(({ name }) => name === role);
  return (
    <ConfirmDialog
      title={t("binding.bindTitle", { name: account })}
      text={t("binding.bindText")}
      confirm={t("binding.bind")}
      onConfirm={() => bindRole({ role: role ?? "", account, namespace: namespace.trim() })}
      done={t("binding.bound", { role: role ?? "", account })}
      onClose={onClose}
    >
      <div className={style.form}>
        <Select
          label={t("binding.columns.role")}
          description={chosen && roleDescription(chosen, t)}
          inputWrapperOrder={["label", "input", "description", "error"]}
          value={role}
          onChange={setRole}
          data={roles.map(({ name }) => ({ value: name, label: roleOption(name, t, i18n.language) }))}
          required
          searchable
          openOnFocus={false}
          nothingFoundMessage={t("palette.nothing")}
          data-autofocus
        />
        <NamespaceField value={namespace} onChange={setNamespace} namespaces={namespaces} />
      </div>
    </ConfirmDialog>
  );
}

export function UnbindDialog({ binding, onClose }: { binding: Binding; onClose: () => void }) {
  const { t } = useTranslation();
  const { role, namespace } = binding;
  const account = binding.account ?? t("binding.groupName", { group: binding.group });
  return (
    <ConfirmDialog
      title={t("binding.unbindTitle", { role, account })}
      text={t("binding.unbindText", { namespace })}
      confirm={t("binding.unbind")}
      red
      onConfirm={() => unbindRole(binding)}
      done={t("binding.unbound", { role, account })}
      onClose={onClose}
    />
  );
}

export function DisableDialog({ account, onClose }: { account: Account; onClose: () => void }) {
  const { t } = useTranslation();
  const { name } = account;
  return (
    <ConfirmDialog
      title={t("account.disableTitle", { name })}
      text={t("account.disableText")}
      confirm={t("account.disable")}
      red
      onConfirm={() => changeAccount(name, { disabled: true })}
      done={t("account.disableDone", { name })}
      onClose={onClose}
    />
  );
}

export function RenameDialog({ account, onClose }: { account: Account; onClose: () => void }) {
  const { t } = useTranslation();
  return (
    <ConfirmDialog
      title={t("account.rename")}
      text={account.name}
      field={{ label: t("account.title"), value: account.title ?? "" }}
      confirm={t("common.save")}
      onConfirm={(title) => changeAccount(account.name, { title })}
      done={t("account.renamed")}
      onClose={onClose}
    />
  );
}

export function DeleteAccountDialog({ account, onClose }: { account: Account; onClose: () => void }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const { name } = account;
  const remove = async () => {
    await deleteAccount(name);
    void navigate({ to: "/access" });
  };
  return (
    <ConfirmDialog
      title={t("account.deleteTitle", { name })}
      text={t("account.deleteText")}
      confirm={t("account.delete")}
      red
      onConfirm={remove}
      done={t("account.deleted", { name })}
      onClose={onClose}
    />
  );
}
