/** Members of a Raft cluster, also those whose server does not run. Empty without the Raft store. */

import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Crown, Eye, type LucideIcon, Trash2, Unplug, UserPlus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { removeClusterMember } from "../../api/actions";
import { clusterMembersQuery } from "../../api/queries";
import type { ClusterMember, JobStatus } from "../../api/schema";
import { formatBytes, formatDuration, parseBytes, parseDuration } from "../../lib/quantities";
import { Allowed } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { ToneBadge } from "../../ui/Status";
import style from "./servers.module.css";

export function Members() {
  const { t } = useTranslation();
  const { data } = useQuery(clusterMembersQuery);
  const members = data?.items ?? [];
  if (members.length === 0) return null;
  return (
    <section className={style.members} aria-label={t("member.title")}>
      <h2>{t("member.title")}</h2>
      <p className={style.meta}>{t("member.text", { count: majority(members) })}</p>
      <ul className={style.list}>
        {members.map((member) => (
          <MemberRow key={member.id} member={member} />
        ))}
      </ul>
    </section>
  );
}

/** Number of voters that must run. */
function majority(members: readonly ClusterMember[]): number {
  return Math.floor(members.filter((member) => member.role !== "learner").length / 2) + 1;
}

const ROLES: Record<ClusterMember["role"], [JobStatus, LucideIcon]> = {
  leader: ["succeeded", Crown],
  voter: ["ready", Eye],
  learner: ["waiting", UserPlus],
};

function MemberRow({ member }: { member: ClusterMember }) {
  const { t } = useTranslation();
  const [tone, icon] = ROLES[member.role];
  const contact = parseDuration(member.last_contact ?? "");
  return (
    <li className={style.server} data-testid={`member-${member.name}`}>
      <div className={style.who}>
        <div className={style.whoName}>
          <strong className={style.name}>{member.name}</strong>
          <ToneBadge tone={tone} icon={icon} word={t(`member.role.${member.role}`)} />
          {!member.running && <ToneBadge tone="failed" icon={Unplug} word={t("member.down")} />}
        </div>
        <p className={style.meta}>
          <span className="num">{t("member.missing", { count: member.missing_entries })}</span>
          {member.copying != null && (
            <span className="num">
              {t("member.copying", {
                sent: formatBytes(parseBytes(member.copying.sent)),
                total: formatBytes(parseBytes(member.copying.total)),
              })}
            </span>
          )}
          {!member.running && contact != null && (
            <span>{t("member.contact", { time: formatDuration(contact) })}</span>
          )}
          <code>{member.address}</code>
          <code>{member.id}</code>
        </p>
      </div>
      {!member.running && (
        <Allowed verb="operate" on="server">
          <Remove member={member} />
        </Allowed>
      )}
    </li>
  );
}

function Remove({ member }: { member: ClusterMember }) {
  const { t } = useTranslation();
  const [isAsking, setAsking] = useState(false);
  const { id, name } = member;
  return (
    <>
      <Button variant="default" leftSection={<Trash2 size={14} />} onClick={() => setAsking(true)}>
        {t("member.remove")}
      </Button>
      {isAsking && (
        <ConfirmDialog
          title={t("member.removeTitle", { name })}
          text={t("member.removeText")}
          confirm={t("member.remove")}
          red
          onConfirm={() => removeClusterMember(id)}
          done={t("member.removed", { name })}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}
