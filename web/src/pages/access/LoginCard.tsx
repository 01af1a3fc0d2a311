/** The login of an account: its password, its identity at the OpenID provider, its invitation and its sessions. */

import { Button, Checkbox, Group, Modal, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link2Off, LogOut, Mail, Smartphone, TriangleAlert, Unlink } from "lucide-react";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { endSessions, inviteAccount, resetTotp, revokeInvitation, unlinkAccount } from "../../api/access";
import { meQuery } from "../../api/queries";
import type { Account, AccountLogin } from "../../api/schema";
import { INVITATION_HOURS, INVITATION_HOURS_DEFAULT, invitationLink } from "../../lib/access";
import { useCan } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Card, KeyValueList, Snippet } from "../../ui/kit";
import { AbsoluteTime, RelativeTime } from "../../ui/Time";
import style from "./access.module.css";

interface Props {
  account: Account;
  login: AccountLogin;
}

export function LoginCard({ account, login }: Props) {
  const { t } = useTranslation();
  const { password_set_at, last_login_at, invitation, oidc, sessions } = login;
  const none = <span className="quiet">–</span>;
  return (
    <Card title={t("login.title")}>
      <KeyValueList
        rows={[
          [
            t("login.password"),
            password_set_at ? (
              <span key="">
                {t("login.setAt")} <RelativeTime at={password_set_at} />
              </span>
            ) : (
              t("login.noPassword")
            ),
          ],
          login.totp_set_at != null && [
            t("totp.title"),
            <span key="">
              {t("login.setAt")} <RelativeTime at={login.totp_set_at} />
            </span>,
          ],
          oidc != null && [
            t("login.provider"),
            <span key="" title={oidc.subject}>
              {oidc.issuer}
            </span>,
          ],
          oidc != null && [t("login.groups"), oidc.groups.length > 0 ? oidc.groups.join(", ") : none],
          [t("login.lastLogin"), last_login_at ? <RelativeTime key="" at={last_login_at} /> : none],
          [
            t("login.sessions"),
            <span className="num" key="">
              {sessions}
            </span>,
          ],
          invitation != null && [
            t("login.invitation"),
            <span key="">
              {t("login.validUntil")} <AbsoluteTime at={invitation.expires_at} />
            </span>,
          ],
        ]}
      />
      <Actions account={account} login={login} />
    </Card>
  );
}

function Actions({ account, login }: Props) {
  const { t } = useTranslation();
  const [open, setOpen] = useState<"invite" | "revoke" | "unlink" | "totp" | "end" | null>(null);
  const close = () => setOpen(null);
  const can = useCan();
  const me = useQuery(meQuery).data;
  const { name, disabled } = account;
  const isOwn = me?.kind === "user" && me.name === name;
  const canInvite = can("create", "access") && !disabled;
  const canRevoke = can("delete", "access") && login.invitation != null;
  const canUnlink = can("delete", "access") && login.oidc != null;
  const canReset = can("delete", "access") && login.totp_set_at != null;
  const canEnd = (isOwn || can("delete", "access")) && login.sessions > 0;
  if (!canInvite && !canRevoke && !canUnlink && !canReset && !canEnd) return null;
  return (
    <div className={style.loginActs}>
      {canInvite && (
        <Button variant="default" leftSection={<Mail size={13} />} onClick={() => setOpen("invite")}>
          {login.password_set_at ? t("login.reset") : t("login.invite")}
        </Button>
      )}
      {canRevoke && (
        <Button variant="default" leftSection={<Link2Off size={13} />} onClick={() => setOpen("revoke")}>
          {t("login.revoke")}
        </Button>
      )}
      {canUnlink && (
        <Button variant="default" leftSection={<Unlink size={13} />} onClick={() => setOpen("unlink")}>
          {t("login.unlink")}
        </Button>
      )}
      {canReset && (
        <Button variant="default" leftSection={<Smartphone size={13} />} onClick={() => setOpen("totp")}>
          {t("totp.reset")}
        </Button>
      )}
      {canEnd && (
        <Button variant="default" leftSection={<LogOut size={13} />} onClick={() => setOpen("end")}>
          {t("login.end")}
        </Button>
      )}
      {open === "invite" && (
        <InviteDialog name={name} hasPassword={login.password_set_at != null} onClose={close} />
      )}
      {open === "revoke" && (
        <ConfirmDialog
          title={t("login.revokeTitle")}
          text={t("login.revokeText")}
          confirm={t("login.revoke")}
          red
          onConfirm={() => revokeInvitation(name)}
          done={t("login.revoked")}
          onClose={close}
        />
      )}
      {open === "unlink" && (
        <ConfirmDialog
          title={t("login.unlinkTitle", { name })}
          text={t("login.unlinkText")}
          confirm={t("login.unlink")}
          red
          onConfirm={() => unlinkAccount(name)}
          done={t("login.unlinked")}
          onClose={close}
        />
      )}
      {open === "totp" && (
        <ConfirmDialog
          title={t("totp.resetTitle", { name })}
          text={t("totp.resetText")}
          confirm={t("totp.reset")}
          red
          onConfirm={() => resetTotp(name)}
          done={t("totp.disabled")}
          onClose={close}
        />
      )}
      {open === "end" && (
        <ConfirmDialog
          title={isOwn ? t("login.endOwnTitle") : t("login.endTitle", { name })}
          text={isOwn ? t("login.endOwnText") : t("login.endText")}
          confirm={t("login.end")}
          red
          onConfirm={() => endSessions(name)}
          done={t("login.ended")}
          onClose={close}
        />
      )}
    </div>
  );
}

