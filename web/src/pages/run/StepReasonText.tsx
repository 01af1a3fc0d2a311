/** Text of a step's waiting reason. */

import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";

import type { StepReason } from "../../api/schema";
import { stepReasonText } from "../../lib/serverMessages";
import { StepBadge } from "../../ui/Status";
import { WaitingReasons } from "../job/WaitingReasons";
import { useTimeWithDistance } from "../job/timeWithDistance";
import style from "./run.module.css";

export function StepReasonText({ reason }: { reason: StepReason }): ReactNode {
  const { t } = useTranslation();
  const until = useTimeWithDistance();
  const untilText = (at: string | null | undefined) =>
    at ? ` ${t("stepWhy.until", { until: until(at) })}` : "";
  switch (reason.reason) {
    case "run_waiting":
      return <p>{t("stepWhy.run_waiting", reason)}</p>;
    case "run_retrying":
      return (
        <p>
          {reason.at
            ? t("stepWhy.run_retrying", { ...reason, at: until(reason.at) })
            : t("stepWhy.run_retrying_paused", reason)}
        </p>
      );
    case "later_section":
      return (
        <p>
          {t("stepWhy.later_section", {
            section: t(`section.${reason.section}`),
            current_section: t(`section.${reason.current_section}`),
          })}
        </p>
      );
    case "paused":
      return <p>{t("stepWhy.paused", { by: reason.by, since: until(reason.since) })}</p>;
    case "upstream":
      return (
        <>
          <p>{t("stepWhy.upstream", { rule: t(`join.${reason.join}`) })}</p>
          <ul className={style.needs}>
            {reason.needs.slice(0, 8).map((need) => (
              <li key={need.step}>
                {need.step} <StepBadge status={need.status} plain />
              </li>
            ))}
            {reason.needs.length + reason.more > 8 && (
              <li className="quiet">{t("step.more", { count: reason.needs.length + reason.more - 8 })}</li>
            )}
          </ul>
        </>
      );
    case "parallel_steps":
      return <p>{t("stepWhy.parallel_steps", reason)}</p>;
    case "next_batch":
      return <p>{t("stepWhy.next_batch")}</p>;
    case "job":
      return (
        <>
          <p>{t("stepWhy.job")}</p>
          <WaitingReasons id={reason.job} />
        </>
      );
    case "called_run":
      return (
        <p>
          {t("stepWhy.called_run")}{" "}
          <Link to="/runs/$id" params={{ id: reason.run }} className="mono">
            …{reason.run.slice(-8)}
          </Link>
        </p>
      );
    case "elements":
      return <p>{t("stepWhy.elements", reason)}</p>;
    case "adding_steps":
      return (
        <p>
          {t("stepWhy.adding_steps", {
            names: reason.steps.map(({ step }) => step).join(t("common.listSeparator")),
          })}
        </p>
      );
    case "lost_workers": {
      const names = reason.workers.slice(0, 8);
      const hidden = reason.workers.length + reason.more - names.length;
      const shown = hidden > 0 ? [...names, t("step.more", { count: hidden })] : names;
      return <p>{t("stepWhy.lost_workers", { names: shown.join(t("common.listSeparator")) })}</p>;
    }
    case "approval":
      return (
        <p>
          {reason.approvers.length > 0
            ? t("stepWhy.approvalOf", { names: reason.approvers.join(t("common.listSeparator")) })
            : t("stepWhy.approval")}
          {untilText(reason.until)}
        </p>
      );
    case "event":
      return (
        <p>
          {t("stepWhy.event", { event: reason.event })}
          {untilText(reason.until)}
        </p>
      );
    case "time":
      return (
        <p>{reason.until ? t("stepWhy.time", { until: until(reason.until) }) : t("stepWhy.someTime")}</p>
      );
    case "stopping":
      return <p>{t("stepWhy.stopping", { final_status: t(`stepStatus.${reason.final_status}`) })}</p>;
    case "ended":
      return <p>{stepReasonText(reason, t)}</p>;
  }
}
