/** Drains a server before maintenance, and undrains it. */

import { Button, Group, Modal } from "@mantine/core";
import { CircleSlash, Play } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { setServerDraining } from "../../api/actions";
import type { Server } from "../../api/schema";
import { drainEffect } from "../../lib/servers";
import { notify } from "../../ui/notify";
import { ErrorBox } from "../../ui/kit";

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
  const [busy, setBusy] = useState(false);
  const [apiError, setApiError] = useState<unknown>(null);
  // Fixed when the dialog opens: the list may change meanwhile.
  const [drains] = useState(!server.draining);
  const { id, name } = server;
  const action = drains ? "drain" : "undrain";
  const go = async () => {
    setBusy(true);
    try {
      await setServerDraining(id, drains);
      notify(t(`server.${action}Done`, { name }));
      onClose();
    } catch (error) {
      setApiError(error);
      setBusy(false);
    }
  };
  return (
    <Modal opened onClose={onClose} title={t(`server.${action}Title`, { name })} size={460}>
      <p className="quiet">
        {drains ? t(`server.drainEffect.${drainEffect(server, servers)}`) : t("server.undrainText")}
      </p>
      {apiError !== null && (
        <>
          <br />
          <ErrorBox error={apiError} />
        </>
      )}
      <Group justify="flex-end" mt="md" gap="xs">
        <Button variant="default" onClick={onClose}>
          {t("common.back")}
        </Button>
        <Button color={drains ? "red" : undefined} loading={busy} onClick={() => void go()}>
          {t(`server.${action}`)}
        </Button>
      </Group>
    </Modal>
  );
}
