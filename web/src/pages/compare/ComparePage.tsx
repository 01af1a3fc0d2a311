/** Two jobs, executions or runs side by side. */

import { Button } from "@mantine/core";
import { getRouteApi, Link } from "@tanstack/react-router";
import { ArrowLeftRight, GitCompareArrows } from "lucide-react";
import { useTranslation } from "react-i18next";

import { usePageTitle } from "../../lib/title";
import { EmptyState, Page } from "../../ui/kit";
import { JobComparison } from "./JobComparison";
import { RunComparison } from "./RunComparison";

const route = getRouteApi("/compare");

export function ComparePage() {
  const { t } = useTranslation();
  usePageTitle(t("compare.title"));
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { a, b } = search;
  const change = (part: typeof search) => void navigate({ search: { ...search, ...part }, replace: true });
  const kind = kindOf(a) === kindOf(b) ? kindOf(a) : null;
  const swap = () => change({ a: b, b: a, execution_a: search.execution_b, execution_b: search.execution_a });
  return (
    <Page
      title={t("compare.title")}
      actions={
        kind && (
          <Button variant="default" leftSection={<ArrowLeftRight size={14} />} onClick={swap}>
            {t("compare.swap")}
          </Button>
        )
      }
    >
      {a && b && kind === "job" && <JobComparison a={a} b={b} search={search} onChange={change} />}
      {a && b && kind === "run" && <RunComparison a={a} b={b} search={search} onChange={change} />}
      {!kind && (
        <EmptyState
          icon={GitCompareArrows}
          title={t("compare.none")}
          action={
            <Button variant="default" renderRoot={(props) => <Link to="/jobs" {...props} />}>
              {t("nav.jobs")}
            </Button>
          }
        >
          {t("compare.noneText")}
        </EmptyState>
      )}
    </Page>
  );
}

function kindOf(id: string | undefined): "job" | "run" | null {
  const kind = /^(job|run)_/.exec(id ?? "")?.[1];
  return kind === "job" || kind === "run" ? kind : null;
}
