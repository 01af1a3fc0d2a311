/** Form with the common members of a schedule. Other members are kept in the file. */

import {
  Accordion,
  Button,
  Menu,
  MultiSelect,
  NumberInput,
  SegmentedControl,
  Select,
  TextInput,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { ChevronDown } from "lucide-react";
import { useTranslation } from "react-i18next";

import { calendarsQuery } from "../../api/schedules";
import type { FieldError, MissedPolicy, OverlapPolicy, ScheduleSpec, Warning } from "../../api/schema";
import { warningText } from "../../lib/codeTexts";
import {
  DEFAULT_POLICIES,
  effectivePolicies,
  GUARANTEES,
  policiesOf,
  policyChoices,
} from "../../lib/guarantees";
import { toWallTime } from "../../lib/time";
import {
  calendarsOf,
  withExcludedCalendars,
  type RuleKind,
  RULE_KINDS,
  toRules,
  toSimpleRule,
  initialRule,
} from "../../lib/timing";
import { TargetFields } from "./TargetFields";
import style from "./edit.module.css";

const ZONES = ["UTC", ...Intl.supportedValuesOf("timeZone").filter((zone) => zone !== "UTC")];
const PRESETS = {
  quarter: "*/15 * * * *",
  hourly: "0 * * * *",
  daily: "0 9 * * *",
  workdays: "0 9 * * mon-fri",
  weekly: "0 9 * * mon",
  monthly: "0 9 1 * *",
  monthEnd: "0 18 L * *",
} as const;
const OVERLAPS = [
  "skip",
  "buffer_one",
  "buffer_all",
  "cancel_other",
  "terminate_other",
  "allow_all",
] as const satisfies readonly OverlapPolicy[];
const MISSED = ["fire_once", "fire_last", "fire_all", "skip"] as const satisfies readonly MissedPolicy[];

interface Props {
  spec: ScheduleSpec;
  set: (path: string[], value: unknown) => void;
  fields: readonly FieldError[];
  /** Contradictions to the guarantee. */
  contradictions: readonly Warning[];
  /** Whether the schedule exists, so that its name cannot change. */
  isNameFixed: boolean;
}

export function ScheduleForm({ spec, set, fields, contradictions, isNameFixed }: Props) {
  const { t } = useTranslation();
  const error = (path: string) => fields.find((field) => field.path === path)?.detail;
  const setText = (path: string[], value: string) => set(path, value.trim() === "" ? undefined : value);
  const number = (path: string[], value: string | number) =>
    set(path, value === "" ? undefined : Number(value));
  const { overlap, missed } = effectivePolicies(spec);
  const base = policiesOf(spec.guarantee);

  return (
    <div className={style.fields}>
      <TextInput
        label={t("submit.name")}
        value={spec.name ?? ""}
        onChange={(event) => setText(["name"], event.currentTarget.value)}
        error={error("name")}
        readOnly={isNameFixed}
        description={isNameFixed ? t("schedule.nameStays") : undefined}
        data-testid="name"
      />
      <TextInput
        label={t("schedule.description")}
        placeholder={t("common.optional")}
        value={spec.description ?? ""}
        onChange={(event) => setText(["description"], event.currentTarget.value)}
        error={error("description")}
      />
      <h3>{t("schedule.whenItFires")}</h3>
      <TimingFields spec={spec} set={set} fields={fields} />
      <h3>{t("schedule.whatRuns")}</h3>
      <TargetFields spec={spec} set={set} fields={fields} />
      <h3>{t("schedule.policies")}</h3>
      <GuaranteeField
        spec={spec}
        onChange={(value) => set(["guarantee"], value ?? undefined)}
        contradictions={contradictions}
        error={error("guarantee")}
      />
      <Select
        label={t("policy.overlap")}
        description={t(`overlapHint.${overlap}`)}
        value={overlap}
        onChange={(value) => set(["overlap", "policy"], value === base.overlap ? undefined : value)}
        data={policyChoices(OVERLAPS, DEFAULT_POLICIES.overlap, base.overlap).map((choice) => ({
          ...choice,
          label: t(`overlap.${choice.value}`),
        }))}
        allowDeselect={false}
        error={error("overlap.policy")}
      />
      <Select
        label={t("policy.missed")}
        description={t(`missedHint.${missed}`)}
        value={missed}
        onChange={(value) => set(["missed", "policy"], value === base.missed ? undefined : value)}
        data={policyChoices(MISSED, DEFAULT_POLICIES.missed, base.missed).map((choice) => ({
          ...choice,
          label: t(`missed.${choice.value}`),
        }))}
        allowDeselect={false}
        error={error("missed.policy")}
      />
      <Accordion chevronPosition="left" classNames={{ root: style.more, content: style.moreContent }}>
        <Accordion.Item value="bounds">
          <Accordion.Control>{t("policy.more")}</Accordion.Control>
          <Accordion.Panel>
            <div className={style.pair}>
              <TextInput
                label={t("policy.startDeadline")}
                placeholder="1h"
                value={spec.start_deadline ?? ""}
                onChange={(event) => setText(["start_deadline"], event.currentTarget.value)}
                error={error("start_deadline")}
              />
              <TextInput
                label={t("policy.jitter")}
                placeholder="30s"
                value={spec.jitter?.max ?? ""}
                onChange={(event) => setText(["jitter", "max"], event.currentTarget.value)}
                error={error("jitter.max")}
              />
            </div>
            <div className={style.pair}>
              <TextInput
                label={t("policy.startWithin")}
                placeholder="1m"
                value={spec.expect?.start_within ?? ""}
                onChange={(event) => setText(["expect", "start_within"], event.currentTarget.value)}
                error={error("expect.start_within")}
              />
              <TextInput
                label={t("policy.runWithin")}
                placeholder="10m"
                value={spec.expect?.run_within ?? ""}
                onChange={(event) => setText(["expect", "run_within"], event.currentTarget.value)}
                error={error("expect.run_within")}
              />
            </div>
            <div className={style.pair}>
              <NumberInput
                label={t("policy.pauseAfter")}
                min={1}
                value={spec.pause_after_failures ?? ""}
                onChange={(value) => number(["pause_after_failures"], value)}
                error={error("pause_after_failures")}
              />
              <NumberInput
                label={t("policy.maxFirings")}
                min={1}
                value={spec.max_firings ?? ""}
                onChange={(value) => number(["max_firings"], value)}
                error={error("max_firings")}
              />
            </div>
            <TextInput
              label={t("policy.reserveAhead")}
              placeholder="5m"
              value={spec.reserve_ahead ?? ""}
              onChange={(event) => setText(["reserve_ahead"], event.currentTarget.value)}
              error={error("reserve_ahead")}
            />
          </Accordion.Panel>
        </Accordion.Item>
      </Accordion>
    </div>
  );
}

interface GuaranteeFieldProps {
  spec: ScheduleSpec;
  onChange: (guarantee: string | null) => void;
  contradictions: readonly Warning[];
  error?: string;
}

/** The guarantee, what it means, the policies that it sets, and those that contradict it. */
function GuaranteeField({ spec, onChange, contradictions, error }: GuaranteeFieldProps) {
  const { t } = useTranslation();
  const guarantee = GUARANTEES.find((each) => each === spec.guarantee);
  const { overlap, missed, delivery } = policiesOf(guarantee);
  const policies = [
    [t("policy.overlap"), t(`overlap.${overlap}`)],
    [t("policy.missed"), t(`missed.${missed}`)],
    ...(spec.workflow ? [] : [[t("submit.delivery"), t(`delivery.${delivery}`)]]),
  ];
  return (
    <div className={style.guarantee}>
      <Select
        label={t("policy.guarantee")}
        description={guarantee ? t(`guaranteeHint.${guarantee}`) : t("policy.noGuaranteeHint")}
        placeholder={t("policy.noGuarantee")}
        value={guarantee ?? null}
        onChange={onChange}
        data={GUARANTEES.map((value) => ({ value, label: t(`guarantee.${value}`) }))}
        clearable
        error={error}
        data-testid="guarantee"
      />
      {guarantee && (
        <p data-testid="guarantee-sets">
          {t("policy.guaranteeSets")}
          {policies.map(([name, value]) => (
            <span key={name}>
              <span className="quiet">{name}</span> {value}
            </span>
          ))}
        </p>
      )}
      {contradictions.length > 0 && (
        <ul data-testid="contradictions">
          {contradictions.map((warning) => (
            <li key={warning.message}>{warningText(warning, t)}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

function TimingFields({ spec, set, fields }: Pick<Props, "spec" | "set" | "fields">) {
  const { t } = useTranslation();
  const { timing } = spec;
  const zone = timing?.zone ?? "UTC";
  const simpleRule = toSimpleRule(timing);
  const calendars = useQuery(calendarsQuery).data?.items ?? [];
  const known = calendars
    .filter(({ built_in, namespace }) => built_in || namespace === (spec.namespace ?? "default"))
    .map(({ name }) => name);
  const selectedCalendars = calendarsOf(timing);
  const wrong = fields.find((field) => field.path.startsWith("timing.rules"))?.detail;
  const setRule = (kind: RuleKind, text: string) => set(["timing", "rules"], toRules({ kind, text }));

  return (
    <>
      {simpleRule ? (
        <>
          <SegmentedControl
            aria-label={t("schedule.whenItFires")}
            value={simpleRule.kind}
            onChange={(kind) => {
              const next = initialRule(kind, toWallTime(Date.now() + 3_600_000, zone));
              setRule(next.kind, next.text);
            }}
            data={RULE_KINDS.map((value) => ({ value, label: t(`timing.${value}`) }))}
            fullWidth
          />
          {simpleRule.kind === "cron" && (
            <div className={style.cron}>
              <TextInput
                label={t("timing.expression")}
                classNames={{ input: style.code }}
                value={simpleRule.text}
                onChange={(event) => setRule("cron", event.currentTarget.value)}
                error={wrong}
                spellCheck={false}
                data-testid="cron"
              />
              <Menu>
                <Menu.Target>
                  <Button variant="default" rightSection={<ChevronDown size={13} />}>
                    {t("timing.presets")}
                  </Button>
                </Menu.Target>
                <Menu.Dropdown>
                  {Object.entries(PRESETS).map(([key, expression]) => (
                    <Menu.Item
                      key={key}
                      onClick={() => setRule("cron", expression)}
                      rightSection={<code className="quiet">{expression}</code>}
                    >
                      {t(`preset.${key as keyof typeof PRESETS}`)}
                    </Menu.Item>
                  ))}
                </Menu.Dropdown>
              </Menu>
            </div>
          )}
          {(simpleRule.kind === "every" || simpleRule.kind === "after") && (
            <TextInput
              label={t(`timing.${simpleRule.kind}Label`)}
              placeholder="15m"
              value={simpleRule.text}
              onChange={(event) => setRule(simpleRule.kind, event.currentTarget.value)}
              error={wrong}
              data-testid="every"
            />
          )}
          {simpleRule.kind === "at" && (
            <TextInput
              label={t("timing.atLabel", { zone })}
              type="datetime-local"
              value={simpleRule.text.slice(0, 16)}
              onChange={(event) => setRule("at", event.currentTarget.value)}
              error={wrong}
            />
          )}
          {simpleRule.kind === "demand" && <p className="quiet">{t("timing.demandText")}</p>}
        </>
      ) : (
        <p className="quiet">{t("timing.inFile")}</p>
      )}
      <div className={style.pair}>
        <Select
          label={t("timing.zone")}
          data={ZONES.includes(zone) ? ZONES : [zone, ...ZONES]}
          value={zone}
          onChange={(value) => set(["timing", "zone"], value ?? undefined)}
          searchable
          allowDeselect={false}
          limit={200}
          error={fields.find((field) => field.path === "timing.zone")?.detail}
        />
        <MultiSelect
          label={t("timing.except")}
          placeholder={selectedCalendars.length === 0 ? t("common.optional") : undefined}
          data={[...new Set([...known, ...selectedCalendars])]}
          value={selectedCalendars}
          onChange={(names) => set(["timing", "exclude"], withExcludedCalendars(timing, names))}
          error={fields.find((field) => field.path.startsWith("timing.exclude"))?.detail}
          size="xs"
        />
      </div>
    </>
  );
}
