/** Fields of a job's form that several runtimes have. */

import { Select, Textarea, TextInput } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { parsePairs } from "../../lib/pairs";
import { join, split } from "../../lib/shell";
import style from "./submit.module.css";

const INTERPRETERS: Record<string, string[] | undefined> = {
  sh: undefined,
  bash: ["bash"],
  python: ["python3", "-u"],
  node: ["node"],
};

export function Interpreter({
  value,
  onChange,
}: {
  value: readonly string[];
  onChange: (value?: string[]) => void;
}) {
  const { t } = useTranslation();
  const known = Object.entries(INTERPRETERS).find(
    ([, words]) => (words ?? []).join(" ") === value.join(" "),
  )?.[0];
  const data = Object.keys(INTERPRETERS);
  return (
    <Select
      aria-label={t("submit.interpreter")}
      w={130}
      data={known ? data : [...data, value.join(" ")]}
      value={known ?? value.join(" ")}
      onChange={(name) => name !== null && name in INTERPRETERS && onChange(INTERPRETERS[name])}
      allowDeselect={false}
    />
  );
}

interface CommandLineProps {
  label: string;
  /** Whether a label is shown; otherwise it is only for assistive technology. */
  isLabelled?: boolean;
  description?: string;
  placeholder?: string;
  words: readonly string[];
  onChange: (words: string[]) => void;
  error?: string;
}

export function CommandLine(props: CommandLineProps) {
  const { label, isLabelled, description, placeholder, onChange } = props;
  const { t } = useTranslation();
  const given = join(props.words);
  const [draft, setDraft] = useState<{ text: string; made: string } | null>(null);
  // The typed text is kept as long as it means the same as the spec.
  const text = draft && draft.made === given ? draft.text : given;
  return (
    <TextInput
      label={isLabelled ? label : undefined}
      aria-label={isLabelled ? undefined : label}
      description={description}
      placeholder={placeholder}
      inputWrapperOrder={["label", "input", "description", "error"]}
      classNames={{ input: style.code }}
      spellCheck={false}
      value={draft && split(draft.text) === null ? draft.text : text}
      error={draft && split(draft.text) === null ? t("submit.openQuote") : props.error}
      onChange={(event) => {
        const words = split(event.currentTarget.value);
        setDraft({ text: event.currentTarget.value, made: words ? join(words) : given });
        if (words) onChange(words);
      }}
    />
  );
}

interface ScriptProps {
  value: string;
  onChange: (script: string) => void;
  error?: string;
}

export function Script({ value, onChange, error }: ScriptProps) {
  const { t } = useTranslation();
  return (
    <Textarea
      aria-label={t("submit.script")}
      classNames={{ input: style.code }}
      autosize
      minRows={6}
      maxRows={18}
      spellCheck={false}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={error}
    />
  );
}

interface ListFieldProps {
  label: string;
  placeholder: string;
  description?: string;
  value: readonly string[];
  split: (text: string) => string[];
  onChange: (items: string[] | undefined) => void;
  error?: string;
  testId?: string;
}

/** A list in one line, such as `1m, 5m`. */
export function ListField(props: ListFieldProps) {
  const given = props.value.join(", ");
  const [draft, setDraft] = useState<{ text: string; made: string } | null>(null);
  return (
    <TextInput
      label={props.label}
      placeholder={props.placeholder}
      description={props.description}
      inputWrapperOrder={["label", "input", "description", "error"]}
      // The typed text is kept as long as it means the same as the spec.
      value={draft?.made === given ? draft.text : given}
      onChange={(event) => {
        const text = event.currentTarget.value;
        const next = props.split(text);
        setDraft({ text, made: next.join(", ") });
        props.onChange(next.length > 0 ? next : undefined);
      }}
      error={props.error}
      data-testid={props.testId}
    />
  );
}

interface KeyValueFieldProps {
  label: string;
  placeholder: string;
  value: Record<string, string>;
  onChange: (value: Record<string, string> | undefined) => void;
  error?: string;
  /** Text between a name and its value. If it ends with a space, values have no spaces around them. */
  separator?: string;
}

/** A field of `NAME=VALUE` lines. */
export function KeyValueField(props: KeyValueFieldProps) {
  const { label, placeholder, value, onChange, error, separator = "=" } = props;
  const toText = (pairs: Record<string, string>) =>
    Object.entries(pairs)
      .map(([key, each]) => `${key}${separator}${each}`)
      .join("\n");
  const given = toText(value);
  const [draft, setDraft] = useState<{ text: string; made: string } | null>(null);
  return (
    <Textarea
      label={label}
      placeholder={placeholder}
      classNames={{ input: style.code }}
      autosize
      minRows={2}
      spellCheck={false}
      value={draft?.made === given ? draft.text : given}
      error={error}
      onChange={(event) => {
        const text = event.currentTarget.value;
        const next = parsePairs(text, separator);
        setDraft({ text, made: toText(next) });
        onChange(Object.keys(next).length > 0 ? next : undefined);
      }}
    />
  );
}
