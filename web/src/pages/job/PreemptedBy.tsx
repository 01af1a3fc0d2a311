/** The job that preempted an execution. */

import { Link } from "@tanstack/react-router";
import { Trans } from "react-i18next";

export function PreemptedBy({ job }: { job: string }) {
  return (
    <Trans
      i18nKey="job.preemptedBy"
      values={{ job: `…${job.slice(-8)}` }}
      components={{ a: <Link to="/jobs/$id" params={{ id: job }} className="mono" title={job} /> }}
    />
  );
}
