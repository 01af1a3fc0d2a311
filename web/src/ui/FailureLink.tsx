/** A link to a failure group: its newest message in one line. */

import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { FailureGroup } from "../api/schema";
import { failureText } from "../lib/serverMessages";

/** Returns the search of the page of a group; the namespace `default` is omitted. */
function groupSearch({ namespace }: FailureGroup): { namespace?: string } {
  return { namespace: namespace === "default" ? undefined : namespace };
}

interface FailureLinkProps {
  group: FailureGroup;
  className?: string;
  /** Another text than the message. */
  text?: string;
}

export function FailureLink({ group, className, text }: FailureLinkProps) {
  const { t } = useTranslation();
  const { message } = failureText(group, t);
  return (
    <Link
      to="/failures/$id"
      params={{ id: group.id }}
      search={groupSearch(group)}
      className={className}
      title={message}
    >
      {text ?? message}
    </Link>
  );
}
