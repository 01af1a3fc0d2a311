/** Spec editor in YAML or JSON, with the validation result below. */

import { Button, SegmentedControl, Skeleton } from "@mantine/core";
import { CatchBoundary, type ErrorComponentProps } from "@tanstack/react-router";
import { Check, TriangleAlert } from "lucide-react";
import { createContext, Suspense, useContext, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { ApiError } from "../../api/errors";
import { lazyPart, ChunkLoadError } from "../../app/lazyPage";
import { useChunkReload } from "../../app/useChunkReload";
import { NOT_A_MAP, toYaml } from "../../lib/spec";
import { Card, ErrorBox } from "../kit";
import { loadSchemas, type SpecName } from "./completions";
import type { Format } from "./Editor";
import style from "./editor.module.css";
import type { Draft } from "./useDraft";

const Editor = lazyPart(() => import("./Editor"));

/** Whether the text is unmodified, so that a reload loses no input. */
const UnmodifiedContext = createContext(true);

/** Shown in place of an editor that failed; the form next to it still works. */
function EditorError({ error, reset }: ErrorComponentProps) {
  const { t } = useTranslation();
  useChunkReload(error, reset, useContext(UnmodifiedContext));
  if (!(error instanceof ChunkLoadError)) return <ErrorBox error={error} onRetry={reset} />;
  // A browser does not request a missing module again, as after a server upgrade, so the page must be reloaded.
  return (
    <>
      <ErrorBox error={new ApiError("not_loaded", 0, error.message)} />
      <Button m="md" variant="default" onClick={() => location.reload()}>
        {t("failed.reload")}
      </Button>
    </>
  );
}

interface Props<T> {
  title: string;
  schema: SpecName;
  draft: Draft<T>;
  /** Text for a valid spec. */
  validText: string;
}

export function FileCard<T extends object>({ title, schema, draft, validText }: Props<T>) {
  const { t } = useTranslation();
  const [form, setForm] = useState<Format>("yaml");
  const { spec } = draft;
  useEffect(() => void loadSchemas().catch(() => undefined), []);
  const [first] = useState(draft.text);

  const changeFormat = (next: Format) => {
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
          onChange={(value) => changeFormat(value)}
          disabled={!spec}
          data={[
            { value: "yaml", label: "YAML" },
            { value: "json", label: "JSON" },
          ]}
        />
      }
    >
      <div className={style.editor}>
        <UnmodifiedContext value={draft.text === first}>
          <CatchBoundary getResetKey={() => title} errorComponent={EditorError}>
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
          </CatchBoundary>
        </UnmodifiedContext>
      </div>
      <div
        className={style.verdict}
        data-bad={draft.error || draft.apiError ? true : undefined}
        role="status"
      >
        {draft.error ? (
          <>
            <TriangleAlert size={14} aria-hidden />
            {t("submit.line", {
              line: draft.error.line,
              message: draft.error.message === NOT_A_MAP ? t("submit.notAMap") : draft.error.message,
            })}
          </>
        ) : draft.apiError ? (
          <>
            <TriangleAlert size={14} aria-hidden />
            <span>
              {draft.apiError.message}{" "}
              {draft.apiError.hint && <span className="quiet">{draft.apiError.hint}</span>}
            </span>
          </>
        ) : draft.verdict === "fine" ? (
          <>
            <Check size={14} aria-hidden />
            {validText}
          </>
        ) : (
          t("submit.checking")
        )}
      </div>
    </Card>
  );
}
