/** Filter bar: the active filters, and an input with suggestions. */

import { Combobox, Pill, PillsInput, useCombobox } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Search } from "lucide-react";
import { type RefObject, useState } from "react";
import { useTranslation } from "react-i18next";

import { queuesQuery, useWorkerName, workersQuery } from "../../api/queries";
import { scheduleQuery, suggestedSchedulesQuery } from "../../api/schedules";
import type { JobStatus } from "../../api/schema";
import { serviceQuery, suggestedServicesQuery } from "../../api/services";
import type { JobsSearch } from "../../app/router";
import { type FilterKey, parseToken, type Token, tokensOf, withoutToken, withToken } from "../../lib/filters";
import { usePreferences } from "../../lib/preferences";
import { STATUSES } from "../../lib/statuses";
import { formatExact } from "../../lib/time";
import { useCanSomewhere } from "../../ui/Allowed";
import { StatusBadge } from "../../ui/Status";
import style from "./jobs.module.css";

const SUGGESTED_KEYS: readonly FilterKey[] = [
  "status",
  "queue",
  "name",
  "label",
  "owner",
  "namespace",
  "worker",
  "schedule",
  "service",
  "since",
];
const SPANS = ["15m", "1h", "24h", "7d", "30d"];

interface Props {
  search: JobsSearch;
  onChange: (search: JobsSearch) => void;
  inputRef: RefObject<HTMLInputElement | null>;
}

export function FilterBar({ search, onChange, inputRef }: Props) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const combobox = useCombobox({ onDropdownClose: () => combobox.resetSelectedOption() });
  const suggestions = useSuggestions(text);
  const show = useTokenText(search);

  const add = (token: Token | null) => {
    if (!token) return;
    onChange(withToken(search, token));
    setText("");
  };
  const pick = (value: string) => {
    // After a key, the user enters its value.
    if (value.endsWith(":")) {
      setText(value);
      requestAnimationFrame(() => combobox.selectFirstOption());
      return;
    }
    add(parseToken(value));
    combobox.closeDropdown();
  };

  return (
    <Combobox store={combobox} onOptionSubmit={pick} shadow="md">
      <Combobox.DropdownTarget>
        <PillsInput
          size="sm"
          leftSection={<Search size={14} />}
          className={style.filter}
          onClick={() => combobox.openDropdown()}
        >
          <Pill.Group gap={5}>
            {tokensOf(search).map((token) => (
              <Pill
                key={`${token.key}:${token.value}`}
                withRemoveButton
                removeButtonProps={{
                  "aria-label": t("jobs.removeFilter", { filter: show(token) }),
                  "aria-hidden": false,
                  tabIndex: 0,
                }}
                onRemove={() => onChange(withoutToken(search, token))}
                className={style.pill}
              >
                <span className="quiet">{t(`jobs.keys.${token.key}`)}</span> {show(token)}
              </Pill>
            ))}
            <Combobox.EventsTarget>
              <PillsInput.Field
                ref={inputRef}
                value={text}
                placeholder={t("jobs.filterPlaceholder")}
                aria-label={t("jobs.filter")}
                onFocus={() => combobox.openDropdown()}
                onBlur={() => combobox.closeDropdown()}
                onChange={(event) => {
                  setText(event.currentTarget.value);
                  combobox.openDropdown();
                  combobox.resetSelectedOption();
                }}
                onKeyDown={(event) => {
                  if (event.key === "Backspace" && text === "") {
                    const last = tokensOf(search).at(-1);
                    if (last) onChange(withoutToken(search, last));
                  } else if (event.key === "Enter" && combobox.getSelectedOptionIndex() < 0) {
                    event.preventDefault();
                    add(parseToken(text));
                  } else if (event.key === "Escape") event.currentTarget.blur();
                }}
              />
            </Combobox.EventsTarget>
          </Pill.Group>
        </PillsInput>
      </Combobox.DropdownTarget>
      <Combobox.Dropdown hidden={suggestions.length === 0}>
        <Combobox.Options mah={320} style={{ overflowY: "auto" }}>
          {suggestions.map(({ value, title, aside }) => (
            <Combobox.Option key={value} value={value}>
              <span className={style.suggestion}>
                {title}
                <span className="quiet">{aside}</span>
              </span>
            </Combobox.Option>
          ))}
        </Combobox.Options>
      </Combobox.Dropdown>
    </Combobox>
  );
}

