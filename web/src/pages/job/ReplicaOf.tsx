/** The service that a job is a replica of, in one line. */

import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { Trans } from "react-i18next";

import type { ReplicaOrigin } from "../../api/schema";

interface Props {
  replica: ReplicaOrigin;
  /** Namespace of the job, which is that of the service. */
  namespace: string;
}

export function ReplicaOf({ replica: { name, replica, revision }, namespace }: Props) {
  return (
    <span data-testid="replica-of">
      <Trans
        i18nKey="job.replica.sentence"
        values={{ name, replica, revision }}
        components={{ a: <ServiceLink name={name} namespace={namespace} /> }}
      />
    </span>
  );
}

export function ServiceLink(props: { name: string; namespace: string; children?: ReactNode }) {
  const { name, namespace, children } = props;
  return (
    <Link to="/services/$namespace/$name" params={{ namespace, name }}>
      {children}
    </Link>
  );
}
