/**
 * Notifies the user when a job or run ends. The user asks for it on the page of the job or run.
 *
 * It needs no requests of its own: the end is in the live feed, which stays open while the tab is hidden and something
 * is watched. If the browser allows no notifications, the title of the tab flashes. The watched jobs and runs belong
 * to this tab, and are kept when it is reloaded.
 */

import { useSyncExternalStore } from "react";

import { feed } from "../api/feed";
import { jobQuery, queryClient } from "../api/queries";
import { holdFeed } from "../api/streams";
import { runQuery } from "../api/workflows";
import i18n from "../i18n";
import { isRunEnded } from "../lib/runs";
import { isLive } from "../lib/statuses";
import { flashTitle } from "../lib/title";
import { endingsIn, type Ending, type EndStatus, type Watched } from "../lib/watches";
import { notify } from "../ui/notify";
import { router } from "./router";

const KEY = "belfry.watched";

let watched: ReadonlyMap<string, Watched> = read();
let releaseFeed: (() => void) | null = null;
const listeners = new Set<() => void>();

function read(): Map<string, Watched> {
  try {
    const stored = JSON.parse(sessionStorage.getItem(KEY) ?? "[]") as Watched[];
    return new Map(stored.map((each) => [each.id, each]));
  } catch {
    return new Map();
  }
}

function write(next: ReadonlyMap<string, Watched>): void {
  watched = next;
  sessionStorage.setItem(KEY, JSON.stringify([...next.values()]));
  holdFeedIfNeeded();
  for (const listener of listeners) listener();
}

function holdFeedIfNeeded(): void {
  if (watched.size > 0) releaseFeed ??= holdFeed();
  else {
    releaseFeed?.();
    releaseFeed = null;
  }
}

export function useIsWatched(id: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => watched.has(id),
  );
}

/** Watches a job or run. Must be called by a click: the browser may ask the user for the permission. */
export async function watchEnd(target: Watched): Promise<void> {
  write(new Map(watched).set(target.id, target));
  const isAllowed = (await requestPermission()) === "granted";
  notify(isAllowed ? i18n.t("watch.on") : i18n.t("watch.onTitle"));
  // It may have ended just before.
  await check(target);
}

export function unwatchEnd(id: string): void {
  const next = new Map(watched);
  if (next.delete(id)) write(next);
}

/** Returns the permission; a browser has no notifications on a page without TLS, except on this machine. */
async function requestPermission(): Promise<NotificationPermission> {
  if (typeof Notification === "undefined") return "denied";
  return Notification.permission === "default" ? Notification.requestPermission() : Notification.permission;
}

/** Reports the ends of watched jobs and runs until the returned function is called. */
export function startEndNotifications(): () => void {
  holdFeedIfNeeded();
  const onReset = () => void Promise.all([...watched.values()].map(check));
  const stops = [feed.onBatch((batch) => endingsIn(batch, watched).forEach(report)), feed.onReset(onReset)];
  return () => stops.forEach((stop) => stop());
}

/** Forgets the watched jobs and runs, which another user must not see. */
export function clearWatched(): void {
  write(new Map());
}

/** Reads the status of a watched job or run: its end may not be among the received events. */
async function check(target: Watched): Promise<void> {
  try {
    const status = await readEnd(target);
    if (status && watched.has(target.id)) report({ watched: target, status });
  } catch {
    // Deleted by retention, or unreachable: the feed reports the next connection.
  }
}

async function readEnd({ kind, id }: Watched): Promise<EndStatus | null> {
  const fresh = { staleTime: 0 };
  if (kind === "jobs") {
    const { status } = await queryClient.fetchQuery({ ...jobQuery(id), ...fresh });
    return isLive(status) ? null : (status as EndStatus);
  }
  const { status } = await queryClient.fetchQuery({ ...runQuery(id), ...fresh });
  return isRunEnded(status) ? (status as EndStatus) : null;
}

function report({ watched: { kind, id, name }, status }: Ending): void {
  unwatchEnd(id);
  const title = `${name}: ${i18n.t(`status.${status}`)}`;
  const open = () =>
    void router.navigate(
      kind === "jobs" ? { to: "/jobs/$id", params: { id } } : { to: "/runs/$id", params: { id } },
    );
  notify(title, { label: i18n.t("watch.open"), run: open });
  const notification = createNotification(title, id);
  if (!notification) return flashTitle(title);
  notification.onclick = () => {
    window.focus();
    open();
    notification.close();
  };
}

/** Returns a shown notification; null if the browser allows none. */
function createNotification(title: string, tag: string): Notification | null {
  if (typeof Notification === "undefined" || Notification.permission !== "granted") return null;
  try {
    return new Notification(title, { body: "Belfry", tag });
  } catch {
    // Chrome on Android permits only service workers to create notifications.
    return null;
  }
}
