/** Channels: services that receive notifications, and the state of their deliveries. */

import { ActionIcon, Button, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Check, Megaphone, Pencil, Plus, Send, Trash2, X } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { channelsQuery, deleteChannel, testChannel } from "../../api/alerts";
import type { Channel, ChannelTest } from "../../api/schema";
import { useHasNamespaces } from "../../app/namespace";
import { variantOf } from "../../lib/alerts";
import { usePreferences } from "../../lib/preferences";
import { usePageTitle } from "../../lib/title";
import { Allowed, AllowedSomewhere, useCan } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { EmptyState, ErrorBox, Loading, Page } from "../../ui/kit";
import frame from "../../ui/list.module.css";
import { runAction } from "../../ui/notify";
import { ToneBadge } from "../../ui/Status";
import { RelativeTime } from "../../ui/Time";
import style from "./alerts.module.css";
import { ChannelDialog } from "./ChannelDialog";
import { Sections } from "./Sections";
import { channelKindName } from "./words";

const route = getRouteApi("/alerts/channels");
const COLUMNS = ["name", "kind", "state", "waiting", "rules", "actions"] as const;

const namespaceOf = ({ namespace = "default" }: Channel) => namespace;
const keyOf = (channel: Channel) => `${namespaceOf(channel)}/${channel.name}`;

export function ChannelsPage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.channels"));
  const { namespace } = route.useSearch();
  const { data, error, refetch } = useQuery(channelsQuery(namespace));
  const channels = data?.items;
  const hasNamespaces = useHasNamespaces(
    namespace,
    channels?.map((channel) => ({ namespace: namespaceOf(channel) })),
  );
  // The channel as it was when the dialog opened; null for a new one.
  const [edited, setEdited] = useState<Channel | null | undefined>(undefined);
  const create = (
    <AllowedSomewhere verb="change" on="alerts">
      <Button leftSection={<Plus size={14} />} onClick={() => setEdited(null)}>
        {t("channel.new")}
      </Button>
    </AllowedSomewhere>
  );
  return (
    <Page title={t("nav.alerts")} actions={create}>
      <Sections />
      {error && !channels && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!channels && !error && <Loading rows={5} />}
      {channels?.length === 0 && (
        <EmptyState icon={Megaphone} title={t("channel.none")}>
          {t("channel.noneText")}
        </EmptyState>
      )}
      {channels && channels.length > 0 && (
        <div className={frame.table} role="table" aria-label={t("nav.channels")}>
          <div className={`${frame.row} ${frame.head} ${style.channelRow}`} role="row">
            {COLUMNS.map((column) => (
              <span key={column} role="columnheader" className={style[column]}>
                <span className={column === "actions" ? "unseen" : undefined}>
                  {t(`channel.columns.${column}`)}
                </span>
              </span>
            ))}
          </div>
          <div role="rowgroup" data-testid="channel-rows">
            {channels.map((channel) => (
              <Row
                key={keyOf(channel)}
                channel={channel}
                hasNamespace={hasNamespaces}
                onEdit={() => setEdited(channel)}
              />
            ))}
          </div>
        </div>
      )}
      {edited !== undefined && <ChannelDialog channel={edited} onClose={() => setEdited(undefined)} />}
    </Page>
  );
}