interface InviteProps {
  name: string;
  hasPassword: boolean;
  onClose: () => void;
}

/** Creates an invitation, then shows its link once. */
export function InviteDialog({ name, hasPassword, onClose }: InviteProps) {
  const { t } = useTranslation();
  const [link, setLink] = useState<string | null>(null);
  const isCreated = useRef(false);
  const [hours, setHours] = useState(String(INVITATION_HOURS_DEFAULT));
  const [reset, setReset] = useState(false);
  if (link !== null) return <LinkDialog name={name} link={link} onClose={onClose} />;
  const create = async () => {
    const { secret } = await inviteAccount(name, { expires_in: `${hours}h`, reset });
    isCreated.current = true;
    setLink(invitationLink(location.origin, secret));
  };
  return (
    <ConfirmDialog
      title={hasPassword ? t("login.resetTitle", { name }) : t("login.inviteTitle", { name })}
      text={hasPassword ? t("login.resetText") : t("login.inviteText")}
      confirm={t("login.create")}
      onConfirm={create}
      // The form closes itself after the creation, which must not close the dialog with the link.
      onClose={() => isCreated.current || onClose()}
    >
      <div className={style.form}>
        <Select
          label={t("login.expires")}
          value={hours}
          onChange={(value) => value && setHours(value)}
          data={INVITATION_HOURS.map((count) => ({
            value: String(count),
            label: count < 24 ? t("login.hours", { count }) : t("token.days", { count: count / 24 }),
          }))}
          allowDeselect={false}
        />
        {hasPassword && (
          <Checkbox
            label={t("login.atOnce")}
            description={t("login.atOnceText")}
            checked={reset}
            onChange={(event) => setReset(event.currentTarget.checked)}
          />
        )}
      </div>
    </ConfirmDialog>
  );
}

/** Shows the link of a new invitation. Only its button closes it, so that the link is not lost by accident. */
function LinkDialog({ name, link, onClose }: { name: string; link: string; onClose: () => void }) {
  const { t } = useTranslation();
  return (
    <Modal
      opened
      onClose={onClose}
      title={t("login.linkTitle", { name })}
      size={520}
      withCloseButton={false}
      closeOnClickOutside={false}
      closeOnEscape={false}
    >
      <p className={style.warning} role="alert">
        <TriangleAlert size={15} aria-hidden /> {t("login.linkText")}
      </p>
      <div data-testid="link">
        <Snippet text={link} />
      </div>
      <Group justify="flex-end" mt="md">
        <Button onClick={onClose} data-autofocus>
          {t("token.done")}
        </Button>
      </Group>
    </Modal>
  );
}
