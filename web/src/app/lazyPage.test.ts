/** Pages and their parts are loaded when they are shown, or ahead; a failure is not kept. */

import { createElement, Suspense } from "react";
import { prerender } from "react-dom/static";
import { expect, test, vi } from "vitest";

import { resetFailedLoads, lazyPage, lazyPart, preloadPages, ChunkLoadError } from "./lazyPage";

const Hello = ({ name }: { name: string }) => createElement("b", null, name);

async function render(element: React.ReactElement): Promise<string> {
  const { prelude } = await prerender(element, { onError: () => undefined });
  return new Response(prelude).text();
}

test("a part of a page that could not be loaded is loaded again once its failure is forgotten", async () => {
  let isAvailable = false;
  const load = vi.fn(() =>
    isAvailable ? Promise.resolve({ default: Hello }) : Promise.reject(new TypeError("404 Hello-1.js")),
  );
  const Part = lazyPart(load);
  const part = () => render(createElement(Part, { name: "Ann" }));
  await expect(part()).rejects.toThrow(ChunkLoadError);
  await expect(part()).rejects.toThrow("404 Hello-1.js");
  expect(load, "it is not asked for in every render").toHaveBeenCalledTimes(1);

  isAvailable = true;
  resetFailedLoads();
  expect(await part()).toBe("<b>Ann</b>");
  expect(load).toHaveBeenCalledTimes(2);
});

test("a part that a page brings along is loaded ahead too", async () => {
  vi.useFakeTimers();
  const part = vi.fn(() => Promise.resolve({ default: Hello }));
  let Part = Hello;
  const Page = () => createElement(Suspense, null, createElement(Part, { name: "Bob" }));
  lazyPage(() => {
    // As a module does when it is evaluated.
    Part = lazyPart(part) as typeof Hello;
    return Promise.resolve({ Page });
  }, "Page");
  preloadPages();
  await vi.advanceTimersByTimeAsync(10_000);
  vi.useRealTimers();
  expect(part).toHaveBeenCalledTimes(1);
  expect(await render(createElement(Page))).toContain("<b>Bob</b>");
  expect(part, "what is there is not loaded again").toHaveBeenCalledTimes(1);
});
