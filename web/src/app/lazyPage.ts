/**
 * Pages that are loaded when they are first shown.
 *
 * Where a page cannot be loaded it throws {@link NotLoaded}, which {@link ../app/Failed} shows inside the
 * frame. While the browser is idle all pages are fetched ahead, so that an outage or an upgrade of the server
 * rarely meets a page that is not there yet.
 */

import { createElement, type FunctionComponent, use } from "react";
import type { AsyncRouteComponent } from "@tanstack/react-router";

/** The code of a page could not be loaded. */
export class NotLoaded extends Error {}

type Load = () => Promise<FunctionComponent>;

const pages = new Set<{ ahead: () => Promise<void>; forget: () => void }>();

/** The component `name` of a module; the router loads it before it shows the page. */
export function lazyPage<Name extends string>(
  load: () => Promise<Record<Name, FunctionComponent>>,
  name: Name,
): AsyncRouteComponent<object> {
  let found: FunctionComponent | null = null;
  let loading: Promise<FunctionComponent> | null = null;
  const fetch: Load = () =>
    load().then(
      (module) => (found = module[name]),
      (error: unknown) => {
        throw new NotLoaded(error instanceof Error ? error.message : String(error));
      },
    );
  // What fails ahead of its time is tried again when it is needed.
  const preload = () =>
    found
      ? Promise.resolve()
      : fetch().then(
          () => undefined,
          () => undefined,
        );
  const Page = () => createElement(found ?? use((loading ??= fetch())));
  pages.add({ ahead: preload, forget: () => (loading = null) });
  return Object.assign(Page, { preload });
}

/** Pages that could not be loaded are tried again when they are next shown. */
export function forgetFailures(): void {
  for (const { forget } of pages) forget();
}

let isAhead = false;

/** Loads all pages, one whenever the browser has nothing else to do; does so once. */
export function loadAhead(): void {
  if (isAhead) return;
  isAhead = true;
  const left = [...pages];
  const next = () => {
    const page = left.shift();
    if (page) void page.ahead().then(whenIdle);
  };
  const whenIdle = () =>
    typeof requestIdleCallback === "undefined" ? setTimeout(next, 1_000) : requestIdleCallback(next);
  whenIdle();
}
