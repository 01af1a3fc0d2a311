/** The application frame: navigation, connection state, settings menus. */

import { ActionIcon, Button, Drawer, Kbd, Menu, Popover, Tooltip, VisuallyHidden } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import {
  Activity,
  BellRing,
  Boxes,
  CalendarClock,
  ChevronsUpDown,
  CircleUser,
  CircleX,
  Globe,
  KeyRound,
  Languages,
  Layers,
  LayoutDashboard,
  ListChecks,
  LockKeyhole,
  LogOut,
  Menu as MenuIcon,
  Monitor,
  Moon,
  Network,
  Plus,
  RadioTower,
  Rows3,
  Search,
  Server,
  Settings,
  ShieldCheck,
  Smartphone,
  Sun,
  Workflow,
  type LucideIcon,
} from "lucide-react";
import { type ReactNode, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { alertCountsQuery } from "../api/alerts";
import { signOut } from "../api/auth";
import { countsQuery, meQuery, workersQuery } from "../api/queries";
import bell from "../assets/bell.svg";
import { scopedSearch } from "../lib/namespaces";
import { setPreferences, type Theme, usePreferences } from "../lib/preferences";
import { canSomewhere, pageDenial } from "../lib/rights";
import { zoneName, zoneOffset } from "../lib/time";
import { useAlertMark, useFailureCount } from "../lib/title";
import { AllowedSomewhere } from "../ui/Allowed";
import { ZoneSelect } from "../ui/ZoneSelect";
import { ChangePasswordDialog } from "./ChangePasswordDialog";
import { DisableTotpDialog, EnableTotpDialog } from "./TotpDialog";
import { ConnectionBanner, ConnectionDot } from "./Connection";
import { Denied } from "./Denied";
import { DialogHost, openDialog } from "./dialogs";
import { NamespaceSwitcher } from "./NamespaceSwitcher";
import { openPalette, Palette } from "./Palette";
import style from "./Shell.module.css";
import { Shortcuts } from "./Shortcuts";

const NAV_ITEMS = [
  { to: "/", key: "overview", icon: LayoutDashboard },
  { to: "/jobs", key: "jobs", icon: ListChecks },
  { to: "/failures", key: "failures", icon: CircleX },
  { to: "/alerts", key: "alerts", icon: BellRing },
  { to: "/schedules", key: "schedules", icon: CalendarClock },
  { to: "/workflows", key: "workflows", icon: Workflow },
  { to: "/services", key: "services", icon: RadioTower },
  { to: "/workers", key: "workers", icon: Server },
  { to: "/servers", key: "servers", icon: Network },
  { to: "/queues", key: "queues", icon: Rows3 },
  { to: "/artifacts", key: "artifacts", icon: Boxes },
  { to: "/secrets", key: "secrets", icon: KeyRound },
  { to: "/events", key: "events", icon: Activity },
  { to: "/namespaces", key: "namespaces", icon: Layers },
  { to: "/access", key: "access", icon: ShieldCheck },
  { to: "/settings", key: "settings", icon: Settings },
] as const satisfies ReadonlyArray<{ to: string; key: string; icon: LucideIcon }>;

/** Pages that belong to another navigation item. */
const RELATED_PAGES: Record<string, string> = { "/schedules": "/calendars", "/workflows": "/runs" };

export type NavKey = (typeof NAV_ITEMS)[number]["key"];

export function Shell() {
  const { t } = useTranslation();
  const path = useRouterState({ select: (state) => state.location.pathname });
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [path]);
  useFailureCount();
  useAlertMark(useAlertCounts()?.critical ?? 0);

  return (
    <div className={style.frame}>
      <a className="skip" href="#content">
        {t("nav.skip")}
      </a>
      <aside className={style.side} aria-label="Belfry">
        <Brand />
        <Navigation />
      </aside>
      <header className={style.top}>
        <ActionIcon onClick={() => setOpen(true)} aria-label={t("nav.menu")} size={36}>
          <MenuIcon size={20} />
        </ActionIcon>
        <Brand />
        <ActionIcon onClick={openPalette} aria-label={t("palette.open")} size={36}>
          <Search size={18} />
        </ActionIcon>
      </header>
      <Drawer
        opened={open}
        onClose={() => setOpen(false)}
        size={270}
        title={<Brand />}
        closeButtonProps={{ "aria-label": t("common.close") }}
      >
        <div className={style.drawer}>
          <Navigation />
        </div>
      </Drawer>
      <div className={style.main}>
        <ConnectionBanner />
        <main id="content" className={style.content} tabIndex={-1}>
          <Gate>
            <Outlet />
          </Gate>
        </main>
      </div>
      <Palette />
      <DialogHost />
      <Shortcuts />
    </div>
  );
}

