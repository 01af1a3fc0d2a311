import { expect, test } from "vitest";

import { effectiveClass, isShownClass } from "./priorityClasses";

test("a job that sets no class has the class of its workflow, else the default", () => {
  expect(effectiveClass(undefined)).toBe("normal");
  expect(effectiveClass("preemptible")).toBe("preemptible");
  expect(effectiveClass(undefined, "high")).toBe("high");
  expect(effectiveClass("preemptible", "high")).toBe("preemptible");
  expect(effectiveClass("normal", "high"), "the server cannot tell the default from none").toBe("high");
  expect(effectiveClass("urgent"), "an invalid value of the file").toBe("normal");
  expect(effectiveClass(3, "urgent")).toBe("normal");
});

test("only other classes than the default are shown", () => {
  expect(
    ["high", "normal", "preemptible", null, undefined].map((each) => isShownClass(each as "high")),
  ).toEqual([true, false, true, false, false]);
});