function Row(props: { channel: Channel; hasNamespace: boolean; onEdit: () => void }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const { channel, hasNamespace, onEdit } = props;
  const { name, description, waiting, rules = [] } = channel;
  const namespace = namespaceOf(channel);
  const [tested, setTested] = useState<ChannelTest | null>(null);
  return (
    <div className={`${frame.row} ${style.channelRow}`} role="row">
      <span role="cell" className={style.what}>
        <span className={`${style.name} clip`}>{name}</span>
        <span className={style.under}>
          {hasNamespace && <span className="clip">{namespace}</span>}
          {description && <span className="clip">{description}</span>}
        </span>
      </span>
      <span role="cell">{channelKindName(variantOf(channel.to), t)}</span>
      <span role="cell" className={style.state}>
        <DeliveryState channel={channel} />
        <span role="status" className={style.tested}>
          {tested && <TestResult result={tested} />}
        </span>
      </span>
      <span role="cell" className={`${style.waiting} num`}>
        <span className={style.caption}>{t("channel.columns.waiting")} </span>
        {waiting > 0 ? (
          <Link
            to="/alerts/notifications"
            search={{ namespace, channel: name, status: "waiting" }}
            className={style.link}
          >
            {waiting.toLocaleString(language)}
          </Link>
        ) : (
          <span className="quiet">0</span>
        )}
      </span>
      <span role="cell" className={`${style.chips} ${style.rules}`}>
        {rules.length === 0 && <span className="quiet">{t("channel.noRules")}</span>}
        {rules.map((rule) => (
          <span key={rule} className={style.chip}>
            {rule}
          </span>
        ))}
      </span>
      <span role="cell" className={style.actions}>
        <Allowed verb="operate" on="alerts" in={namespace}>
          <Test name={name} namespace={namespace} onResult={setTested} />
        </Allowed>
        <Allowed verb="change" on="alerts" in={namespace}>
          <Tooltip label={t("channel.edit")}>
            <ActionIcon aria-label={t("channel.editOf", { name })} onClick={onEdit}>
              <Pencil size={14} />
            </ActionIcon>
          </Tooltip>
        </Allowed>
        <Delete channel={channel} />
      </span>
    </div>
  );
}

/** The last delivery: its error if it failed, else its time. */
function DeliveryState({ channel: { delivered_at: deliveredAt, error } }: { channel: Channel }) {
  const { t } = useTranslation();
  if (error) {
    return (
      <>
        <ToneBadge tone="failed" icon={X} word={t("channel.failed")} plain />
        <span className={style.error}>{error}</span>
      </>
    );
  }
  if (!deliveredAt) return <span className="quiet">{t("channel.unused")}</span>;
  return (
    <span className={style.delivered}>
      <ToneBadge tone="succeeded" icon={Check} word={t("channel.delivered")} plain />
      <span className="quiet">
        <RelativeTime at={deliveredAt} light />
      </span>
    </span>
  );
}

function TestResult({ result: { delivered, error } }: { result: ChannelTest }) {
  const { t } = useTranslation();
  return delivered ? (
    <ToneBadge tone="succeeded" icon={Send} word={t("channel.testDelivered")} />
  ) : (
    <>
      <ToneBadge tone="failed" icon={Send} word={t("channel.testFailed")} />
      {error && <span className={style.error}>{error}</span>}
    </>
  );
}

interface TestProps {
  name: string;
  namespace: string;
  onResult: (result: ChannelTest | null) => void;
}

function Test({ name, namespace, onResult }: TestProps) {
  const { t } = useTranslation();
  const [busy, setBusy] = useState(false);
  const test = async () => {
    setBusy(true);
    onResult(null);
    onResult((await runAction(() => testChannel(name, namespace))) ?? null);
    setBusy(false);
  };
  return (
    <Tooltip label={t("channel.test")}>
      <ActionIcon aria-label={t("channel.testOf", { name })} loading={busy} onClick={() => void test()}>
        <Send size={14} />
      </ActionIcon>
    </Tooltip>
  );
}

function Delete({ channel }: { channel: Channel }) {
  const { t } = useTranslation();
  const [asking, setAsking] = useState(false);
  const { name, rules = [] } = channel;
  const namespace = namespaceOf(channel);
  if (!useCan()("delete", "alerts", namespace)) return null;
  return (
    <>
      <Tooltip label={t("channel.delete")}>
        <ActionIcon aria-label={t("channel.deleteOf", { name })} onClick={() => setAsking(true)}>
          <Trash2 size={14} />
        </ActionIcon>
      </Tooltip>
      {asking && (
        <ConfirmDialog
          title={t("channel.deleteTitle", { name })}
          text={rules.length > 0 ? t("channel.deleteUsed", { count: rules.length }) : t("channel.deleteText")}
          confirm={t("channel.delete")}
          red
          disabled={rules.length > 0}
          onConfirm={() => deleteChannel(name, namespace)}
          done={t("channel.deleted", { name })}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}
