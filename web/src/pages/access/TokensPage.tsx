/** Lists of tokens: those of the caller, and all of them for administrators. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { KeyRound, Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { type TokensFilter, tokensQuery } from "../../api/access";
import { meQuery } from "../../api/queries";
import type { Me } from "../../api/schema";
import {
  TOKEN_KINDS,
  TOKEN_STATUSES,
  type TokensSearch,
  tokenStatusesOf,
  withTokenStatus,
} from "../../lib/access";
import { usePageTitle } from "../../lib/title";
import { Allowed } from "../../ui/Allowed";
import filters from "../../ui/filters.module.css";
import { EmptyState, ErrorBox, Loading, Page } from "../../ui/kit";
import { CreateTokenDialog } from "./CreateTokenDialog";
import { Sections } from "./Sections";
import { TokenTable } from "./TokenTable";

const ownRoute = getRouteApi("/tokens");
const allRoute = getRouteApi("/access/tokens");
/** Rows that are shown at first. */
const ROWS = 200;

/** The tokens of the caller's account. The caller of an admin token sees the admin tokens of the same name. */
export function TokensPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.tokens"));
  const me = useQuery(meQuery).data;
  if (!me) {
    return (
      <Page title={t("nav.tokens")}>
        <Loading />
      </Page>
    );
  }
  return <OwnTokens me={me} />;
}

function OwnTokens({ me }: { me: Me }) {
  const { t } = useTranslation();
  const search = ownRoute.useSearch();
  const navigate = ownRoute.useNavigate();
  const [creating, setCreating] = useState(false);
  const { name, kind } = me;
  const isAccount = kind === "user" || kind === "service";
  return (
    <Page
      title={t("token.own", { name: me.title ?? name })}
      actions={
        <>
          <Allowed verb="read" on="access">
            <Button variant="default" renderRoot={(props) => <Link to="/access/tokens" {...props} />}>
              {t("token.all")}
            </Button>
          </Allowed>
          <Button leftSection={<Plus size={14} />} onClick={() => setCreating(true)}>
            {t("token.new")}
          </Button>
        </>
      }
    >
      <p className="quiet">{isAccount ? t("token.ownText") : t("token.adminText")}</p>
      <div className={filters.filters}>
        <StatusFilter search={search} onChange={(next) => void navigate({ search: next, replace: true })} />
      </div>
      <List filter={{ name, kind, statuses: tokenStatusesOf(search) }} />
      {creating && (
        <CreateTokenDialog
          bearer={isAccount ? { account: name } : undefined}
          onClose={() => setCreating(false)}
        />
      )}
    </Page>
  );
}

/** All tokens, including those of workers and administrators. */
export function AllTokensPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.tokens"));
  const search = allRoute.useSearch();
  const navigate = allRoute.useNavigate();
  const [creating, setCreating] = useState(false);
  const change = (next: TokensSearch) => void navigate({ search: next, replace: true });
  const kind = TOKEN_KINDS.find((each) => each === search.kind);
  return (
    <Page
      title={t("nav.access")}
      actions={
        <Allowed verb="create" on="access">
          <Button leftSection={<Plus size={14} />} onClick={() => setCreating(true)}>
            {t("token.new")}
          </Button>
        </Allowed>
      }
    >
      <Sections />
      <div className={filters.filters}>
        <div className={filters.chips} role="group" aria-label={t("token.kindFilter")}>
          {TOKEN_KINDS.map((each) => (
            <button
              key={each}
              type="button"
              aria-pressed={each === kind}
              onClick={() => change({ ...search, kind: each === kind ? undefined : each })}
            >
              {t(`tokenKind.${each}`)}
            </button>
          ))}
        </div>
        <StatusFilter search={search} onChange={change} />
      </div>
      <List filter={{ kind, statuses: tokenStatusesOf(search) }} withBearer />
      {creating && <CreateTokenDialog onClose={() => setCreating(false)} />}
    </Page>
  );
}

function StatusFilter(props: { search: TokensSearch; onChange: (search: TokensSearch) => void }) {
  const { t } = useTranslation();
  const { search, onChange } = props;
  const shown = tokenStatusesOf(search);
  return (
    <div className={filters.chips} role="group" aria-label={t("token.statusFilter")}>
      {TOKEN_STATUSES.map((status) => (
        <button
          key={status}
          type="button"
          aria-pressed={shown.includes(status)}
          onClick={() => onChange(withTokenStatus(search, status))}
        >
          {t(`tokenStatus.${status}`)}
        </button>
      ))}
    </div>
  );
}

function List({ filter, withBearer }: { filter: TokensFilter; withBearer?: boolean }) {
  const { t } = useTranslation();
  const { data, error, refetch } = useQuery(tokensQuery(filter));
  const [isAll, setAll] = useState(false);
  if (!data) return error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={4} />;
  const { items } = data;
  if (items.length === 0) {
    return (
      <EmptyState icon={KeyRound} title={t("token.none")}>
        {t("token.noneText")}
      </EmptyState>
    );
  }
  return (
    <>
      <TokenTable tokens={isAll ? items : items.slice(0, ROWS)} withBearer={withBearer} />
      {!isAll && items.length > ROWS && (
        <div>
          <Button variant="default" onClick={() => setAll(true)}>
            {t("common.more")}
          </Button>
        </div>
      )}
    </>
  );
}
