/** Drains a server before maintenance, and undrains it. */

import { Button } from "@mantine/core";
import { CircleSlash, Play } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { setServerDraining } from "../../api/actions";
import type { Server } from "../../api/schema";
import { drainEffect } from "../../lib/servers";
import { ConfirmDialog } from "../../ui/ConfirmDialog";

interface Props {
  server: Server;
  /** All servers of the cluster, including this one. */
  servers: readonly Server[];
}

export function ServerActions({ server, servers }: Props) {
  const { t } = useTranslation();
  const [isAsking, setAsking] = useState(false);
  const Icon = server.draining ? Play : CircleSlash;
  const action = server.draining ? "undrain" : "drain";
  return (
    <>
      <Button variant="default" leftSection={<Icon size={14} />} onClick={() => setAsking(true)}>
        {t(`server.${action}`)}
      </Button>
      {isAsking && <Ask server={server} servers={servers} onClose={() => setAsking(false)} />}
    </>
  );
}

function Ask({ server, servers, onClose }: Props & { onClose: () => void }) {
  const { t } = useTranslation();
  // Fixed when the dialog opens: the list may change meanwhile.
  const [drains] = useState(!server.draining);
  const { id, name } = server;
  const action = drains ? "drain" : "undrain";
  return (
    <ConfirmDialog
      title={t(`server.${action}Title`, { name })}
      text={drains ? t(`server.drainEffect.${drainEffect(server, servers)}`) : t("server.undrainText")}
      confirm={t(`server.${action}`)}
      red={drains}
      onConfirm={() => setServerDraining(id, drains)}
      done={t(`server.${action}Done`, { name })}
      onClose={onClose}
    />
  );
}
