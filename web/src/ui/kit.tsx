/** Basic components of all pages. */

import { ActionIcon, Button, Skeleton, Tooltip } from "@mantine/core";
import { ArrowRightLeft, Check, Copy, type LucideIcon, TriangleAlert } from "lucide-react";
import { type ReactNode, useEffect, useId, useState } from "react";
import { useTranslation } from "react-i18next";

import { isTakeover, ApiError } from "../api/errors";
import { copyText } from "../lib/clipboard";
import style from "./kit.module.css";
import { errorText } from "./errorText";

export function Page(props: { title: ReactNode; actions?: ReactNode; children: ReactNode; fill?: boolean }) {
  return (
    <div className={`${style.page} ${props.fill ? style.fill : ""}`}>
      <header className={style.head}>
        {typeof props.title === "string" ? <h1>{props.title}</h1> : props.title}
        {props.actions && <div className={style.actions}>{props.actions}</div>}
      </header>
      {props.children}
    </div>
  );
}

export function Card(props: {
  title?: ReactNode;
  aside?: ReactNode;
  children: ReactNode;
  flush?: boolean;
  className?: string;
}) {
  const id = useId();
  return (
    <section
      className={`${style.card} ${props.className ?? ""}`}
      aria-labelledby={props.title ? id : undefined}
    >
      {props.title && (
        <div className={style.cardHead}>
          <h2 id={id}>{props.title}</h2>
          {props.aside && <div className={style.cardAside}>{props.aside}</div>}
        </div>
      )}
      <div className={props.flush ? undefined : style.cardBody}>{props.children}</div>
    </section>
  );
}

/** Names and values, one per row. */
export function KeyValueList({
  rows,
}: {
  rows: Array<[name: string, value: ReactNode] | null | false | undefined>;
}) {
  return (
    <dl className={style.facts}>
      {rows.map(
        (row) =>
          row && (
            <div key={row[0]}>
              <dt>{row[0]}</dt>
              <dd>{row[1]}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

/** How long a button shows the result of copying. */
const COPIED_MS = 1_500;

export function CopyButton({ text, label }: { text: string; label: string }) {
  const { t } = useTranslation();
  const [result, setResult] = useState<"copied" | "notCopied" | null>(null);
  useEffect(() => {
    if (result === null) return;
    const end = setTimeout(() => setResult(null), COPIED_MS);
    return () => clearTimeout(end);
  }, [result]);
  const copy = async () => setResult((await copyText(text)) ? "copied" : "notCopied");
  return (
    <Tooltip label={result ? t(`common.${result}`) : label}>
      <ActionIcon size={22} onClick={copy} aria-label={label}>
        {result === "copied" ? <Check size={13} /> : <Copy size={13} />}
      </ActionIcon>
    </Tooltip>
  );
}

/** An id with a copy button. */
export function Id({ id }: { id: string }) {
  const { t } = useTranslation();
  return (
    <span className={style.id}>
      <code className="clip">{id}</code>
      <CopyButton text={id} label={t("common.copyId")} />
    </span>
  );
}

export function Labels({
  labels,
  onPick,
}: {
  labels?: Record<string, string>;
  onPick?: (label: string) => void;
}) {
  const entries = Object.entries(labels ?? {});
  if (entries.length === 0) return null;
  return (
    <span className={style.labels}>
      {entries.map(([key, value]) => {
        const text = value === "" ? key : `${key}=${value}`;
        return onPick ? (
          <button key={key} type="button" className={style.label} onClick={() => onPick(`${key}=${value}`)}>
            {text}
          </button>
        ) : (
          <span key={key} className={style.label}>
            {text}
          </span>
        );
      })}
    </span>
  );
}

/** A meter of the used part of a resource. */
export function Meter(props: {
  label: string;
  used: number;
  all: number;
  shown: string;
  measured?: number;
  /** Whether a full meter is a completed task, not a used-up resource. */
  isProgress?: boolean;
}) {
  const part = props.all > 0 ? Math.min(1, props.used / props.all) : 0;
  const measured =
    props.measured === undefined || props.all === 0 ? null : Math.min(1, props.measured / props.all);
  return (
    <div className={style.meter}>
      <span className={style.meterLabel}>{props.label}</span>
      <span
        className={style.track}
        role="meter"
        aria-label={props.label}
        aria-valuenow={Math.round(part * 100)}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuetext={props.shown}
        data-full={(part >= 0.95 && !props.isProgress) || undefined}
      >
        <span className={style.used} style={{ width: `${part * 100}%` }} />
        {measured !== null && <span className={style.measured} style={{ left: `${measured * 100}%` }} />}
      </span>
      <span className={`${style.meterShown} num`}>{props.shown}</span>
    </div>
  );
}

/** An error: message, code, and what to do. */
export function ErrorBox({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const { t } = useTranslation();
  const apiError = ApiError.from(error);
  const { title, hint } = errorText(apiError, t);
  const isTransient = isTakeover(apiError);
  const Icon = isTransient ? ArrowRightLeft : TriangleAlert;
  return (
    <div className={style.problem} data-passes={isTransient || undefined} role="alert">
      <Icon size={16} aria-hidden />
      <div>
        <p>
          <strong>{title}</strong>
        </p>
        {apiError.fields.length > 1 && (
          <ul>
            {apiError.fields.map((field) => (
              <li key={field.path + field.detail}>
                <code>{field.path}</code> {field.detail}
              </li>
            ))}
          </ul>
        )}
        {hint && <p className={style.hint}>{hint}</p>}
        <p className={style.code}>
          {apiError.status > 0 ? (
            <a href={`/docs/problems#${apiError.code}`} target="_blank" rel="noreferrer">
              {apiError.code}
            </a>
          ) : (
            apiError.code
          )}
          {apiError.instance && ` · ${apiError.instance}`}
        </p>
      </div>
      {onRetry && (
        <Button variant="default" onClick={onRetry}>
          {t("common.tryAgain")}
        </Button>
      )}
    </div>
  );
}

/** Placeholder of an empty list, with an action. */
export function EmptyState(props: {
  icon: LucideIcon;
  title: string;
  children?: ReactNode;
  action?: ReactNode;
}) {
  const Icon = props.icon;
  return (
    <div className={style.empty}>
      <Icon size={22} strokeWidth={1.6} aria-hidden />
      <strong>{props.title}</strong>
      {props.children && <div className={style.emptyText}>{props.children}</div>}
      {props.action}
    </div>
  );
}

export function Loading({ rows = 4 }: { rows?: number }) {
  const { t } = useTranslation();
  return (
    <div role="status" aria-label={t("common.loading")} className={style.loading}>
      {Array.from({ length: rows }, (_, i) => (
        <Skeleton key={i} height={14} width={`${92 - ((i * 17) % 40)}%`} />
      ))}
    </div>
  );
}

export function Snippet({ text }: { text: string }) {
  const { t } = useTranslation();
  return (
    <div className={style.snippet}>
      <pre tabIndex={0}>{text}</pre>
      <CopyButton text={text} label={t("common.copy")} />
    </div>
  );
}
