/** Account, server state, and preferences of this browser. */

import { Button, Group, SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ExternalLink, KeyRound, LogOut } from "lucide-react";
import type { TFunction } from "i18next";
import { useTranslation } from "react-i18next";

import { signOut } from "../../api/auth";
import { isTakeover, ApiError } from "../../api/errors";
import { meQuery, readyQuery, versionQuery } from "../../api/queries";
import { useNow } from "../../lib/now";
import { setPreferences, usePreferences } from "../../lib/preferences";
import { translateMessage } from "../../lib/serverMessages";
import { formatExact } from "../../lib/time";
import { usePageTitle } from "../../lib/title";
import { Card, KeyValueList, Page, ErrorBox } from "../../ui/kit";
import { ZoneSelect } from "../../ui/ZoneSelect";
import style from "./settings.module.css";

const CHECKS = ["engine", "store", "clock"] as const;

/** Returns the localized name of a readiness check; a check of a newer server keeps its name. */
function checkName(name: string, t: TFunction): string {
  const known = CHECKS.find((each) => each === name);
  return known ? t(`check.${known}`) : name;
}

export function SettingsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.settings"));
  const { language, theme, zone } = usePreferences();
  const now = useNow();
  const me = useQuery(meQuery);
  const version = useQuery(versionQuery).data;
  const ready = useQuery(readyQuery);
  // A standby is not ready, so that load balancers prefer the leader.
  const isStandby = ready.error !== null && isTakeover(ApiError.from(ready.error));

  return (
    <Page title={t("nav.settings")}>
      <div className={style.cards}>
        <Card title={t("settings.appearance")}>
          <div className={style.rows}>
            <div className={style.row}>
              <span>{t("settings.language")}</span>
              <SegmentedControl
                aria-label={t("settings.language")}
                value={language}
                onChange={(value) => setPreferences({ language: value })}
                data={[
                  { value: "en", label: "English" },
                  { value: "zh-CN", label: "中文" },
                ]}
              />
            </div>
            <div className={style.row}>
              <span>{t("settings.theme")}</span>
              <SegmentedControl
                aria-label={t("settings.theme")}
                value={theme}
                onChange={(value) => setPreferences({ theme: value })}
                data={(["auto", "light", "dark"] as const).map((value) => ({
                  value,
                  label: t(`settings.themes.${value}`),
                }))}
              />
            </div>
            <div className={style.row}>
              <span>
                {t("settings.zone")}
                <small className="quiet num">{formatExact(now, language, zone)}</small>
              </span>
              <ZoneSelect />
            </div>
          </div>
        </Card>
        <Card title={t("settings.account")}>
          {me.error && <ErrorBox error={me.error} />}
          <KeyValueList
            rows={[
              [t("settings.name"), me.data?.name],
              me.data?.title ? [t("account.title"), me.data.title] : null,
              [t("settings.kind"), me.data && t(`tokenKind.${me.data.kind}`)],
            ]}
          />
          <Group mt="md" gap="xs">
            <Button variant="default" leftSection={<KeyRound size={13} />} component={Link} to="/tokens">
              {t("nav.tokens")}
            </Button>
            <Button variant="default" leftSection={<LogOut size={13} />} onClick={() => void signOut()}>
              {t("settings.signOut")}
            </Button>
          </Group>
        </Card>
        <Card title={t("settings.server")}>
          <KeyValueList
            rows={[
              [t("settings.version"), version?.version],
              [t("settings.address"), location.origin],
              [
                t("settings.state"),
                isStandby
                  ? t("settings.states.standby")
                  : ready.data
                    ? t(`settings.states.${ready.data.status as "ready"}`)
                    : t("settings.states.unknown"),
              ],
              ...(isStandby ? [] : (ready.data?.checks ?? [])).map(
                (check) =>
                  [
                    checkName(check.name, t),
                    check.ok ? t("settings.well") : translateMessage(check.detail ?? "", t),
                  ] as [string, string],
              ),
            ]}
          />
          <p className={style.links}>
            <a href="/docs" target="_blank" rel="noreferrer">
              {t("settings.api")} <ExternalLink size={12} aria-hidden />
            </a>
            <a href="/docs/problems" target="_blank" rel="noreferrer">
              {t("settings.refusals")} <ExternalLink size={12} aria-hidden />
            </a>
          </p>
        </Card>
      </div>
    </Page>
  );
}
