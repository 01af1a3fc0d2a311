/**
 * Pages and parts of pages that are loaded when they are first shown.
 *
 * A failed load throws {@link ChunkLoadError}. {@link ../app/ErrorPage} shows it in place of a page, and the boundary
 * around a part in place of the part. All pages and parts are preloaded while the browser is idle, so that an outage
 * or an upgrade of the server rarely meets a page that is not loaded yet.
 */

import { createElement, type FunctionComponent, use } from "react";
import type { AsyncRouteComponent } from "@tanstack/react-router";

/** Failed download of the code of a page or part. */
export class ChunkLoadError extends Error {}

interface Lazy<P> {
  Component: FunctionComponent<P>;
  /** Loads the code. A failure is ignored; the code is loaded again when it is needed. */
  preload: () => Promise<void>;
  reset: () => void;
}

/** Pages and parts in the order of their declaration: the parts of a page are added once the page is loaded. */
const registry = new Set<Pick<Lazy<object>, "preload" | "reset">>();

function createLazy<P extends object>(load: () => Promise<FunctionComponent<P>>): Lazy<P> {
  let loaded: FunctionComponent<P> | null = null;
  let loading: Promise<FunctionComponent<P>> | null = null;
  const fetch = () =>
    load().then(
      (component) => (loaded = component),
      (error: unknown) => {
        throw new ChunkLoadError(error instanceof Error ? error.message : String(error));
      },
    );
  const preload = () =>
    loaded
      ? Promise.resolve()
      : fetch().then(
          () => undefined,
          () => undefined,
        );
  const Component = (props: P) => createElement(loaded ?? use((loading ??= fetch())), props);
  const lazy = { Component, preload, reset: () => (loading = null) };
  registry.add(lazy);
  return lazy;
}

/** Returns the component `name` of a module as a lazy page; the router loads it before it shows the page. */
export function lazyPage<Name extends string>(
  load: () => Promise<Record<Name, FunctionComponent>>,
  name: Name,
): AsyncRouteComponent<object> {
  const { Component, preload } = createLazy<object>(() => load().then((module) => module[name]));
  return Object.assign(Component, { preload });
}

/**
 * Returns the default component of a module as a lazy part of a page. It needs a `Suspense` and an error boundary
 * around it.
 */
export function lazyPart<P extends object>(
  load: () => Promise<{ default: FunctionComponent<P> }>,
): FunctionComponent<P> {
  return createLazy<P>(() => load().then((module) => module.default)).Component;
}

/** Forgets failed loads, so that the pages and parts are loaded again when they are next shown. */
export function resetFailedLoads(): void {
  for (const { reset } of registry) reset();
}

let hasPreloaded = false;

/** Preloads all pages and their parts, one at a time while the browser is idle. Further calls have no effect. */
export function preloadPages(): void {
  if (hasPreloaded) return;
  hasPreloaded = true;
  // The iterator also visits parts that a loaded page declares meanwhile.
  const remaining = registry.values();
  const next = () => {
    const { value } = remaining.next();
    if (value) void value.preload().then(whenIdle);
  };
  const whenIdle = () =>
    typeof requestIdleCallback === "undefined" ? setTimeout(next, 1_000) : requestIdleCallback(next);
  whenIdle();
}
