/** A table of tokens, with their limits and their end. */

import { ActionIcon, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleSlash } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { revokeToken } from "../../api/access";
import { meQuery } from "../../api/queries";
import type { Token } from "../../api/schema";
import { useCan } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import frame from "../../ui/list.module.css";
import { RelativeTime } from "../../ui/Time";
import style from "./access.module.css";
import { KindName, RoleName, TokenBadge } from "./words";

const COLUMNS = ["token", "bearer", "scope", "status", "expires", "created", "actions"] as const;

interface Props {
  tokens: readonly Token[];
  /** The table is in a card, which has a border. */
  inCard?: boolean;
  /** Shows the bearer of each token. */
  withBearer?: boolean;
}

export function TokenTable({ tokens, inCard, withBearer }: Props) {
  const { t } = useTranslation();
  const columns = COLUMNS.filter((column) => withBearer || column !== "bearer");
  return (
    <div
      className={inCard ? style.inner : frame.table}
      data-bearers={withBearer || undefined}
      role="table"
      aria-label={t("nav.tokens")}
    >
      <div className={`${frame.row} ${frame.head} ${style.token}`} role="row">
        {columns.map((column) => (
          <span key={column} role="columnheader" className={style[column]}>
            <span className={column === "actions" ? "unseen" : undefined}>
              {t(`token.columns.${column}`)}
            </span>
          </span>
        ))}
      </div>
      <div role="rowgroup" data-testid="token-rows">
        {tokens.map((token) => (
          <Row key={token.id} token={token} withBearer={withBearer} />
        ))}
      </div>
    </div>
  );
}

function Row({ token, withBearer }: { token: Token; withBearer?: boolean }) {
  const { t } = useTranslation();
  const { id, kind, description, status, session, expires_at, created_at, created_by } = token;
  return (
    <div className={`${frame.row} ${style.token}`} role="row" data-status={status}>
      <span role="cell" className={style.name}>
        <span className="clip">
          {session ? <SessionName description={description} /> : null}
          {!session && (description ?? <span className="quiet">{t("token.noDescription")}</span>)}
        </span>
        <code className={`${style.under} clip`}>{`bf_${kind}_${id}_…`}</code>
      </span>
      {withBearer && (
        <span role="cell" className={style.bearer}>
          <Bearer token={token} />
        </span>
      )}
      <span role="cell" className={style.scope}>
        <Scope token={token} />
      </span>
      <span role="cell" className={style.status}>
        <TokenBadge status={status} />
      </span>
      <span role="cell" className={`${style.expires} quiet`}>
        {status === "revoked" ? (
          <span className={style.placeholder}>–</span>
        ) : (
          <>
            <span className={style.caption}>{t("token.columns.expires")} </span>
            {expires_at ? <RelativeTime at={expires_at} /> : t("token.never")}
          </>
        )}
      </span>
      <span role="cell" className={`${style.created} quiet`} title={created_by}>
        <RelativeTime at={created_at} light />
      </span>
      <span role="cell" className={style.actions}>
        {status === "active" && <Revoke token={token} />}
      </span>
    </div>
  );
}

/** A session is named after the address of its login. */
function SessionName({ description }: { description?: string | null }) {
  const { t } = useTranslation();
  return description ? t("login.sessionFrom", { address: description }) : t("login.session");
}

function Bearer({ token: { kind, name } }: { token: Token }) {
  const isAccount = kind === "user" || kind === "service";
  return (
    <>
      {isAccount ? (
        <Link to="/access/accounts/$name" params={{ name }} className="clip">
          {name}
        </Link>
      ) : (
        <span className="clip">{name}</span>
      )}
      <span className={style.under}>
        <KindName kind={kind} />
      </span>
    </>
  );
}

/** The limits of a token. */
function Scope({ token: { role, namespaces } }: { token: Token }) {
  const { t } = useTranslation();
  const names = namespaces ?? [];
  if (!role && names.length === 0) return <span className="quiet">{t("token.unlimited")}</span>;
  return (
    <>
      {role && (
        <span className={style.chip}>
          <RoleName name={role} />
        </span>
      )}
      {names.map((namespace) => (
        <span key={namespace} className={style.chip}>
          {namespace}
        </span>
      ))}
    </>
  );
}

function Revoke({ token }: { token: Token }) {
  const { t } = useTranslation();
  const [asking, setAsking] = useState(false);
  const me = useQuery(meQuery).data;
  const canRevokeAll = useCan()("delete", "access");
  const { id, kind, name } = token;
  const isOwn = (kind === "user" || kind === "service") && me?.kind === kind && me.name === name;
  if (!isOwn && !canRevokeAll) return null;
  return (
    <>
      <Tooltip label={t("token.revoke")}>
        <ActionIcon aria-label={t("token.revokeOf", { id })} onClick={() => setAsking(true)}>
          <CircleSlash size={15} />
        </ActionIcon>
      </Tooltip>
      {asking && (
        <ConfirmDialog
          title={t("token.revokeTitle")}
          text={t("token.revokeText")}
          confirm={t("token.revoke")}
          red
          onConfirm={() => revokeToken(id)}
          done={t("token.revoked")}
          onClose={() => setAsking(false)}
        >
          <p className={style.about}>
            {token.description && <strong>{token.description}</strong>} <code>{`bf_${kind}_${id}_…`}</code>
          </p>
        </ConfirmDialog>
      )}
    </>
  );
}
