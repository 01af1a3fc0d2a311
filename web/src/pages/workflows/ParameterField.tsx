/** Form field of a workflow parameter. */

import { NumberInput, Select, Switch, Textarea, TextInput } from "@mantine/core";
import { useTranslation } from "react-i18next";

import type { Parameter } from "../../api/schema";
import { type FieldHints, fieldHintsOf, isReference, toFieldText } from "../../lib/parameters";
import style from "./workflows.module.css";

interface FieldProps {
  name: string;
  parameter: Parameter;
  value: string;
  error: string | undefined;
  onChange: (value: string) => void;
  /** Whether a text with a reference is allowed for any type. */
  allowsReferences?: boolean;
}

/** Renders a field for the parameter's type and schema. */
export function ParameterField({ name, parameter, value, error, onChange, allowsReferences }: FieldProps) {
  const { t } = useTranslation();
  const hints = fieldHintsOf(parameter);
  const bounds = [
    hints.minimum !== undefined && `≥ ${hints.minimum}`,
    hints.maximum !== undefined && `≤ ${hints.maximum}`,
  ].filter(Boolean);
  const common = {
    label: name,
    description: [parameter.description, ...bounds].filter(Boolean).join(" · ") || undefined,
    error,
    withAsterisk: parameter.default === undefined,
    placeholder: hints.example,
  };
  if (allowsReferences && (isReference(value) || !hasSpecialField(parameter, hints))) {
    const change = (event: { currentTarget: { value: string } }) => onChange(event.currentTarget.value);
    return <TextInput {...common} value={value} onChange={change} />;
  }
  if (hints.choices) {
    return (
      <Select
        {...common}
        value={value === "" ? null : value}
        onChange={(next) => onChange(next ?? "")}
        data={hints.choices.map((choice) => ({ value: toFieldText(choice), label: toFieldText(choice) }))}
        clearable={parameter.default === undefined}
        searchable={hints.choices.length > 8}
      />
    );
  }
  switch (parameter.type) {
    case "boolean":
      return parameter.default === undefined ? (
        <Select
          {...common}
          value={value === "" ? null : value}
          onChange={(next) => onChange(next ?? "")}
          data={[
            { value: "true", label: t("common.yes") },
            { value: "false", label: t("common.no") },
          ]}
        />
      ) : (
        <Switch
          label={name}
          description={common.description}
          error={error}
          checked={value === "true"}
          onChange={(event) => onChange(String(event.currentTarget.checked))}
        />
      );
    case "integer":
    case "number":
      return (
        <NumberInput
          {...common}
          value={value}
          onChange={(next) => onChange(String(next))}
          allowDecimal={parameter.type === "number"}
        />
      );
    case "array":
    case "object":
      return (
        <Textarea
          {...common}
          placeholder={hints.example ?? (parameter.type === "array" ? '["a", "b"]' : '{"key": "value"}')}
          classNames={{ input: style.code }}
          autosize
          minRows={2}
          maxRows={8}
          value={value}
          onChange={(event) => onChange(event.currentTarget.value)}
        />
      );
    case "string": {
      const change = (event: { currentTarget: { value: string } }) => onChange(event.currentTarget.value);
      return (hints.maxLength ?? 0) > 200 || value.includes("\n") ? (
        <Textarea {...common} autosize minRows={2} maxRows={8} value={value} onChange={change} />
      ) : (
        <TextInput {...common} value={value} onChange={change} />
      );
    }
  }
}

/**
 * Returns whether the parameter has a field other than one line of text. Only text and number fields can contain
 * references.
 */
function hasSpecialField({ type }: Parameter, { choices }: FieldHints): boolean {
  return choices !== null || type === "boolean" || type === "array" || type === "object";
}
