import { expect, test, vi } from "vitest";

import { invitationInFragment, tokenInFragment } from "./auth";

test("the token is read from the fragment of a link", () => {
  expect(tokenInFragment("#token=bf_admin_a_b")).toBe("bf_admin_a_b");
  expect(tokenInFragment("#line=3")).toBeNull();
  expect(tokenInFragment("")).toBeNull();
});

test("the secret of an invitation is read from the fragment of its link", () => {
  expect(invitationInFragment("#invite=bf_invite_a_b")).toBe("bf_invite_a_b");
  expect(invitationInFragment("#token=bf_admin_a_b")).toBeNull();
});

test("a tab adopts the session of another tab before local storage shows it", async () => {
  vi.stubGlobal("addEventListener", () => undefined);
  vi.stubGlobal("location", { hash: "" });
  vi.stubGlobal("fetch", () => Promise.resolve(new Response()));
  const stored = new Map([["belfry.session", "1.old"]]);
  vi.stubGlobal("localStorage", {
    getItem: (key: string) => stored.get(key) ?? null,
    // The other tab's write is not visible yet.
    setItem: () => undefined,
  });
  const tab = async () => {
    vi.resetModules();
    const auth = await import("./auth");
    await auth.initSession();
    return auth;
  };
  const [a, b] = [await tab(), await tab()];
  expect(b.sessionId()).toBe("1.old");
  const received = new Promise<string>((resolve) => b.onSessionChange(() => resolve(b.sessionId())));
  await a.signIn("token", true);
  expect(a.sessionId()).not.toBe("1.old");
  expect(await received).toBe(a.sessionId());
  vi.unstubAllGlobals();
});
