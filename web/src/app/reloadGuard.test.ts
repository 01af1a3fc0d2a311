import { expect, test } from "vitest";

import { mayReload } from "./reloadGuard";

function storage(): Pick<Storage, "getItem" | "setItem"> {
  const stored = new Map<string, string>();
  return { getItem: (key) => stored.get(key) ?? null, setItem: (key, value) => void stored.set(key, value) };
}

test("a piece of code that is never there reloads the page once", () => {
  const kept = storage();
  expect(mayReload(kept, "build-1", "/assets/Jobs-1.js")).toBe(true);
  expect(mayReload(kept, "build-1", "/assets/Jobs-1.js")).toBe(false);
});

test("two servers of different versions do not reload a page in turn without an end", () => {
  const kept = storage();
  expect(mayReload(kept, "build-1", "/assets/Jobs-1.js")).toBe(true);
  expect(mayReload(kept, "build-2", "/assets/Jobs-2.js")).toBe(true);
  expect(mayReload(kept, "build-1", "/assets/Jobs-1.js")).toBe(false);
  expect(mayReload(kept, "build-2", "/assets/Jobs-2.js")).toBe(false);
});

test("a further upgrade reloads the page again, also where the browser does not name the piece", () => {
  const kept = storage();
  const message = "Importing a module script failed.";
  expect(mayReload(kept, "build-1", message)).toBe(true);
  expect(mayReload(kept, "build-2", message)).toBe(true);
  expect(mayReload(kept, "build-2", message)).toBe(false);
});

test("a browser without a storage does not reload: it could not stop", () => {
  const broken = {
    getItem: () => {
      throw new DOMException("denied", "SecurityError");
    },
    setItem: () => undefined,
  };
  expect(mayReload(broken, "build-1", "x")).toBe(false);
});
