/** The artifacts that a job downloads before it runs and stores afterwards. */

import { Link } from "@tanstack/react-router";
import { ArrowRight, FolderOpen } from "lucide-react";
import { useTranslation } from "react-i18next";

import type { JobSpec } from "../../api/schema";
import { EmptyState } from "../../ui/kit";
import style from "./job.module.css";

export function Artifacts({ spec }: { spec: JobSpec }) {
  const { t } = useTranslation();
  const inputs = spec.inputs ?? [];
  const outputs = spec.outputs ?? [];
  if (inputs.length + outputs.length === 0) {
    return (
      <EmptyState icon={FolderOpen} title={t("job.files.none")}>
        {t("job.files.noneText")}
      </EmptyState>
    );
  }
  const name = (artifact: string) => artifact.split("@")[0] ?? artifact;
  const artifact = (text: string) => (
    <Link to="/artifacts" search={{ name: name(text), namespace: spec.namespace }} className={style.whyLink}>
      {text}
    </Link>
  );
  return (
    <div className={style.files}>
      {inputs.length > 0 && <h2>{t("job.files.inputs")}</h2>}
      {inputs.map((file) => (
        <p key={file.path}>
          {artifact(file.artifact)} <ArrowRight size={13} aria-hidden /> <code>{file.path}</code>
        </p>
      ))}
      {outputs.length > 0 && <h2>{t("job.files.outputs")}</h2>}
      {outputs.map((file) => (
        <p key={file.path}>
          <code>{file.path}</code> <ArrowRight size={13} aria-hidden /> {artifact(file.artifact)}
          {file.optional && <span className="quiet"> {t("common.optional")}</span>}
        </p>
      ))}
    </div>
  );
}