function useAlertCounts() {
  const me = useQuery(meQuery).data;
  return useQuery({ ...alertCountsQuery, enabled: canSomewhere(me, "read", "alerts") }).data;
}

/** Shows a page only to callers that may open it. */
function Gate({ children }: { children: ReactNode }) {
  const path = useRouterState({ select: (state) => state.location.pathname });
  const denial = pageDenial(useQuery(meQuery).data, path);
  return denial ? <Denied denial={denial} /> : children;
}

function Brand() {
  return (
    <Link to="/" className={style.brand}>
      <img src={bell} width={24} height={24} alt="" />
      <span>
        Belfry <small>钟楼</small>
      </span>
    </Link>
  );
}

function Navigation() {
  const { t } = useTranslation();
  const path = useRouterState({ select: (state) => state.location.pathname });
  const { namespace } = usePreferences();
  const me = useQuery(meQuery).data;
  const counts = useQuery({ ...countsQuery(), enabled: canSomewhere(me, "read", "jobs") }).data;
  const workers = useQuery({ ...workersQuery, enabled: canSomewhere(me, "read", "workers") }).data?.items;
  const lost = workers?.filter((worker) => worker.status === "lost").length ?? 0;
  const running = counts?.running ?? 0;
  const { firing = 0, critical = 0 } = useAlertCounts() ?? {};
  const isUnder = (to: string) => path === to || path.startsWith(`${to}/`);
  const isHere = (to: string) =>
    to === "/" ? path === "/" : isUnder(to) || (to in RELATED_PAGES && isUnder(RELATED_PAGES[to] ?? ""));

  return (
    <>
      <div className={style.acts}>
        <AllowedSomewhere verb="create" on="jobs">
          <Button
            component={Link}
            to="/submit"
            leftSection={<Plus size={15} />}
            fullWidth
            justify="flex-start"
          >
            {t("nav.submit")}
          </Button>
        </AllowedSomewhere>
        <button type="button" className={style.search} onClick={openPalette}>
          <Search size={14} aria-hidden />
          <span>{t("nav.search")}</span>
          <Kbd size="xs">{/mac/i.test(navigator.platform) ? "⌘K" : "Ctrl K"}</Kbd>
        </button>
        <NamespaceSwitcher />
      </div>
      <nav className={style.places} aria-label={t("nav.label")}>
        {NAV_ITEMS.filter(({ to }) => pageDenial(me, to) === null).map(({ to, key, icon: Icon }) => (
          <Link
            key={to}
            to={to}
            search={scopedSearch(to, namespace)}
            className={style.place}
            data-here={isHere(to) || undefined}
            aria-current={isHere(to) ? "page" : undefined}
          >
            <Icon size={16} strokeWidth={1.9} aria-hidden />
            <span>{t(`nav.${key}`)}</span>
            {key === "jobs" && running > 0 && (
              <Tooltip label={t("nav.running", { count: running })}>
                <span className={`${style.count} num`}>{running}</span>
              </Tooltip>
            )}
            {key === "alerts" && firing > 0 && (
              <Tooltip label={t("nav.firing", { count: firing })}>
                <span
                  className={`${style.count} ${critical > 0 ? style.bad : style.firing} num`}
                  data-testid="firing"
                >
                  {firing}
                </span>
              </Tooltip>
            )}
            {key === "workers" && lost > 0 && (
              <Tooltip label={t("nav.lost", { count: lost })}>
                <span className={`${style.count} ${style.bad} num`}>{lost}</span>
              </Tooltip>
            )}
          </Link>
        ))}
      </nav>
      <div className={style.bottom}>
        <UserMenu />
        <ZoneMenu />
      </div>
      <footer className={style.foot}>
        <ConnectionDot />
        <div className={style.footActs}>
          <ThemeMenu />
          <LanguageMenu />
        </div>
      </footer>
    </>
  );
}

