/** Creates or changes a secret. A stored value is hidden and stays unless the user replaces it. */

import { ActionIcon, Button, Textarea, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Plus, X } from "lucide-react";
import { type FocusEvent, useState } from "react";
import { useTranslation } from "react-i18next";

import type { Secret } from "../../api/schema";
import { saveSecret, secretsQuery } from "../../api/secrets";
import { HIDDEN } from "../../lib/alertForms";
import {
  isComplete,
  NEW_VALUE,
  newSecretForm,
  secretForm,
  type SecretForm,
  secretSpec,
  type SecretValue,
} from "../../lib/secrets";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { NamespaceInput, useNewNamespace } from "../alerts/NamespaceInput";
import style from "./secrets.module.css";

/** `secret` is null for a new secret. */
export function SecretDialog({ secret, onClose }: { secret: Secret | null; onClose: () => void }) {
  const { t } = useTranslation();
  const newNamespace = useNewNamespace("change", "secrets");
  const [form, setForm] = useState(() => (secret ? secretForm(secret) : newSecretForm(newNamespace)));
  // Version when the dialog opened, so that a concurrent change is not overwritten.
  const [version] = useState(secret?.version ?? null);
  const change = (part: Partial<SecretForm>) => setForm({ ...form, ...part });
  const set = (index: number, part: Partial<SecretValue>) =>
    change({ values: form.values.map((each, i) => (i === index ? { ...each, ...part } : each)) });
  const secrets = useQuery(secretsQuery()).data?.items ?? [];
  const name = form.name.trim();
  const exists =
    secret === null &&
    secrets.some((each) => each.name === name && (each.namespace ?? "default") === form.namespace.trim());
  return (
    <ConfirmDialog
      title={secret ? t("secret.editOf", { name: secret.name }) : t("secret.new")}
      text={t("secret.formText")}
      confirm={t("common.save")}
      size={560}
      disabled={name === "" || exists || !isComplete(form.values)}
      onConfirm={() => saveSecret(secretSpec(form), version)}
      done={t("secret.saved", { name })}
      onClose={onClose}
    >
      <div className={style.form}>
        <div className={style.pair}>
          <TextInput
            label={t("secret.name")}
            description={secret ? undefined : t("alertRule.nameHint")}
            value={form.name}
            onChange={(event) => change({ name: event.currentTarget.value })}
            error={exists && t("secret.exists")}
            disabled={secret !== null}
            required
            autoComplete="off"
            data-autofocus={secret === null ? true : undefined}
          />
          <NamespaceInput
            verb="change"
            on="secrets"
            value={form.namespace}
            onChange={(namespace) => change({ namespace })}
            disabled={secret !== null}
          />
        </div>
        <TextInput
          label={t("secret.description")}
          value={form.description}
          onChange={(event) => change({ description: event.currentTarget.value })}
        />
        <fieldset className={style.fieldset}>
          <legend>{t("secret.values")}</legend>
          {form.values.map(({ key, value, isStored }, i) => (
            <div key={i} className={style.value}>
              <TextInput
                aria-label={t("secret.keyOf", { number: i + 1 })}
                placeholder="password"
                value={key}
                onChange={(event) => set(i, { key: event.currentTarget.value })}
                disabled={isStored}
                autoComplete="off"
              />
              <Textarea
                aria-label={t("secret.valueOf", { number: i + 1 })}
                classNames={{ input: style.hidden }}
                value={value}
                onChange={(event) => set(i, { value: event.currentTarget.value })}
                onFocus={(event: FocusEvent<HTMLTextAreaElement>) =>
                  value === HIDDEN && event.currentTarget.select()
                }
                autosize
                minRows={1}
                maxRows={6}
                autoComplete="off"
                spellCheck={false}
              />
              <ActionIcon
                aria-label={t("secret.removeValue", { number: i + 1 })}
                onClick={() => change({ values: form.values.filter((_, other) => other !== i) })}
              >
                <X size={14} />
              </ActionIcon>
            </div>
          ))}
          <div>
            <Button
              variant="default"
              size="xs"
              leftSection={<Plus size={14} />}
              onClick={() => change({ values: [...form.values, NEW_VALUE] })}
            >
              {t("secret.addValue")}
            </Button>
          </div>
        </fieldset>
      </div>
    </ConfirmDialog>
  );
}
