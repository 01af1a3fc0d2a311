/** Parts of the page that depend on the rights of the caller. */

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { meQuery } from "../api/queries";
import type { Resource, Verb } from "../api/schema";
import { can, canSomewhere } from "../lib/rights";

/** Checks whether the caller may do something in a namespace; by default in all, and with the cluster itself. */
export type Can = (verb: Verb, resource: Resource, namespace?: string) => boolean;

export function useCan(): Can {
  const me = useQuery(meQuery).data;
  return (verb, resource, namespace) => can(me, verb, resource, namespace);
}

/** Returns whether the caller may do something in at least one namespace. */
export function useCanSomewhere(): (verb: Verb, resource: Resource) => boolean {
  const me = useQuery(meQuery).data;
  return (verb, resource) => canSomewhere(me, verb, resource);
}

interface AllowedProps {
  verb: Verb;
  /** Kind of the object. */
  on: Resource;
  /** Namespace of the object; by default all namespaces, and the cluster itself. */
  in?: string;
  children: ReactNode;
}

/** Shows actions only to callers that may take them. */
export function Allowed({ verb, on, in: namespace, children }: AllowedProps) {
  return useCan()(verb, on, namespace) ? children : null;
}

/** Shows actions to callers that may take them in at least one namespace, for example the link to a form. */
export function AllowedSomewhere({ verb, on, children }: Omit<AllowedProps, "in">) {
  return useCanSomewhere()(verb, on) ? children : null;
}
