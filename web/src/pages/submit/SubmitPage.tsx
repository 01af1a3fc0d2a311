/** Job submission: a form and a file side by side. */

import { Button, Menu } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { ChevronDown, Copy, Play } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";

import { checkSpec, submitJob } from "../../api/actions";
import { jobQuery } from "../../api/queries";
import type { JobSpec } from "../../api/schema";
import { toSubmitCommand, toCurlCommand } from "../../lib/submitCommands";
import { forResubmission, toYaml } from "../../lib/spec";
import { usePageTitle } from "../../lib/title";
import { runAction, copyAndNotify } from "../../ui/notify";
import editor from "../../ui/editor/editor.module.css";
import { FileCard } from "../../ui/editor/FileCard";
import { useDraft } from "../../ui/editor/useDraft";
import { Card, Page, ErrorBox } from "../../ui/kit";
import { useRequestKey } from "../../ui/useRequestKey";
import { useSample } from "../../ui/useSample";
import { SpecForm } from "./SpecForm";

const route = getRouteApi("/submit");

const SAMPLE = `name: hello
run:
  process:
    script: |
      for step in 1 2 3; do
        echo "step $step"
        sleep 1
      done
`;

export function SubmitPage() {
  const { t } = useTranslation();
  const { from } = route.useSearch();
  usePageTitle(t("nav.submit"));
  const source = useQuery({ ...jobQuery(from ?? ""), enabled: Boolean(from) });
  const sample = useSample(SAMPLE, "create", "jobs");
  if (from && source.error) {
    return (
      <Page title={t("nav.submit")}>
        <ErrorBox error={source.error} />
      </Page>
    );
  }
  if (from && !source.data) return <Page title={t("nav.submit")}>{null}</Page>;
  const start = source.data?.spec ? toYaml(forResubmission(source.data.spec)) : sample;
  return <JobEditor key={from} start={start} />;
}

function JobEditor({ start }: { start: string }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [busy, setBusy] = useState(false);
  // One idempotency key per text, so that a second click does not submit a second job.
  const requestKey = useRequestKey();
  const draft = useDraft<JobSpec>(start, checkSpec);
  const { spec, apiError } = draft;

  const submit = async () => {
    if (!spec) return;
    setBusy(true);
    const id = await runAction(() => submitJob(spec, requestKey(draft.text)));
    setBusy(false);
    if (id) void navigate({ to: "/jobs/$id", params: { id } });
  };

  return (
    <Page
      title={t("nav.submit")}
      actions={
        <>
          <Menu>
            <Menu.Target>
              <Button
                variant="default"
                leftSection={<Copy size={13} />}
                rightSection={<ChevronDown size={13} />}
                disabled={!spec}
              >
                {t("submit.copyAs")}
              </Button>
            </Menu.Target>
            <Menu.Dropdown>
              <Menu.Item onClick={() => spec && void copyAndNotify(toSubmitCommand(spec))}>
                {t("submit.cli")}
              </Menu.Item>
              <Menu.Item onClick={() => spec && void copyAndNotify(toCurlCommand(spec, location.origin))}>
                curl
              </Menu.Item>
            </Menu.Dropdown>
          </Menu>
          <Button
            leftSection={<Play size={13} />}
            onClick={() => void submit()}
            loading={busy}
            disabled={!draft.isValid}
            data-testid="submit"
          >
            {t("submit.submit")}
          </Button>
        </>
      }
    >
      <div className={editor.columns}>
        <Card title={t("submit.form")} className={editor.card}>
          {spec ? (
            <SpecForm spec={spec} set={draft.set} fields={apiError?.fields ?? []} />
          ) : (
            <p className="quiet">{t("submit.brokenText")}</p>
          )}
        </Card>
        <FileCard title={t("submit.file")} schema="JobSpec" draft={draft} validText={t("submit.fine")} />
      </div>
    </Page>
  );
}
