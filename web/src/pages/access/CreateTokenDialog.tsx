/** Creates a token, then shows its secret once. */

import { Button, Group, Modal, SegmentedControl, Select, TagsInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { TriangleAlert } from "lucide-react";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { accountsQuery, createToken, rolesQuery } from "../../api/access";
import type { CreateToken } from "../../api/schema";
import { namespacesQuery } from "../../api/statistics";
import { DEFAULT_LIFETIME_DAYS, lifetime, LIFETIME_DAYS } from "../../lib/access";
import { useCanSomewhere } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Snippet } from "../../ui/kit";
import style from "./access.module.css";
import { roleOption } from "./words";

const BEARER_KINDS = ["account", "worker", "admin"] as const;
type BearerKind = (typeof BEARER_KINDS)[number];
/** Value of the select for a token that does not expire. */
const NEVER = "never";

interface Props {
  /** Bearer of the token; chosen in the dialog by default. */
  bearer?: { account: string };
  onClose: () => void;
}

export function CreateTokenDialog({ bearer, onClose }: Props) {
  const [secret, setSecret] = useState<string | null>(null);
  const isCreated = useRef(false);
  if (secret !== null) return <SecretDialog secret={secret} onClose={onClose} />;
  const onCreated = (created: string) => {
    isCreated.current = true;
    setSecret(created);
  };
  // The form closes itself after the creation, which must not close the dialog with the secret.
  return <Form bearer={bearer} onCreated={onCreated} onClose={() => isCreated.current || onClose()} />;
}

function Form({ bearer, onCreated, onClose }: Props & { onCreated: (secret: string) => void }) {
  const { t } = useTranslation();
  const [bearerKind, setBearerKind] = useState<BearerKind>("account");
  const [account, setAccount] = useState<string | null>(bearer?.account ?? null);
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const [days, setDays] = useState<string>(String(DEFAULT_LIFETIME_DAYS));
  const [role, setRole] = useState<string | null>(null);
  const [namespaces, setNamespaces] = useState<string[]>([]);
  const isAccount = bearerKind === "account";
  const chooseKind = (kind: BearerKind) => {
    setBearerKind(kind);
    setDays(kind === "account" ? String(DEFAULT_LIFETIME_DAYS) : NEVER);
  };
  const create = async () => {
    const body: CreateToken = {
      ...(isAccount ? { account } : { kind: bearerKind, name: name.trim() || undefined }),
      description: description.trim() || undefined,
      expires_in: days === NEVER ? undefined : lifetime(Number(days)),
      ...(bearerKind === "worker" ? {} : { role: role ?? undefined, namespaces }),
    };
    onCreated((await createToken(body)).secret);
  };
  return (
    <ConfirmDialog
      title={bearer ? t("token.createFor", { name: bearer.account }) : t("token.new")}
      text={t("token.ownText")}
      confirm={t("token.create")}
      onConfirm={create}
      onClose={onClose}
    >
      <div className={style.form}>
        {!bearer && (
          <>
            <SegmentedControl
              aria-label={t("token.bearerKind")}
              value={bearerKind}
              onChange={chooseKind}
              data={BEARER_KINDS.map((value) => ({ value, label: t(`token.bearerKinds.${value}`) }))}
            />
            {isAccount ? (
              <AccountSelect value={account} onChange={setAccount} />
            ) : (
              <TextInput
                label={t("token.name")}
                placeholder={bearerKind}
                value={name}
                onChange={(event) => setName(event.currentTarget.value)}
              />
            )}
          </>
        )}
        <TextInput
          label={t("token.description")}
          placeholder={t("token.descriptionHint")}
          value={description}
          onChange={(event) => setDescription(event.currentTarget.value)}
          maxLength={200}
          data-autofocus
        />
        <Select
          label={t("token.expiry")}
          value={days}
          onChange={(value) => value && setDays(value)}
          data={[
            ...LIFETIME_DAYS.map((count) => ({ value: String(count), label: t("token.days", { count }) })),
            ...(isAccount ? [] : [{ value: NEVER, label: t("token.never") }]),
          ]}
          allowDeselect={false}
        />
        {bearerKind !== "worker" && (
          <Limits role={role} onRole={setRole} namespaces={namespaces} onNamespaces={setNamespaces} />
        )}
      </div>
    </ConfirmDialog>
  );
}

function AccountSelect(props: { value: string | null; onChange: (value: string | null) => void }) {
  const { t } = useTranslation();
  const accounts = useQuery(accountsQuery()).data?.items ?? [];
  return (
    <Select
      label={t("token.account")}
      {...props}
      data={accounts.map(({ name, title }) => ({ value: name, label: title ? `${name} · ${title}` : name }))}
      limit={200}
      required
      searchable
      nothingFoundMessage={t("palette.nothing")}
    />
  );
}

interface LimitsProps {
  role: string | null;
  onRole: (role: string | null) => void;
  namespaces: string[];
  onNamespaces: (namespaces: string[]) => void;
}

function Limits({ role, onRole, namespaces, onNamespaces }: LimitsProps) {
  const { t, i18n } = useTranslation();
  const roles = useQuery(rolesQuery).data?.items ?? [];
  const readsJobs = useCanSomewhere()("read", "jobs");
  const known = useQuery({ ...namespacesQuery, enabled: readsJobs }).data ?? [];
  return (
    <>
      <Select
        label={t("token.role")}
        placeholder={t("token.roleNone")}
        value={role}
        onChange={onRole}
        data={roles.map(({ name }) => ({ value: name, label: roleOption(name, t, i18n.language) }))}
        clearable
        searchable
        nothingFoundMessage={t("palette.nothing")}
      />
      <TagsInput
        label={t("token.namespaces")}
        placeholder={namespaces.length === 0 ? t("token.namespacesNone") : undefined}
        value={namespaces}
        onChange={onNamespaces}
        data={known}
        limit={200}
      />
    </>
  );
}

/** Shows the secret of a new token. Only its button closes it, so that the secret is not lost by accident. */
function SecretDialog({ secret, onClose }: { secret: string; onClose: () => void }) {
  const { t } = useTranslation();
  return (
    <Modal
      opened
      onClose={onClose}
      title={t("token.secretTitle")}
      size={480}
      withCloseButton={false}
      closeOnClickOutside={false}
      closeOnEscape={false}
    >
      <p className={style.warning} role="alert">
        <TriangleAlert size={15} aria-hidden /> {t("token.secretText")}
      </p>
      <div data-testid="secret">
        <Snippet text={secret} />
      </div>
      <Group justify="flex-end" mt="md">
        <Button onClick={onClose} data-autofocus>
          {t("token.done")}
        </Button>
      </Group>
    </Modal>
  );
}
