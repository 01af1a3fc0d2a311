import { expect, test } from "vitest";

import { tokenInFragment } from "./auth";

test("a link brings a token in its fragment", () => {
  expect(tokenInFragment("#token=bf_admin_a_b")).toBe("bf_admin_a_b");
  expect(tokenInFragment("#line=3")).toBeNull();
  expect(tokenInFragment("")).toBeNull();
});
