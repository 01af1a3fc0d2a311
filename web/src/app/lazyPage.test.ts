/** Pages and parts are loaded when shown, or preloaded; a failure is not cached. */

import { createElement, Suspense } from "react";
import { prerender } from "react-dom/static";
import { expect, test, vi } from "vitest";

import { resetFailedLoads, lazyPage, lazyPart, preloadPages, ChunkLoadError } from "./lazyPage";

const Hello = ({ name }: { name: string }) => createElement("b", null, name);

async function render(element: React.ReactElement): Promise<string> {
  const { prelude } = await prerender(element, { onError: () => undefined });
  return new Response(prelude).text();
}

test("a part that failed to load is loaded again after its failure is reset", async () => {
  let isAvailable = false;
  const load = vi.fn(() =>
    isAvailable ? Promise.resolve({ default: Hello }) : Promise.reject(new TypeError("404 Hello-1.js")),
  );
  const Part = lazyPart(load);
  const part = () => render(createElement(Part, { name: "Ann" }));
  await expect(part()).rejects.toThrow(ChunkLoadError);
  await expect(part()).rejects.toThrow("404 Hello-1.js");
  expect(load, "it is not loaded again by every render").toHaveBeenCalledTimes(1);

  isAvailable = true;
  resetFailedLoads();
  expect(await part()).toBe("<b>Ann</b>");
  expect(load).toHaveBeenCalledTimes(2);
});

test("a part that a preloaded page declares is preloaded too", async () => {
  vi.useFakeTimers();
  const part = vi.fn(() => Promise.resolve({ default: Hello }));
  let Part = Hello;
  const Page = () => createElement(Suspense, null, createElement(Part, { name: "Bob" }));
  lazyPage(() => {
    // As a module does at evaluation.
    Part = lazyPart(part) as typeof Hello;
    return Promise.resolve({ Page });
  }, "Page");
  preloadPages();
  await vi.advanceTimersByTimeAsync(10_000);
  vi.useRealTimers();
  expect(part).toHaveBeenCalledTimes(1);
  expect(await render(createElement(Page))).toContain("<b>Bob</b>");
  expect(part, "a loaded part is not loaded again").toHaveBeenCalledTimes(1);
});
