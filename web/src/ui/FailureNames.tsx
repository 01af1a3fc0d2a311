/** The newest job name of a failure group, and the number of its other names. */

import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";

import type { FailureGroup } from "../api/schema";
import { namedSearch } from "../pages/jobName/search";

export function FailureNames(props: { group: FailureGroup; hasNamespace?: boolean; className?: string }) {
  const { t } = useTranslation();
  const { group, hasNamespace, className } = props;
  const [newest, ...others] = group.names;
  if (!newest) return null;
  const prefix = hasNamespace && group.namespace !== "default" ? `${group.namespace}/` : "";
  return (
    <span className={className}>
      {newest.name ? (
        <Link
          to="/jobs/named/$name"
          params={{ name: newest.name }}
          search={namedSearch(group.namespace, "24h")}
          className="clip"
        >
          {prefix + newest.name}
        </Link>
      ) : (
        <span className="clip">{prefix + t("failureGroup.otherNames")}</span>
      )}
      {others.length > 0 && (
        <span className="quiet num" title={others.map(({ name }) => name).join("\n")}>
          {`+${others.length}${group.unlisted_names > 0 ? " …" : ""}`}
        </span>
      )}
    </span>
  );
}