function useTokenText(search: JobsSearch): (token: Token) => string {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const workerName = useWorkerName();
  const schedule = useQuery({
    ...scheduleQuery(search.schedule ?? ""),
    enabled: Boolean(search.schedule),
  }).data;
  const service = useQuery({ ...serviceQuery(search.service ?? ""), enabled: Boolean(search.service) }).data;
  return ({ key, value }) => {
    if (key === "status")
      return value
        .split(",")
        .map((each) => t(`status.${each as JobStatus}`))
        .join(", ");
    if (key === "worker") return workerName(value);
    if (key === "schedule") return schedule?.name ?? value;
    if (key === "service") return service?.name ?? value;
    if (key === "since") return t("jobs.lastSpan", { span: value });
    if (key === "after" || key === "before") return formatExact(value, language, zone);
    return value;
  };
}

interface Suggestion {
  value: string;
  title: React.ReactNode;
  aside?: string;
}

function useSuggestions(text: string): Suggestion[] {
  const { t } = useTranslation();
  const queues = useQuery(queuesQuery).data?.items ?? [];
  const workers = useQuery(workersQuery).data?.items ?? [];
  const [, key, prefix] = /^([a-z]+):(.*)$/.exec(text) ?? [];
  const schedules =
    useQuery({ ...suggestedSchedulesQuery(prefix ?? ""), enabled: key === "schedule" }).data?.items ?? [];
  const canSomewhere = useCanSomewhere();
  const findsServices = key === "service" && canSomewhere("read", "services");
  const services =
    useQuery({ ...suggestedServicesQuery(prefix ?? ""), enabled: findsServices }).data?.items ?? [];
  const hasPrefix = (value: string) => value.toLowerCase().startsWith((prefix ?? "").toLowerCase());
  switch (key) {
    case "status":
      return STATUSES.filter(hasPrefix).map((status) => ({
        value: `status:${status}`,
        title: <StatusBadge status={status} plain />,
      }));
    case "queue":
      return queues
        .filter(({ name }) => hasPrefix(name))
        .map(({ name }) => ({ value: `queue:${name}`, title: name }));
    case "worker":
      return workers
        .filter(({ name }) => hasPrefix(name))
        .map(({ id, name }) => ({ value: `worker:${id}`, title: name }));
    case "schedule":
      return schedules.map(({ id, name, when }) => ({ value: `schedule:${id}`, title: name, aside: when }));
    case "service":
      return services.map(({ id, name, namespace }) => ({
        value: `service:${id}`,
        title: name,
        aside: namespace,
      }));
    case "since":
      return SPANS.filter(hasPrefix).map((span) => ({
        value: `since:${span}`,
        title: t("jobs.lastSpan", { span }),
      }));
    case undefined:
      break;
    default:
      return [];
  }
  const keys = SUGGESTED_KEYS.filter(
    (each) => each.startsWith(text) || t(`jobs.keys.${each}`).startsWith(text),
  );
  const hints = keys.map((each) => ({
    value: `${each}:`,
    title: (
      <span>
        <code>{each}:</code> {t(`jobs.keys.${each}`)}
      </span>
    ),
    aside: t(`jobs.keyHints.${each as "status"}`),
  }));
  if (text === "") return hints;
  const token = parseToken(text);
  const asTyped = token && {
    value: text,
    title: (
      <span>
        {t(`jobs.keys.${token.key}`)} <strong>{token.value}</strong>
      </span>
    ),
  };
  return asTyped ? [asTyped, ...hints] : hints;
}