/** The zone in which the page shows its times, and the choice of another one. */
function ZoneMenu() {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const name = zoneName(zone);
  return (
    <Popover position="top-start" trapFocus>
      <Popover.Target>
        <button type="button" className={style.zone}>
          <Globe size={13} aria-hidden />
          <VisuallyHidden>{t("settings.zone")} </VisuallyHidden>
          <span className="clip">{name}</span>
          {name !== "UTC" && <small className="num">{zoneOffset(zone, language)}</small>}
        </button>
      </Popover.Target>
      <Popover.Dropdown>
        <ZoneSelect label />
      </Popover.Dropdown>
    </Popover>
  );
}

const THEMES: Array<[Theme, LucideIcon]> = [
  ["auto", Monitor],
  ["light", Sun],
  ["dark", Moon],
];

function ThemeMenu() {
  const { t } = useTranslation();
  const { theme } = usePreferences();
  const Icon = THEMES.find(([key]) => key === theme)?.[1] ?? Monitor;
  return (
    <Menu position="top-start">
      <Menu.Target>
        <ActionIcon aria-label={t("settings.theme")}>
          <Icon size={15} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {THEMES.map(([key, Each]) => (
          <Menu.Item
            key={key}
            leftSection={<Each size={14} />}
            onClick={() => setPreferences({ theme: key })}
          >
            {t(`settings.themes.${key}`)}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}

function LanguageMenu() {
  const { t } = useTranslation();
  return (
    <Menu position="top-start">
      <Menu.Target>
        <ActionIcon aria-label={t("settings.language")}>
          <Languages size={15} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item onClick={() => setPreferences({ language: "en" })}>English</Menu.Item>
        <Menu.Item onClick={() => setPreferences({ language: "zh-CN" })}>中文</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

/** The user, with a link to the tokens of its account, the change of its password, and the logout. */
function UserMenu() {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  if (!me) return null;
  const { name, title, kind } = me;
  return (
    <Menu position="top-start">
      <Menu.Target>
        <button type="button" className={style.zone} data-testid="user">
          <CircleUser size={13} aria-hidden />
          <VisuallyHidden>{t("user.menu")} </VisuallyHidden>
          <span className="clip">{title ?? name}</span>
          <ChevronsUpDown size={12} aria-hidden className={style.opens} />
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label className={style.user}>
          <strong className="clip">{title ?? name}</strong>
          <span>{title ? `${name} · ${t(`tokenKind.${kind}`)}` : t(`tokenKind.${kind}`)}</span>
        </Menu.Label>
        <Menu.Item leftSection={<KeyRound size={14} />} component={Link} to="/tokens">
          {t("nav.tokens")}
        </Menu.Item>
        {me.has_password && (
          <Menu.Item
            leftSection={<LockKeyhole size={14} />}
            onClick={() => openDialog((close) => <ChangePasswordDialog account={name} onClose={close} />)}
          >
            {t("password.change")}
          </Menu.Item>
        )}
        {me.has_password && (
          <Menu.Item
            leftSection={<Smartphone size={14} />}
            onClick={() =>
              openDialog((close) =>
                me.has_totp ? <DisableTotpDialog onClose={close} /> : <EnableTotpDialog onClose={close} />,
              )
            }
          >
            {me.has_totp ? t("totp.disable") : t("totp.enable")}
          </Menu.Item>
        )}
        <Menu.Item leftSection={<LogOut size={14} />} onClick={() => void signOut()}>
          {t("settings.signOut")}
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
