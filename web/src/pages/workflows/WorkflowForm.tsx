/** Form with the common members of a workflow and its steps. Other members are kept in the file. */

import { Accordion, Button, NumberInput, TextInput } from "@mantine/core";
import { Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import type { FieldError, Section, WorkflowSpec } from "../../api/schema";
import { stepKindOf, SECTIONS } from "../../lib/dag/graph";
import { addStep, type Change, stepsOf } from "../../lib/steps";
import { StepFields } from "./StepFields";
import style from "./form.module.css";

interface Props {
  spec: WorkflowSpec;
  set: (path: string[], value: unknown) => void;
  fields: readonly FieldError[];
  /** Whether the workflow exists, so that its name cannot change. */
  isNameFixed: boolean;
}

export function WorkflowForm({ spec, set, fields, isNameFixed }: Props) {
  const { t } = useTranslation();
  const [open, setOpen] = useState<string[]>([]);
  const error = (path: string) => fields.find((field) => field.path === path)?.detail;
  const setText = (path: string[], value: string) => set(path, value.trim() === "" ? undefined : value);
  const apply = (changes: readonly Change[]) => changes.forEach(({ path, value }) => set(path, value));
  const add = (section: Section) => {
    setOpen((open) => [...open, `${section}.${stepsOf(spec, section).length}`]);
    apply(addStep(spec, section));
  };
  return (
    <div className={style.fields} data-testid="workflow-form">
      <TextInput
        label={t("submit.name")}
        value={spec.name ?? ""}
        onChange={(event) => setText(["name"], event.currentTarget.value)}
        error={error("name")}
        readOnly={isNameFixed}
        data-testid="name"
      />
      <TextInput
        label={t("schedule.description")}
        placeholder={t("common.optional")}
        value={spec.description ?? ""}
        onChange={(event) => setText(["description"], event.currentTarget.value)}
      />
      <details className={style.limits}>
        <summary>{t("workflow.form.limits")}</summary>
        <div className={style.triple}>
          <NumberInput
            label={t("workflow.form.retries")}
            placeholder="0"
            min={0}
            value={spec.retry?.max_retries ?? ""}
            onChange={(value) => set(["retry", "max_retries"], value === "" ? undefined : Number(value))}
            error={error("retry.max_retries")}
            data-testid="run-retries"
          />
          <TextInput
            label={t("workflow.form.backoff")}
            placeholder="1s"
            value={spec.retry?.backoff?.initial ?? ""}
            onChange={(event) => setText(["retry", "backoff", "initial"], event.currentTarget.value)}
            error={error("retry.backoff.initial")}
          />
          <TextInput
            label={t("workflow.form.timeout")}
            placeholder="2h"
            value={spec.timeout ?? ""}
            onChange={(event) => setText(["timeout"], event.currentTarget.value)}
            error={error("timeout")}
          />
        </div>
      </details>
      {SECTIONS.map((section) => (
        <section key={section} aria-label={t(`section.${section}`)}>
          <h3>{t(`section.${section}`)}</h3>
          <Accordion multiple value={open} onChange={setOpen} classNames={{ root: style.steps }}>
            {stepsOf(spec, section).map((step, index) => {
              const at = `${section}[${index}]`;
              const isWrong = fields.some(({ path }) => path === at || path.startsWith(`${at}.`));
              return (
                <Accordion.Item key={index} value={`${section}.${index}`}>
                  <Accordion.Control data-bad={isWrong || undefined}>
                    <span className={style.title}>
                      <span className="clip">{step.name}</span>
                      <span className="quiet">{t(`stepKind.${stepKindOf(step)}`)}</span>
                    </span>
                  </Accordion.Control>
                  <Accordion.Panel>
                    <StepFields {...{ spec, section, index, step, set, apply, fields }} />
                  </Accordion.Panel>
                </Accordion.Item>
              );
            })}
          </Accordion>
          <Button
            variant="default"
            size="compact-sm"
            leftSection={<Plus size={13} />}
            onClick={() => add(section)}
            data-testid={`add-${section}`}
          >
            {t("workflow.form.add")}
          </Button>
        </section>
      ))}
    </div>
  );
}
