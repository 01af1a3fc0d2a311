import { expect, test } from "vitest";

import { ApiError } from "./errors";

test("a problem document keeps its code, hint and fields", () => {
  const body = {
    type: "/x",
    title: "T",
    status: 422,
    detail: "name: is bad",
    code: "invalid_spec",
    hint: "correct it",
    errors: [{ pointer: "/name", path: "name", detail: "is bad" }],
  };
  const error = ApiError.ofBody(body, new Response(null, { status: 422 }));
  expect(error).toMatchObject({
    code: "invalid_spec",
    status: 422,
    hint: "correct it",
    message: "name: is bad",
  });
  expect(error.fields).toHaveLength(1);
});

test("the delay of a refused request is known", async () => {
  const problem = { code: "client_limit", status: 429, title: "", detail: "limit" };
  const response = new Response(JSON.stringify(problem), { status: 429, headers: { "Retry-After": "3" } });
  expect(await ApiError.ofResponse(response)).toMatchObject({ code: "client_limit", retryAfterMs: 3_000 });
});

test("a response without a problem document is `unexpected`, a missing response is `unreachable`", () => {
  expect(ApiError.ofBody("<html>", new Response(null, { status: 502 }), "<html>")).toMatchObject({
    code: "unexpected",
    status: 502,
  });
  expect(ApiError.from(new TypeError("Failed to fetch"))).toMatchObject({ code: "unreachable", status: 0 });
});
