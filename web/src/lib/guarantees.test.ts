import { readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import type { ScheduleSpec } from "../api/schema";
import { effectivePolicies, GUARANTEES, policiesOf, policyChoices } from "./guarantees";

/** The table of guarantees in the documentation of the server's source. */
const SOURCE = join(import.meta.dirname, "../../../crates/model/src/schedule/guarantee.rs");

test("each guarantee sets the policies that the server sets", () => {
  const row = /^\/\/! \| `(\w+)` \| `(\w+)`[^|]*\| `(\w+)`[^|]*\| `(\w+)` \|$/gm;
  const rows = [...readFileSync(SOURCE, "utf8").matchAll(row)].map(([, ...cells]) => cells);
  const own = GUARANTEES.map((guarantee) => {
    const { overlap, missed, delivery } = policiesOf(guarantee);
    return [guarantee, overlap, missed, delivery];
  });
  expect(own).toEqual(rows);
  expect(policiesOf(null)).toEqual({ overlap: "skip", missed: "fire_once", delivery: "at_least_once" });
});

test("a guarantee replaces defaults, and keeps other policies", () => {
  const spec = (over: object) => ({ guarantee: "exactly_once", ...over }) as Partial<ScheduleSpec>;
  expect(effectivePolicies(spec({}))).toEqual(policiesOf("exactly_once"));
  expect(effectivePolicies(spec({ overlap: { policy: "skip" } })).overlap).toBe("buffer_all");
  expect(effectivePolicies(spec({ overlap: { policy: "cancel_other" } })).overlap).toBe("cancel_other");
  expect(effectivePolicies(spec({ job: { delivery: "at_most_once" } })).delivery).toBe("at_most_once");
  expect(effectivePolicies({ missed: { policy: "skip" } }).missed).toBe("skip");
});

test("a default cannot be chosen if the guarantee replaces it", () => {
  const disabled = (base: "skip" | "buffer_all") =>
    policyChoices(["skip", "buffer_all", "allow_all"], "skip", base)
      .filter((choice) => choice.disabled)
      .map(({ value }) => value);
  expect(disabled("skip")).toEqual([]);
  expect(disabled("buffer_all")).toEqual(["skip"]);
});
