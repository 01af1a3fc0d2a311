/** Read-only YAML with a copy button; only keys are highlighted. */

import { useTranslation } from "react-i18next";

import style from "./Code.module.css";
import { CopyButton } from "./kit";

export function CodeHighlight({ text }: { text: string }) {
  const { t } = useTranslation();
  return (
    <div className={style.code}>
      <div className={style.copy}>
        <CopyButton text={text} label={t("common.copy")} />
      </div>
      <pre tabIndex={0}>
        {text.split("\n").map((line, i) => {
          const [, indent = "", key, rest = ""] = /^(\s*(?:- )*)([\w.-]+:)(.*)$/.exec(line) ?? [];
          return (
            <span key={i}>
              {key ? (
                <>
                  {indent}
                  <b>{key}</b>
                  {rest}
                </>
              ) : (
                line
              )}
              {"\n"}
            </span>
          );
        })}
      </pre>
    </div>
  );
}
