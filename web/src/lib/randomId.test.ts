import { afterEach, expect, test, vi } from "vitest";

import { randomId } from "./randomId";

afterEach(() => vi.unstubAllGlobals());

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

test("an id is random if the browser has no randomUUID, as over HTTP by host name", () => {
  const { crypto } = globalThis;
  vi.stubGlobal("crypto", {
    getRandomValues: <T extends Uint8Array>(bytes: T) => crypto.getRandomValues(bytes),
  });
  const ids = Array.from({ length: 100 }, randomId);
  for (const id of ids) expect(id).toMatch(UUID);
  expect(new Set(ids).size).toBe(ids.length);
});

test("randomUUID is used if the browser has it", () => {
  vi.stubGlobal("crypto", { randomUUID: () => "one" });
  expect(randomId()).toBe("one");
});
