/** Creates or changes a channel. A stored secret is shown as `******` and stays unless the user replaces it. */

import { ActionIcon, Button, PasswordInput, SegmentedControl, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Plus, X } from "lucide-react";
import { type ChangeEvent, type FocusEvent, useState } from "react";
import { useTranslation } from "react-i18next";

import { channelsQuery, saveChannel } from "../../api/alerts";
import type { Channel } from "../../api/schema";
import {
  CHANNEL_FIELDS,
  CHANNEL_KINDS,
  type ChannelForm,
  channelForm,
  channelSpec,
  hasHeaders,
  type Header,
  HIDDEN,
  isMoved,
  newChannelForm,
} from "../../lib/alertForms";
import { usePreferences } from "../../lib/preferences";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import style from "./alerts.module.css";
import { NamespaceInput, useNewNamespace } from "./NamespaceInput";
import { channelKindName } from "./words";

interface FormProps {
  form: ChannelForm;
  change: (part: Partial<ChannelForm>) => void;
  /** Whether hidden secrets are refused, because the address has changed. */
  moved: boolean;
}

/** `channel` is null for a new channel. */
export function ChannelDialog({ channel, onClose }: { channel: Channel | null; onClose: () => void }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const newNamespace = useNewNamespace("change");
  const [stored] = useState(() => channel && channelForm(channel));
  const [form, setForm] = useState(
    () => stored ?? newChannelForm(newNamespace, language.startsWith("zh") ? "zh-CN" : "en"),
  );
  const change = (part: Partial<ChannelForm>) => setForm({ ...form, ...part });
  const channels = useQuery(channelsQuery()).data?.items ?? [];
  const name = form.name.trim();
  const exists =
    channel === null &&
    channels.some((each) => each.name === name && (each.namespace ?? "default") === form.namespace.trim());
  return (
    <ConfirmDialog
      title={channel ? t("channel.editOf", { name: channel.name }) : t("channel.new")}
      text={t("channel.formText")}
      confirm={t("common.save")}
      size={560}
      disabled={name === "" || exists}
      onConfirm={() => saveChannel(channelSpec(form), channel?.version ?? null)}
      done={t("channel.saved", { name })}
      onClose={onClose}
    >
      <div className={style.form}>
        <div className={style.pair}>
          <TextInput
            label={t("alertRule.name")}
            description={channel ? undefined : t("alertRule.nameHint")}
            value={form.name}
            onChange={(event) => change({ name: event.currentTarget.value })}
            error={exists && t("channel.exists")}
            disabled={channel !== null}
            required
            autoComplete="off"
            data-autofocus={channel === null ? true : undefined}
          />
          <NamespaceInput
            verb="change"
            value={form.namespace}
            onChange={(namespace) => change({ namespace })}
            disabled={channel !== null}
          />
        </div>
        <Select
          label={t("channel.kind")}
          value={form.kind}
          onChange={(kind) => kind && change({ kind: kind, values: {}, headers: [] })}
          data={CHANNEL_KINDS.map((value) => ({ value, label: channelKindName(value, t) }))}
          allowDeselect={false}
          maxDropdownHeight={320}
        />
        <TargetFields form={form} change={change} moved={isMoved(form, stored)} />
        <TextInput
          label={t("alertRule.description")}
          value={form.description}
          onChange={(event) => change({ description: event.currentTarget.value })}
          data-autofocus={channel !== null ? true : undefined}
        />
        <div>
          <div className={style.label} id="channel-language">
            {t("channel.language")}
          </div>
          <SegmentedControl
            aria-labelledby="channel-language"
            value={form.language}
            onChange={(language) => change({ language })}
            data={[
              { value: "en", label: "English" },
              { value: "zh-CN", label: "中文" },
            ]}
          />
        </div>
      </div>
    </ConfirmDialog>
  );
}

function TargetFields({ form, change, moved }: FormProps) {
  const { t } = useTranslation();
  const { kind, values } = form;
  return (
    <>
      {CHANNEL_FIELDS[kind].map(({ key, isSecret, isOptional, example }) => {
        const value = values[key] ?? "";
        const input = {
          label: t(`channelField.${key}`),
          placeholder: example ?? (isOptional ? t("common.optional") : undefined),
          value,
          onChange: (event: ChangeEvent<HTMLInputElement>) =>
            change({ values: { ...values, [key]: event.currentTarget.value } }),
          required: !isOptional,
        };
        return isSecret ? (
          <SecretInput key={key} {...input} moved={moved} />
        ) : (
          <TextInput key={key} {...input} autoComplete="off" />
        );
      })}
      {hasHeaders(kind) && <Headers form={form} change={change} moved={moved} />}
    </>
  );
}

interface SecretProps {
  label?: string;
  "aria-label"?: string;
  placeholder?: string;
  value: string;
  onChange: (event: ChangeEvent<HTMLInputElement>) => void;
  required?: boolean;
  moved: boolean;
  /** Without a hint below the label. */
  plain?: boolean;
}

/** A secret. Typing replaces a hidden one as a whole. */
function SecretInput({ moved, plain, ...input }: SecretProps) {
  const { t } = useTranslation();
  const isHidden = input.value === HIDDEN;
  return (
    <PasswordInput
      {...input}
      description={isHidden && !plain ? t("channel.keepsSecret") : undefined}
      error={isHidden && moved ? t("channel.secretAgain") : undefined}
      autoComplete="new-password"
      onFocus={(event: FocusEvent<HTMLInputElement>) => isHidden && event.currentTarget.select()}
    />
  );
}

function Headers({ form: { headers }, change, moved }: FormProps) {
  const { t } = useTranslation();
  const set = (index: number, part: Partial<Header>) =>
    change({ headers: headers.map((each, i) => (i === index ? { ...each, ...part } : each)) });
  return (
    <fieldset className={style.fieldset}>
      <legend>{t("channel.headers")}</legend>
      {headers.map(({ name, value }, i) => (
        <div key={i} className={style.header}>
          <TextInput
            aria-label={t("channel.headerName", { number: i + 1 })}
            placeholder="Authorization"
            value={name}
            onChange={(event) => set(i, { name: event.currentTarget.value })}
            autoComplete="off"
          />
          <SecretInput
            aria-label={t("channel.headerValue", { number: i + 1 })}
            value={value}
            onChange={(event) => set(i, { value: event.currentTarget.value })}
            moved={moved}
            plain
          />
          <ActionIcon
            aria-label={t("channel.removeHeader", { number: i + 1 })}
            onClick={() => change({ headers: headers.filter((_, other) => other !== i) })}
          >
            <X size={14} />
          </ActionIcon>
        </div>
      ))}
      <div>
        <Button
          variant="default"
          leftSection={<Plus size={13} />}
          onClick={() => change({ headers: [...headers, { name: "", value: "" }] })}
        >
          {t("channel.addHeader")}
        </Button>
      </div>
    </fieldset>
  );
}
