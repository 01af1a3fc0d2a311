/** A spec as a file: an editor, in YAML or JSON, with what is wrong said below it. */

import { Button, SegmentedControl, Skeleton } from "@mantine/core";
import { CatchBoundary, type ErrorComponentProps } from "@tanstack/react-router";
import { Check, TriangleAlert } from "lucide-react";
import { createContext, Suspense, useContext, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { Refusal } from "../../api/problem";
import { lazyPart, NotLoaded } from "../../app/lazyPage";
import { useLoadAgain } from "../../app/useLoadAgain";
import { NOT_A_MAP, toYaml } from "../../lib/spec";
import { Card, ProblemBox } from "../kit";
import { loadSchemas, type SpecName } from "./completions";
import type { Form } from "./Editor";
import style from "./editor.module.css";
import type { Draft } from "./useDraft";

const Editor = lazyPart(() => import("./Editor"));

/** Whether the user has written nothing yet that a reload would lose. */
const Untouched = createContext(true);

/** In the place of an editor that failed; the form beside it still works. */
function NoEditor({ error, reset }: ErrorComponentProps) {
  const { t } = useTranslation();
  useLoadAgain(error, reset, useContext(Untouched));
  if (!(error instanceof NotLoaded)) return <ProblemBox error={error} onRetry={reset} />;
  // A browser does not ask again for code that was not found, as after an upgrade of the server.
  return (
    <>
      <ProblemBox error={new Refusal("not_loaded", 0, error.message)} />
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
  /** What to say when the server would take it. */
  fine: string;
}

export function FileCard<T extends object>({ title, schema, draft, fine }: Props<T>) {
  const { t } = useTranslation();
  const [form, setForm] = useState<Form>("yaml");
  const { spec } = draft;
  useEffect(() => void loadSchemas().catch(() => undefined), []);
  const [first] = useState(draft.text);

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
        <Untouched value={draft.text === first}>
          <CatchBoundary getResetKey={() => title} errorComponent={NoEditor}>
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
        </Untouched>
      </div>
      <div className={style.verdict} data-bad={draft.error || draft.refusal ? true : undefined} role="status">
        {draft.error ? (
          <>
            <TriangleAlert size={14} aria-hidden />
            {t("submit.line", {
              line: draft.error.line,
              message: draft.error.message === NOT_A_MAP ? t("submit.notAMap") : draft.error.message,
            })}
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
