/** The list of roles, built-in and custom. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Package, Plus } from "lucide-react";
import { useTranslation } from "react-i18next";

import { bindingsQuery, rolesQuery } from "../../api/access";
import { usePageTitle } from "../../lib/title";
import { Allowed } from "../../ui/Allowed";
import { ErrorBox, Loading, Page } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { ToneBadge } from "../../ui/Status";
import style from "./access.module.css";
import { Sections } from "./Sections";
import { roleDescription, RoleName } from "./words";

const COLUMNS = ["name", "description", "accounts"] as const;

export function RolesPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.roles"));
  const { data, error, refetch } = useQuery(rolesQuery);
  const bindings = useQuery(bindingsQuery({})).data?.items;
  const accountsOf = (role: string) =>
    new Set(
      bindings
        ?.filter((each) => each.role === role)
        .map(({ account }) => account)
        .filter(Boolean),
    ).size;
  return (
    <Page
      title={t("nav.access")}
      actions={
        <Allowed verb="create" on="access">
          <Button
            renderRoot={(props) => <Link to="/access/roles/new" {...props} />}
            leftSection={<Plus size={14} />}
          >
            {t("role.new")}
          </Button>
        </Allowed>
      }
    >
      <Sections />
      {error && !data && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading rows={5} />}
      {data && (
        <div className={frame.table} role="table" aria-label={t("nav.roles")}>
          <div className={`${frame.row} ${frame.head} ${style.roleRow}`} role="row">
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader" className={style[column]}>
                {t(`role.columns.${column}`)}
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="role-rows">
            {data.items.map((role) => (
              <div key={role.name} className={`${frame.row} ${style.roleRow}`} role="row">
                <span role="cell" className={style.first}>
                  <Link
                    to="/access/roles/$name"
                    params={{ name: role.name }}
                    className={`${frame.open} ${style.open} clip`}
                  >
                    <RoleName name={role.name} />
                  </Link>
                  {role.built_in && <ToneBadge tone="cancelled" icon={Package} word={t("role.builtIn")} />}
                </span>
                <span role="cell" className="quiet">
                  {roleDescription(role, t)}
                </span>
                <span role="cell" className={`${style.accounts} num`}>
                  {bindings && <AccountCount count={accountsOf(role.name)} />}
                </span>
              </div>
            ))}
          </div>
        </div>
      )}
    </Page>
  );
}

function AccountCount({ count }: { count: number }) {
  const { t } = useTranslation();
  return count === 0 ? <span className="quiet">–</span> : t("account.count", { count });
}
