/** Approvals of a run: the message, and the actions. */

import { Button } from "@mantine/core";
import { Check, ThumbsDown, UserCheck } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import type { RunStep, WorkflowRun } from "../../api/schema";
import { approveStep, rejectStep } from "../../api/workflows";
import { isRunEnded, approvalMessage } from "../../lib/runs";
import { Allowed } from "../../ui/Allowed";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { RelativeTime } from "../../ui/Time";
import banner from "../schedule/schedule.module.css";
import style from "./run.module.css";

export function waitsForApproval({ kind, status }: RunStep): boolean {
  return kind === "approval" && status === "waiting";
}

/** Pending approvals, at the top of the run's page. */
export function PendingApprovals({ run, steps }: { run: WorkflowRun; steps: readonly RunStep[] }) {
  const { t } = useTranslation();
  if (isRunEnded(run.status)) return null;
  return steps.filter(waitsForApproval).map((step) => {
    const question = approvalMessage(run, step);
    return (
      <section
        key={step.name}
        className={`${banner.banner} ${style.approval}`}
        aria-label={t("step.approvalOf", { name: step.name })}
      >
        <UserCheck size={16} aria-hidden />
        <div>
          <strong>{t("step.approvalOf", { name: step.name })}</strong>{" "}
          <span className="quiet">
            <RelativeTime at={step.started_at} />
          </span>
          {question && <p>{question}</p>}
        </div>
        <ApprovalActions run={run} step={step} />
      </section>
    );
  });
}

/** Approve and reject, each with a confirmation that shows the message. */
export function ApprovalActions({ run, step }: { run: WorkflowRun; step: RunStep }) {
  return (
    <Allowed verb="operate" on="runs" in={run.namespace}>
      <ApprovalButtons run={run} step={step} />
    </Allowed>
  );
}

function ApprovalButtons({ run, step }: { run: WorkflowRun; step: RunStep }) {
  const { t } = useTranslation();
  const [open, setOpen] = useState<"approve" | "reject" | null>(null);
  const { name } = step;
  const question = approvalMessage(run, step);
  const close = () => setOpen(null);
  const shared = { field: { label: t("workflow.note") }, onClose: close };
  const quote = question && <q className={style.question}>{question}</q>;
  return (
    <div className={style.answers}>
      <Button leftSection={<Check size={14} />} onClick={() => setOpen("approve")}>
        {t("step.approve")}
      </Button>
      <Button variant="default" leftSection={<ThumbsDown size={13} />} onClick={() => setOpen("reject")}>
        {t("step.reject")}
      </Button>
      {open === "approve" && (
        <ConfirmDialog
          {...shared}
          title={t("step.approveTitle", { name })}
          text={t("step.approveText")}
          confirm={t("step.approve")}
          onConfirm={(note) => approveStep(run.id, name, note)}
          done={t("step.approved", { name })}
        >
          {quote}
        </ConfirmDialog>
      )}
      {open === "reject" && (
        <ConfirmDialog
          {...shared}
          title={t("step.rejectTitle", { name })}
          text={t("step.rejectText")}
          confirm={t("step.reject")}
          red
          onConfirm={(note) => rejectStep(run.id, name, note)}
          done={t("step.rejected", { name })}
        >
          {quote}
        </ConfirmDialog>
      )}
    </div>
  );
}
