import { expect, test } from "vitest";

import { mayReload } from "./reloadGuard";

function storage(): Pick<Storage, "getItem" | "setItem"> {
  const stored = new Map<string, string>();
  return { getItem: (key) => stored.get(key) ?? null, setItem: (key, value) => void stored.set(key, value) };
}

test("a chunk that is never available reloads the page once", () => {
  const store = storage();
  expect(mayReload(store, "build-1", "/assets/Jobs-1.js")).toBe(true);
  expect(mayReload(store, "build-1", "/assets/Jobs-1.js")).toBe(false);
});

test("two servers of different versions do not cause endless reloads", () => {
  const store = storage();
  expect(mayReload(store, "build-1", "/assets/Jobs-1.js")).toBe(true);
  expect(mayReload(store, "build-2", "/assets/Jobs-2.js")).toBe(true);
  expect(mayReload(store, "build-1", "/assets/Jobs-1.js")).toBe(false);
  expect(mayReload(store, "build-2", "/assets/Jobs-2.js")).toBe(false);
});

test("a further upgrade reloads the page again, even if the browser does not name the chunk", () => {
  const store = storage();
  const message = "Importing a module script failed.";
  expect(mayReload(store, "build-1", message)).toBe(true);
  expect(mayReload(store, "build-2", message)).toBe(true);
  expect(mayReload(store, "build-2", message)).toBe(false);
});

test("a browser without session storage does not reload, because nothing would end the reloads", () => {
  const broken = {
    getItem: () => {
      throw new DOMException("denied", "SecurityError");
    },
    setItem: () => undefined,
  };
  expect(mayReload(broken, "build-1", "x")).toBe(false);
});
