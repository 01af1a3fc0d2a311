/** The form of a secret. The server validates the spec; a hidden value keeps the stored one. */

import type { SecretSpec } from "../api/schema";
import { HIDDEN } from "./alertForms";

/** A secret as in the form. */
export interface SecretForm {
  name: string;
  namespace: string;
  description: string;
  values: SecretValue[];
}

export interface SecretValue {
  key: string;
  value: string;
  /** Whether a value is stored, so that its key cannot be changed: the server finds the value by its key. */
  isStored: boolean;
}

export const NEW_VALUE: SecretValue = { key: "", value: "", isStored: false };

export function newSecretForm(namespace: string): SecretForm {
  return { name: "", namespace, description: "", values: [NEW_VALUE] };
}

export function secretForm({
  name,
  namespace = "default",
  description = "",
  values,
}: SecretSpec): SecretForm {
  const keys = Object.keys(values).sort();
  return { name, namespace, description: description ?? "", values: keys.map(stored) };
}

function stored(key: string): SecretValue {
  return { key, value: HIDDEN, isStored: true };
}

export function secretSpec({ name, namespace, description, values }: SecretForm): SecretSpec {
  return {
    name: name.trim(),
    namespace: namespace.trim(),
    description: description.trim() || undefined,
    values: Object.fromEntries(values.map(({ key, value }) => [key.trim(), value])),
  };
}

/** Returns whether the values can be saved: each has a key of its own, and none is empty. */
export function isComplete(values: readonly SecretValue[]): boolean {
  const keys = new Set(values.map(({ key }) => key.trim()));
  return (
    values.length > 0 && keys.size === values.length && values.every(({ key, value }) => key.trim() && value)
  );
}
