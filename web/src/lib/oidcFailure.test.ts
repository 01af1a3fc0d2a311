import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { OIDC_FAILURES } from "./oidcFailure";

test("each reason of the server has a text", () => {
  const source = new URL("../../../crates/model/src/api/access.rs", import.meta.url);
  const text = readFileSync(source, "utf8");
  const words = text.match(/Self::\w+ => "[a-z_]+"/g)?.map((arm) => arm.split('"')[1]);
  expect(words).toEqual(OIDC_FAILURES);
});
