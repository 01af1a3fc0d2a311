/** The text of a new object, in a namespace in which the caller may create it. */

import { useQuery } from "@tanstack/react-query";

import { meQuery } from "../api/queries";
import { type Permission, sampleFor } from "../lib/rights";

export function useSample(sample: string, ...permission: Permission): string {
  return sampleFor(useQuery(meQuery).data, sample, ...permission);
}
