/** Languages of the dashboard. Keys are typed by the English file; `languages.test.ts` compares both files. */

import i18next from "i18next";
import { initReactI18next } from "react-i18next";

import { onPreferencesChange, preferences } from "../lib/preferences";
import en from "./en.json";
import zh from "./zh-CN.json";

declare module "i18next" {
  interface CustomTypeOptions {
    resources: { translation: typeof en };
  }
}

void i18next.use(initReactI18next).init({
  lng: preferences().language,
  fallbackLng: "en",
  resources: { en: { translation: en }, "zh-CN": { translation: zh } },
  // React escapes rendered texts.
  interpolation: { escapeValue: false },
  initAsync: false,
});

document.documentElement.lang = preferences().language;
onPreferencesChange(() => {
  const { language } = preferences();
  document.documentElement.lang = language;
  if (i18next.language !== language) void i18next.changeLanguage(language);
});

export default i18next;
