/** A filter by an exact name. */

import { TextInput } from "@mantine/core";
import { X } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { useFilterShortcut } from "../lib/filterShortcut";
import style from "./filters.module.css";

interface FieldProps {
  label: string;
  value: string | undefined;
  onChange: (value: string | undefined) => void;
  isFirst?: boolean;
}

/** Filter by an exact name, applied on Enter or blur. */
export function FilterField({ label, value, onChange, isFirst }: FieldProps) {
  const { t } = useTranslation();
  const [text, setText] = useState(value ?? "");
  const input = useRef<HTMLInputElement>(null);
  const none = useRef<HTMLInputElement>(null);
  useFilterShortcut(isFirst ? input : none);
  useEffect(() => setText(value ?? ""), [value]);
  const commit = () => text.trim() !== (value ?? "") && onChange(text.trim() || undefined);
  return (
    <TextInput
      ref={input}
      className={style.field}
      aria-label={label}
      placeholder={label}
      value={text}
      onChange={(event) => setText(event.currentTarget.value)}
      onBlur={commit}
      onKeyDown={(event) => event.key === "Enter" && commit()}
      rightSectionPointerEvents="all"
      rightSection={
        value && (
          <button
            type="button"
            className={style.clear}
            aria-label={t("jobs.removeFilter", { filter: value })}
            onClick={() => onChange(undefined)}
          >
            <X size={13} />
          </button>
        )
      }
    />
  );
}
