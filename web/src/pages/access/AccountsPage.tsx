/** The list of accounts, with filters. */

import { Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Plus, Search, SearchX, Users } from "lucide-react";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { accountsQuery } from "../../api/access";
import type { Account } from "../../api/schema";
import { ACCOUNT_KINDS, type AccountsSearch, filterAccounts } from "../../lib/access";
import { useFilterShortcut } from "../../lib/filterShortcut";
import { usePageTitle } from "../../lib/title";
import { Allowed, useCan } from "../../ui/Allowed";
import filters from "../../ui/filters.module.css";
import { EmptyState, ErrorBox, Loading, Page } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { RelativeTime } from "../../ui/Time";
import style from "./access.module.css";
import { CreateAccountDialog } from "./AccountDialogs";
import { Sections } from "./Sections";
import { DisabledBadge, KindName, RoleName } from "./words";

const route = getRouteApi("/access");
const COLUMNS = ["name", "kind", "roles", "login", "created"] as const;
/** Rows that are shown at first. */
const ROWS = 200;
/** Roles that are shown in a row. */
const ROLES_SHOWN = 4;

export function AccountsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.accounts"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { data, error, refetch } = useQuery(accountsQuery(search.text));
  const [creating, setCreating] = useState(false);
  const [isAll, setAll] = useState(false);
  const rows = data && filterAccounts(data.items, search);
  const isFiltered = Object.values(search).some((value) => value !== undefined);
  return (
    <Page
      title={t("nav.access")}
      actions={
        <>
          {rows && <span className="quiet num">{t("account.count", { count: rows.length })}</span>}
          <Allowed verb="create" on="access">
            <Button leftSection={<Plus size={14} />} onClick={() => setCreating(true)}>
              {t("account.new")}
            </Button>
          </Allowed>
        </>
      }
    >
      <Sections />
      <Filters search={search} onChange={(next) => void navigate({ search: next, replace: true })} />
      {error && !data && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading rows={6} />}
      {rows?.length === 0 && <Empty isFiltered={isFiltered} />}
      {rows && rows.length > 0 && (
        <div className={frame.table} role="table" aria-label={t("nav.accounts")}>
          <div className={`${frame.row} ${frame.head} ${style.account}`} role="row">
            {COLUMNS.map((column) => (
              <span
                key={column}
                role="columnheader"
                className={column === "login" ? style.lastLogin : undefined}
              >
                {t(`account.columns.${column}`)}
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="account-rows">
            {(isAll ? rows : rows.slice(0, ROWS)).map((account) => (
              <Row key={account.name} account={account} />
            ))}
          </div>
          {!isAll && rows.length > ROWS && (
            <div className={frame.more}>
              <Button variant="default" onClick={() => setAll(true)}>
                {t("common.more")}
              </Button>
            </div>
          )}
        </div>
      )}
      {creating && <CreateAccountDialog onClose={() => setCreating(false)} />}
    </Page>
  );
}

function Row({ account }: { account: Account }) {
  const { t } = useTranslation();
  const { name, title, kind, disabled, roles } = account;
  // Others see only the roles in their namespaces.
  const seesAllRoles = useCan()("read", "access");
  return (
    <div className={`${frame.row} ${style.account}`} role="row" data-disabled={disabled || undefined}>
      <span role="cell" className={style.name}>
        <span className={style.first}>
          <Link to="/access/accounts/$name" params={{ name }} className={`${frame.open} ${style.open} clip`}>
            {name}
          </Link>
          {disabled && <DisabledBadge />}
        </span>
        {title && <span className={`${style.under} clip`}>{title}</span>}
      </span>
      <span role="cell">
        <KindName kind={kind} />
      </span>
      <span role="cell" className={style.roles}>
        {roles.length === 0 && <span className="quiet">{seesAllRoles ? t("account.noRole") : "–"}</span>}
        {roles.slice(0, ROLES_SHOWN).map(({ role, namespace }) => (
          <span key={`${role} ${namespace}`} className={style.chip}>
            <RoleName name={role} /> · {namespace}
          </span>
        ))}
        {roles.length > ROLES_SHOWN && <span className="quiet num">+{roles.length - ROLES_SHOWN}</span>}
      </span>
      <span role="cell" className={`${style.lastLogin} quiet`}>
        <LastLogin login={account.login} />
      </span>
      <span role="cell" className={`${style.time} quiet`}>
        <RelativeTime at={account.created_at} light />
      </span>
    </div>
  );
}

/** The last login of an account, or why there was none. */
function LastLogin({ login }: { login: Account["login"] }) {
  const { t } = useTranslation();
  if (!login) return "–";
  if (!login.password_set_at && !login.oidc)
    return login.invitation ? t("login.invited") : t("login.noPassword");
  return login.last_login_at ? <RelativeTime at={login.last_login_at} light /> : t("login.never");
}

function Filters({
  search,
  onChange,
}: {
  search: AccountsSearch;
  onChange: (search: AccountsSearch) => void;
}) {
  const { t } = useTranslation();
  const input = useRef<HTMLInputElement>(null);
  useFilterShortcut(input);
  return (
    <div className={filters.filters}>
      <TextInput
        ref={input}
        leftSection={<Search size={13} />}
        placeholder={t("account.find")}
        aria-label={t("account.find")}
        value={search.text ?? ""}
        onChange={(event) => onChange({ ...search, text: event.currentTarget.value || undefined })}
        className={style.find}
      />
      <div className={filters.chips} role="group" aria-label={t("account.kind")}>
        {ACCOUNT_KINDS.map((kind) => (
          <button
            key={kind}
            type="button"
            aria-pressed={search.kind === kind}
            onClick={() => onChange({ ...search, kind: search.kind === kind ? undefined : kind })}
          >
            {t(`tokenKind.${kind}`)}
          </button>
        ))}
        <button
          type="button"
          aria-pressed={search.state === "disabled"}
          onClick={() => onChange({ ...search, state: search.state === "disabled" ? undefined : "disabled" })}
        >
          {t("account.disabled")}
        </button>
      </div>
    </div>
  );
}

function Empty({ isFiltered }: { isFiltered: boolean }) {
  const { t } = useTranslation();
  if (!isFiltered) {
    return (
      <EmptyState icon={Users} title={t("account.none")}>
        {t("account.noneText")}
      </EmptyState>
    );
  }
  return (
    <EmptyState
      icon={SearchX}
      title={t("account.nothingMatches")}
      action={
        <Button variant="default" renderRoot={(props) => <Link to="/access" {...props} />}>
          {t("jobs.clearFilters")}
        </Button>
      }
    />
  );
}
