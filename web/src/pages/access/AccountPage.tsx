/** One account: its roles, its login and its tokens. */

import { ActionIcon, Button, Menu, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import {
  CircleSlash,
  Ellipsis,
  KeyRound,
  PenLine,
  Play,
  Plus,
  ShieldOff,
  Trash2,
  Unlink,
} from "lucide-react";
import type { TFunction } from "i18next";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { accountQuery, bindingsQuery, changeAccount, tokensQuery } from "../../api/access";
import { meQuery } from "../../api/queries";
import type { Account, Binding } from "../../api/schema";
import { TOKEN_STATUSES } from "../../lib/access";
import { usePageTitle } from "../../lib/title";
import { Allowed, AllowedSomewhere, useCan } from "../../ui/Allowed";
import { Card, EmptyState, ErrorBox, KeyValueList, Loading, Page } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { runAction } from "../../ui/notify";
import { AbsoluteTime, RelativeTime } from "../../ui/Time";
import style from "./access.module.css";
import { BindDialog, DeleteAccountDialog, DisableDialog, RenameDialog, UnbindDialog } from "./AccountDialogs";
import { CreateTokenDialog } from "./CreateTokenDialog";
import { LoginCard } from "./LoginCard";
import { TokenTable } from "./TokenTable";
import { Crumbs, DisabledBadge, KindName, NamespaceName, RoleLink } from "./words";

const route = getRouteApi("/access/accounts/$name");

export function AccountPage() {
  const { name } = route.useParams();
  usePageTitle(name);
  const { data, error, refetch } = useQuery(accountQuery(name));
  if (data && !error) return <AccountDetails key={name} account={data} />;
  return (
    <Page title={<Crumbs to="/access" name={name} />}>
      {error ? <ErrorBox error={error} onRetry={() => void refetch()} /> : <Loading rows={6} />}
    </Page>
  );
}

function AccountDetails({ account }: { account: Account }) {
  const { t } = useTranslation();
  const { name, title, kind, disabled } = account;
  return (
    <Page
      title={
        <Crumbs to="/access" name={name}>
          {disabled && <DisabledBadge />}
        </Crumbs>
      }
      actions={<Actions account={account} />}
    >
      <div className={style.columns}>
        <div className={style.main}>
          <Roles account={account} />
          <Tokens account={account} />
        </div>
        <aside className={style.aside}>
          {account.login && <LoginCard account={account} login={account.login} />}
          <Card title={t("account.details")}>
            <KeyValueList
              rows={[
                [t("account.columns.name"), name],
                [t("account.title"), title ?? <span className="quiet">–</span>],
                [t("account.kind"), <KindName key="" kind={kind} />],
                [t("account.state"), disabled ? t("account.disabledText") : t("account.enabled")],
                [t("account.submitRate"), submitRate(account, t)],
                [t("account.createdAt"), <AbsoluteTime key="" at={account.created_at} />],
                [t("account.createdBy"), account.created_by],
              ]}
            />
          </Card>
        </aside>
      </div>
    </Page>
  );
}

/** Returns the limit on submitted jobs, and whether it is the default. */
function submitRate({ submit_rate, jobs_per_minute }: Account, t: TFunction): string {
  const limit =
    jobs_per_minute == null ? t("account.unlimited") : t("account.perMinute", { count: jobs_per_minute });
  return submit_rate === undefined || submit_rate === "default" ? t("account.byDefault", { limit }) : limit;
}

function Actions({ account }: { account: Account }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState<"disable" | "rename" | "delete" | null>(null);
  const close = () => setOpen(null);
  const { name, disabled } = account;
  const enable = () =>
    void runAction(() => changeAccount(name, { disabled: false }), t("account.enableDone", { name }));
  const can = useCan();
  const canChange = can("change", "access");
  const canDelete = can("delete", "access");
  return (
    <>
      {canChange &&
        (disabled ? (
          <Button variant="default" leftSection={<Play size={13} />} onClick={enable}>
            {t("account.enable")}
          </Button>
        ) : (
          <Button
            variant="default"
            leftSection={<CircleSlash size={13} />}
            onClick={() => setOpen("disable")}
          >
            {t("account.disable")}
          </Button>
        ))}
      {(canChange || canDelete) && (
        <Menu>
          <Menu.Target>
            <ActionIcon variant="default" aria-label={t("account.more")}>
              <Ellipsis size={16} />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown>
            {canChange && (
              <Menu.Item leftSection={<PenLine size={14} />} onClick={() => setOpen("rename")}>
                {t("account.rename")}
              </Menu.Item>
            )}
            {canDelete && (
              <Menu.Item leftSection={<Trash2 size={14} />} color="red" onClick={() => setOpen("delete")}>
                {t("account.delete")}
              </Menu.Item>
            )}
          </Menu.Dropdown>
        </Menu>
      )}
      {open === "disable" && <DisableDialog account={account} onClose={close} />}
      {open === "rename" && <RenameDialog account={account} onClose={close} />}
      {open === "delete" && <DeleteAccountDialog account={account} onClose={close} />}
    </>
  );
}

const COLUMNS = ["role", "namespace", "created", "by", "actions"] as const;

function Roles({ account }: { account: Account }) {
  const { t } = useTranslation();
  const [binding, setBinding] = useState(false);
  const { data, error } = useQuery(bindingsQuery({ account: account.name }));
  const seesAll = useCan()("read", "access");
  const bindings = data?.items;
  const byGroup = account.roles.filter(({ group }) => group != null);
  return (
    <Card
      title={t("binding.roles")}
      aside={
        <AllowedSomewhere verb="change" on="access">
          <Button variant="default" leftSection={<Plus size={13} />} onClick={() => setBinding(true)}>
            {t("binding.bind")}
          </Button>
        </AllowedSomewhere>
      }
      flush
    >
      {error && !bindings && (
        <div className={style.padded}>
          <ErrorBox error={error} />
        </div>
      )}
      {!bindings && !error && (
        <div className={style.padded}>
          <Loading rows={2} />
        </div>
      )}
      {byGroup.length > 0 && (
        <ul className={style.bindings} aria-label={t("login.groups")}>
          {byGroup.map(({ role, namespace, group }) => (
            <li key={`${role} ${namespace} ${group}`}>
              <span className="clip">
                <RoleLink name={role} /> <span className="quiet">{t("binding.byGroup", { group })}</span>
              </span>
              <span className="clip">
                <NamespaceName namespace={namespace} />
              </span>
            </li>
          ))}
        </ul>
      )}
      {bindings?.length === 0 &&
        byGroup.length === 0 &&
        (seesAll ? (
          <EmptyState icon={ShieldOff} title={t("binding.none")}>
            {t("binding.noneText")}
          </EmptyState>
        ) : (
          <EmptyState icon={ShieldOff} title={t("binding.noneVisible")} />
        ))}
      {bindings && bindings.length > 0 && (
        <div className={style.inner} role="table" aria-label={t("binding.roles")}>
          <div className={`${frame.row} ${frame.head} ${style.binding}`} role="row">
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader" className={style[column]}>
                <span className={column === "actions" ? "unseen" : undefined}>
                  {t(`binding.columns.${column}`)}
                </span>
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="binding-rows">
            {bindings.map((each) => (
              <BindingRow key={`${each.role} ${each.namespace}`} binding={each} />
            ))}
          </div>
        </div>
      )}
      {binding && <BindDialog account={account.name} onClose={() => setBinding(false)} />}
    </Card>
  );
}

function BindingRow({ binding }: { binding: Binding }) {
  const { t } = useTranslation();
  const [unbinding, setUnbinding] = useState(false);
  const { role, namespace, created_at, created_by } = binding;
  return (
    <div className={`${frame.row} ${style.binding}`} role="row">
      <span role="cell" className={`${style.role} clip`}>
        <RoleLink name={role} />
      </span>
      <span role="cell" className="clip">
        <NamespaceName namespace={namespace} />
      </span>
      <span role="cell" className={`${style.created} quiet`}>
        <RelativeTime at={created_at} light />
      </span>
      <span role="cell" className={`${style.by} quiet clip`}>
        {created_by}
      </span>
      <span role="cell" className={style.actions}>
        <Allowed verb="change" on="access" in={namespace}>
          <Tooltip label={t("binding.unbind")}>
            <ActionIcon
              aria-label={t("binding.unbindOf", { role, namespace })}
              onClick={() => setUnbinding(true)}
            >
              <Unlink size={15} />
            </ActionIcon>
          </Tooltip>
        </Allowed>
      </span>
      {unbinding && <UnbindDialog binding={binding} onClose={() => setUnbinding(false)} />}
    </div>
  );
}

/** The tokens of the account, for its owner and for callers that may read all tokens. */
function Tokens({ account }: { account: Account }) {
  const { t } = useTranslation();
  const can = useCan();
  const me = useQuery(meQuery).data;
  const [creating, setCreating] = useState(false);
  const { name, kind, disabled } = account;
  const isOwn = me?.kind === kind && me.name === name;
  const isVisible = isOwn || can("read", "access");
  const { data, error } = useQuery({
    ...tokensQuery({ name, kind, statuses: TOKEN_STATUSES }),
    enabled: isVisible,
  });
  if (!isVisible) return null;
  return (
    <Card
      title={t("nav.tokens")}
      aside={
        !disabled &&
        (isOwn || can("create", "access")) && (
          <Button variant="default" leftSection={<Plus size={13} />} onClick={() => setCreating(true)}>
            {t("token.new")}
          </Button>
        )
      }
      flush
    >
      {error && !data && (
        <div className={style.padded}>
          <ErrorBox error={error} />
        </div>
      )}
      {!data && !error && (
        <div className={style.padded}>
          <Loading rows={2} />
        </div>
      )}
      {data?.items.length === 0 && <EmptyState icon={KeyRound} title={t("token.none")} />}
      {data && data.items.length > 0 && <TokenTable tokens={data.items} inCard />}
      {creating && <CreateTokenDialog bearer={{ account: name }} onClose={() => setCreating(false)} />}
    </Card>
  );
}
