/** The frame of the pages before the login: a card, and the choice of the language. */

import type { ReactNode } from "react";

import bell from "../assets/bell.svg";
import { setPreferences, usePreferences } from "../lib/preferences";
import style from "./EntryPage.module.css";

export function EntryPage({ title, children }: { title: string; children: ReactNode }) {
  const { language } = usePreferences();
  return (
    <main className={style.page}>
      <div className={style.card}>
        <img src={bell} width={40} height={40} alt="" />
        <h1>{title}</h1>
        {children}
      </div>
      <button
        type="button"
        className={style.language}
        onClick={() => setPreferences({ language: language === "en" ? "zh-CN" : "en" })}
      >
        {language === "en" ? "中文" : "English"}
      </button>
    </main>
  );
}
