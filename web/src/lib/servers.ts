/** Roles of the servers that share a store, and the effect of draining one. */

import type { Server } from "../api/schema";

export type ServerStatus = "leading" | "leaving" | "standby" | "drained";

/** The same statuses as in `belfry server list`. */
export function serverStatus({ leader, draining }: Server): ServerStatus {
  if (leader) return draining ? "leaving" : "leading";
  return draining ? "drained" : "standby";
}

export type ClusterState =
  /** A single server. */
  | { kind: "alone" }
  /** No server is the leader. */
  | { kind: "leaderless" }
  /** The leader is handing over its shards. */
  | { kind: "handsOver"; leader: Server }
  /** No standby can take over if the leader fails. */
  | { kind: "unguarded"; leader: Server }
  | { kind: "guarded"; leader: Server; standbys: number };

/** Returns the state of the cluster. */
export function clusterState(servers: readonly Server[]): ClusterState {
  const leader = servers.find(({ leader }) => leader);
  if (!leader) return { kind: "leaderless" };
  if (servers.length === 1) return { kind: "alone" };
  if (leader.draining) return { kind: "handsOver", leader };
  const standbys = servers.filter((server) => serverStatus(server) === "standby").length;
  return standbys === 0 ? { kind: "unguarded", leader } : { kind: "guarded", leader, standbys };
}

/**
 * Effect of draining a server: it is refused (`refused`), its shards move (`handsOver`), it is no longer a standby
 * (`stepsBack`), or it was the last standby (`unguards`).
 */
export type DrainEffect = "refused" | "handsOver" | "stepsBack" | "unguards";

export function drainEffect(server: Server, servers: readonly Server[]): DrainEffect {
  const others = servers.filter(({ id, draining }) => id !== server.id && !draining);
  if (others.length === 0) return "refused";
  if (server.leader) return "handsOver";
  return others.some(({ leader }) => !leader) ? "stepsBack" : "unguards";
}

/** Sorts servers: the leader, standbys, drained servers; each by name. */
export function sortByRole(servers: readonly Server[]): Server[] {
  const rank = (server: Server) => (server.leader ? 0 : server.draining ? 2 : 1);
  return servers.toSorted(
    (a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name) || a.id.localeCompare(b.id),
  );
}
