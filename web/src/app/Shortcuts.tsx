/** Global keyboard shortcuts, and the dialog that lists them. */

import { Kbd, Modal } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";

import { meQuery } from "../api/queries";
import { scopedSearch } from "../lib/namespaces";
import { preferences } from "../lib/preferences";
import { pageDenial } from "../lib/rights";
import { togglePalette } from "./Palette";
import style from "./Shortcuts.module.css";

const PAGE_KEYS: Record<
  string,
  | "/"
  | "/jobs"
  | "/alerts"
  | "/schedules"
  | "/calendars"
  | "/workflows"
  | "/runs"
  | "/workers"
  | "/servers"
  | "/queues"
  | "/artifacts"
  | "/events"
  | "/settings"
> = {
  o: "/",
  j: "/jobs",
  l: "/alerts",
  t: "/schedules",
  k: "/calendars",
  f: "/workflows",
  r: "/runs",
  w: "/workers",
  v: "/servers",
  q: "/queues",
  a: "/artifacts",
  e: "/events",
  s: "/settings",
};

/** Timeout for the second key after `g`. */
const CHORD_TIMEOUT_MS = 1_200;

export function isTyping(target: EventTarget | null): boolean {
  const fields = "input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable=true]";
  return target instanceof HTMLElement && target.closest(fields) !== null;
}

export function Shortcuts() {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const client = useQueryClient();
  const [open, setOpen] = useState(false);

  useEffect(() => {
    let chordUntil = 0;
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        togglePalette();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (document.querySelector('[role="dialog"]')) return;
      const to = Date.now() < chordUntil ? PAGE_KEYS[event.key] : undefined;
      chordUntil = event.key === "g" ? Date.now() + CHORD_TIMEOUT_MS : 0;
      const isOpen = (path: string) => pageDenial(client.getQueryData(meQuery.queryKey), path) === null;
      if (to && isOpen(to)) void navigate({ to, search: scopedSearch(to, preferences().namespace) });
      else if (event.key === "c" && isOpen("/submit")) void navigate({ to: "/submit" });
      else if (event.key === "?") setOpen(true);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [navigate, client]);

  const rows: Array<[string, string[]]> = [
    [t("shortcuts.palette"), ["Ctrl", "K"]],
    [t("shortcuts.submit"), ["c"]],
    [t("shortcuts.filter"), ["/"]],
    [t("shortcuts.move"), ["j", "k"]],
    [t("shortcuts.open"), ["Enter"]],
    [t("shortcuts.select"), ["x"]],
    [t("shortcuts.log"), ["f"]],
    [t("nav.overview"), ["g", "o"]],
    [t("nav.jobs"), ["g", "j"]],
    [t("nav.alerts"), ["g", "l"]],
    [t("nav.schedules"), ["g", "t"]],
    [t("nav.calendars"), ["g", "k"]],
    [t("nav.workflows"), ["g", "f"]],
    [t("nav.runs"), ["g", "r"]],
    [t("nav.workers"), ["g", "w"]],
    [t("nav.servers"), ["g", "v"]],
    [t("nav.queues"), ["g", "q"]],
    [t("nav.artifacts"), ["g", "a"]],
    [t("nav.events"), ["g", "e"]],
    [t("nav.settings"), ["g", "s"]],
    [t("shortcuts.help"), ["?"]],
  ];
  return (
    <Modal opened={open} onClose={() => setOpen(false)} title={t("shortcuts.title")} size={400}>
      <dl className={style.list}>
        {rows.map(([name, keys]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              {keys.map((key) => (
                <Kbd key={key} size="xs">
                  {key}
                </Kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Modal>
  );
}
