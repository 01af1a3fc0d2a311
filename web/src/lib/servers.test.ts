/** D6, G5, H1. Texts of the servers page, and effects of draining a server. */

import { expect, test } from "vitest";

import type { Server } from "../api/schema";
import { drainEffect, sortByRole, serverStatus, clusterState } from "./servers";

function server(name: string, more: Partial<Server> = {}): Server {
  return {
    id: `srv_${name}`,
    name,
    url: `http://${name}.test`,
    version: "0.1.0",
    started_at: "2026-01-01T00:00:00Z",
    leader: false,
    shards: 0,
    draining: false,
    responder: false,
    ...more,
  };
}

const leader = server("a", { leader: true, shards: 16 });
const standby = server("b");
const drained = server("c", { draining: true });

test("a server is leader, standby, handing over or drained", () => {
  expect(serverStatus(leader)).toBe("leading");
  expect(serverStatus(standby)).toBe("standby");
  expect(serverStatus({ ...leader, draining: true })).toBe("leaving");
  expect(serverStatus(drained)).toBe("drained");
});

test("a single server is distinguished from servers without a leader", () => {
  expect(clusterState([leader])).toEqual({ kind: "alone" });
  expect(clusterState([standby])).toEqual({ kind: "leaderless" });
  expect(clusterState([standby, drained])).toEqual({ kind: "leaderless" });
});

test("the cluster state says whether a standby can take over", () => {
  expect(clusterState([leader, standby, server("d")])).toEqual({ kind: "guarded", leader, standbys: 2 });
  expect(clusterState([leader, standby, drained])).toEqual({ kind: "guarded", leader, standbys: 1 });
  expect(clusterState([leader, drained])).toEqual({ kind: "unguarded", leader });
  const leaving = { ...leader, draining: true };
  expect(clusterState([leaving, standby])).toEqual({ kind: "handsOver", leader: leaving });
});

test("draining a server is refused if no other server can lead", () => {
  expect(drainEffect(leader, [leader])).toBe("refused");
  expect(drainEffect(leader, [leader, drained])).toBe("refused");
});

test("draining the leader moves the shards, draining a standby does not", () => {
  expect(drainEffect(leader, [leader, standby])).toBe("handsOver");
  expect(drainEffect(standby, [leader, standby, server("d")])).toBe("stepsBack");
  expect(drainEffect(standby, [leader, standby])).toBe("unguards");
  expect(drainEffect(standby, [leader, standby, drained])).toBe("unguards");
});

test("the leader comes first, and drained servers last", () => {
  const names = sortByRole([drained, server("z"), standby, leader]).map(({ name }) => name);
  expect(names).toEqual(["a", "b", "z", "c"]);
});
