/** Names of roles, kinds and namespaces, and badges, as all pages about access show them. */

import { Link } from "@tanstack/react-router";
import {
  Bot,
  ChevronRight,
  CircleSlash,
  Hourglass,
  KeyRound,
  type LucideIcon,
  Server,
  User,
} from "lucide-react";
import type { TFunction } from "i18next";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";

import type { Role, TokenKind, TokenStatus } from "../../api/schema";
import { ALL_NAMESPACES } from "../../lib/namespaces";
import { useCanSomewhere } from "../../ui/Allowed";
import { ToneBadge } from "../../ui/Status";
import style from "./access.module.css";

const BUILT_IN = ["viewer", "operator", "developer", "admin"] as const;

/** Returns the word for a built-in role in the language of the page; null for custom roles, and in English. */
function roleWord(name: string, t: TFunction, language: string): string | null {
  const known = BUILT_IN.find((each) => each === name);
  return known && language !== "en" ? t(`roleWord.${known}`) : null;
}

/** Name of a role, with its word in the language of the page. */
export function RoleName({ name }: { name: string }) {
  const { t, i18n } = useTranslation();
  const word = roleWord(name, t, i18n.language);
  return (
    <>
      {name}
      {word && <span className="quiet"> {word}</span>}
    </>
  );
}

/** Name of a role, with a link for callers that may open its page. */
export function RoleLink({ name }: { name: string }) {
  const canOpen = useCanSomewhere()("read", "access");
  if (!canOpen) return <RoleName name={name} />;
  return (
    <Link to="/access/roles/$name" params={{ name }}>
      <RoleName name={name} />
    </Link>
  );
}

/** Returns the text of an option that selects a role. */
export function roleOption(name: string, t: TFunction, language: string): string {
  const word = roleWord(name, t, language);
  return word ? `${name} ${word}` : name;
}

/** Returns the description of a role; localized if it is built in. */
export function roleDescription({ name, built_in, description }: Role, t: TFunction): string {
  const known = BUILT_IN.find((each) => built_in && each === name);
  return known ? t(`roleText.${known}`) : (description ?? "");
}

/** A namespace, or a set of them. */
export function NamespaceName({ namespace }: { namespace: string }) {
  const { t } = useTranslation();
  if (namespace !== ALL_NAMESPACES) return namespace;
  return (
    <>
      * <span className="quiet">{t("namespace.all")}</span>
    </>
  );
}

const KIND_ICONS: Record<TokenKind, LucideIcon> = {
  user: User,
  service: Bot,
  worker: Server,
  admin: KeyRound,
};

export function KindName({ kind }: { kind: TokenKind }) {
  const { t } = useTranslation();
  const Icon = KIND_ICONS[kind];
  return (
    <span className={style.kind}>
      <Icon size={14} aria-hidden /> {t(`tokenKind.${kind}`)}
    </span>
  );
}

export function DisabledBadge() {
  const { t } = useTranslation();
  return <ToneBadge tone="failed" icon={CircleSlash} word={t("account.disabled")} />;
}

const STATUS_LOOKS = {
  active: { tone: "succeeded", icon: KeyRound },
  expired: { tone: "expired", icon: Hourglass },
  revoked: { tone: "cancelled", icon: CircleSlash },
} as const satisfies Record<TokenStatus, object>;

export function TokenBadge({ status }: { status: TokenStatus }) {
  const { t } = useTranslation();
  return <ToneBadge {...STATUS_LOOKS[status]} word={t(`tokenStatus.${status}`)} plain />;
}

/** Title of a page below a list: a link to the list, and the name. */
export function Crumbs(props: { to: "/access" | "/access/roles"; name: ReactNode; children?: ReactNode }) {
  const { t } = useTranslation();
  const { to, name, children } = props;
  return (
    <div className={style.crumbs}>
      <Link to={to} className="quiet">
        {to === "/access" ? t("nav.accounts") : t("nav.roles")}
      </Link>
      <ChevronRight size={14} className="quiet" aria-hidden />
      <h1 className="clip">{name}</h1>
      {children}
    </div>
  );
}
