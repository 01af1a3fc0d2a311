/** A spec as a file: an editor, in YAML or JSON, with what is wrong said below it. */

import { SegmentedControl, Skeleton } from "@mantine/core";
import { Check, TriangleAlert } from "lucide-react";
import { lazy, Suspense, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { toYaml } from "../../lib/spec";
import { Card } from "../kit";
import { loadSchemas, type SpecName } from "./completions";
import type { Form } from "./Editor";
import style from "./editor.module.css";
import type { Draft } from "./useDraft";

const Editor = lazy(() => import("./Editor"));

interface Props<T> {
  title: string;
  schema: SpecName;
  draft: Draft<T>;
  /** What to say when the server would take it. */
  fine: string;
}

export function FileCard<T extends object>({ title, schema, draft, fine }: Props<T>) {
  const { t } = useTranslation();
  const [form, setForm] = useState<Form>("yaml");
  const { spec } = draft;
  useEffect(() => void loadSchemas().catch(() => undefined), []);

  const turn = (next: Form) => {
    setForm(next);
    if (spec) draft.change(next === "json" ? `${JSON.stringify(spec, null, 2)}\n` : toYaml(spec));
  };
  return (
    <Card
      flush
      className={`${style.card} ${style.file}`}
      title={title}
      aside={
        <SegmentedControl
          aria-label={title}
          value={form}
          onChange={(value) => turn(value)}
          disabled={!spec}
          data={[
            { value: "yaml", label: "YAML" },
            { value: "json", label: "JSON" },
          ]}
        />
      }
    >
      <div className={style.editor}>
        <Suspense fallback={<Skeleton height="100%" />}>
          <Editor
            schema={schema}
            text={draft.text}
            form={form}
            label={title}
            diagnostics={draft.diagnostics}
            onChange={draft.change}
          />
        </Suspense>
      </div>
      <div className={style.verdict} data-bad={draft.error || draft.refusal ? true : undefined} role="status">
        {draft.error ? (
          <>
            <TriangleAlert size={14} aria-hidden />
            {t("submit.line", { line: draft.error.line, message: draft.error.message })}
          </>
        ) : draft.refusal ? (
          <>
            <TriangleAlert size={14} aria-hidden />
            <span>
              {draft.refusal.message}{" "}
              {draft.refusal.hint && <span className="quiet">{draft.refusal.hint}</span>}
            </span>
          </>
        ) : draft.verdict === "fine" ? (
          <>
            <Check size={14} aria-hidden />
            {fine}
          </>
        ) : (
          t("submit.checking")
        )}
      </div>
    </Card>
  );
}
