/** What servers that share a store are to each other, and what draining one of them does. */

import type { Server } from "../api/schema";

export type ServerStatus = "leading" | "leaving" | "standby" | "drained";

/** The same words as those of `belfry server list`. */
export function serverStatus({ leads, draining }: Server): ServerStatus {
  if (leads) return draining ? "leaving" : "leading";
  return draining ? "drained" : "standby";
}

export type ClusterState =
  /** There is one server. */
  | { kind: "alone" }
  /** Nobody decides at this moment. */
  | { kind: "leaderless" }
  /** The leader gives its shards away. */
  | { kind: "handsOver"; leader: Server }
  /** If the leader failed now, nobody would go on. */
  | { kind: "unguarded"; leader: Server }
  | { kind: "guarded"; leader: Server; standbys: number };

/** How those that are there stand together. */
export function clusterState(servers: readonly Server[]): ClusterState {
  const leader = servers.find(({ leads }) => leads);
  if (!leader) return { kind: "leaderless" };
  if (servers.length === 1) return { kind: "alone" };
  if (leader.draining) return { kind: "handsOver", leader };
  const standbys = servers.filter((server) => serverStatus(server) === "standby").length;
  return standbys === 0 ? { kind: "unguarded", leader } : { kind: "guarded", leader, standbys };
}

/**
 * What comes of draining a server: it is refused (`refused`), its shards move (`handsOver`), it is passed over
 * when the leader fails (`stepsBack`), or it was the last that could have led then (`unguards`).
 */
export type DrainEffect = "refused" | "handsOver" | "stepsBack" | "unguards";

export function drainEffect(server: Server, servers: readonly Server[]): DrainEffect {
  const others = servers.filter(({ id, draining }) => id !== server.id && !draining);
  if (others.length === 0) return "refused";
  if (server.leads) return "handsOver";
  return others.some(({ leads }) => !leads) ? "stepsBack" : "unguards";
}

/** The leader first, then who could follow it, each by name. */
export function sortByRole(servers: readonly Server[]): Server[] {
  const rank = (server: Server) => (server.leads ? 0 : server.draining ? 2 : 1);
  return servers.toSorted(
    (a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name) || a.id.localeCompare(b.id),
  );
}
