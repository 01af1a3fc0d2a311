/**
 * Pages, and parts of pages, that are loaded when they are first shown.
 *
 * Where one cannot be loaded it throws {@link ChunkLoadError}. {@link ./ErrorPage} shows that in the place of a page, and
 * the boundary around a part in the place of the part. While the browser is idle all of them are fetched ahead, so that
 * an outage or an upgrade of the server rarely meets a page that is not there yet.
 */

import { createElement, type FunctionComponent, use } from "react";
import type { AsyncRouteComponent } from "@tanstack/react-router";

/** The code of a page, or of a part of one, could not be loaded. */
export class ChunkLoadError extends Error {}

interface Lazy<P> {
  Component: FunctionComponent<P>;
  /** Loads the code; a failure is ignored, and the code is loaded again when it is needed. */
  preload: () => Promise<void>;
  reset: () => void;
}

/** In the order in which they were declared: the parts of a page follow once the page is loaded. */
const registry = new Set<Pick<Lazy<object>, "preload" | "reset">>();

function createLazy<P extends object>(load: () => Promise<FunctionComponent<P>>): Lazy<P> {
  let found: FunctionComponent<P> | null = null;
  let loading: Promise<FunctionComponent<P>> | null = null;
  const fetch = () =>
    load().then(
      (component) => (found = component),
      (error: unknown) => {
        throw new ChunkLoadError(error instanceof Error ? error.message : String(error));
      },
    );
  const preload = () =>
    found
      ? Promise.resolve()
      : fetch().then(
          () => undefined,
          () => undefined,
        );
  const Component = (props: P) => createElement(found ?? use((loading ??= fetch())), props);
  const lazy = { Component, preload, reset: () => (loading = null) };
  registry.add(lazy);
  return lazy;
}

/** The component `name` of a module; the router loads it before it shows the page. */
export function lazyPage<Name extends string>(
  load: () => Promise<Record<Name, FunctionComponent>>,
  name: Name,
): AsyncRouteComponent<object> {
  const { Component, preload } = createLazy<object>(() => load().then((module) => module[name]));
  return Object.assign(Component, { preload });
}

/** The default component of a module, as a part of a page. It needs a `Suspense` and an error boundary around it. */
export function lazyPart<P extends object>(
  load: () => Promise<{ default: FunctionComponent<P> }>,
): FunctionComponent<P> {
  return createLazy<P>(() => load().then((module) => module.default)).Component;
}

/** Pages and parts that could not be loaded are loaded again when they are next shown. */
export function resetFailedLoads(): void {
  for (const { reset } of registry) reset();
}

let hasPreloaded = false;

/** Loads all pages and their parts, one whenever the browser has nothing else to do; does so once. */
export function preloadPages(): void {
  if (hasPreloaded) return;
  hasPreloaded = true;
  // Also those that are declared meanwhile, by a page that was just loaded.
  const remaining = registry.values();
  const next = () => {
    const { value } = remaining.next();
    if (value) void value.preload().then(whenIdle);
  };
  const whenIdle = () =>
    typeof requestIdleCallback === "undefined" ? setTimeout(next, 1_000) : requestIdleCallback(next);
  whenIdle();
}
