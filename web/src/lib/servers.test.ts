/** D6, G5, H1. What the page of servers says about them, and about draining one. */

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
    leads: false,
    shards: 0,
    draining: false,
    answered: false,
    ...more,
  };
}

const leader = server("a", { leads: true, shards: 16 });
const standby = server("b");
const drained = server("c", { draining: true });

test("a server leads, stands by, hands over or is drained", () => {
  expect(serverStatus(leader)).toBe("leading");
  expect(serverStatus(standby)).toBe("standby");
  expect(serverStatus({ ...leader, draining: true })).toBe("leaving");
  expect(serverStatus(drained)).toBe("drained");
});

test("a server that is alone, and servers of which none leads, are told apart", () => {
  expect(clusterState([leader])).toEqual({ kind: "alone" });
  expect(clusterState([standby])).toEqual({ kind: "leaderless" });
  expect(clusterState([standby, drained])).toEqual({ kind: "leaderless" });
});

test("it is told whether anybody could follow the leader", () => {
  expect(clusterState([leader, standby, server("d")])).toEqual({ kind: "guarded", leader, standbys: 2 });
  expect(clusterState([leader, standby, drained])).toEqual({ kind: "guarded", leader, standbys: 1 });
  expect(clusterState([leader, drained])).toEqual({ kind: "unguarded", leader });
  const leaving = { ...leader, draining: true };
  expect(clusterState([leaving, standby])).toEqual({ kind: "handsOver", leader: leaving });
});

test("draining a server is refused where no other could lead", () => {
  expect(drainEffect(leader, [leader])).toBe("refused");
  expect(drainEffect(leader, [leader, drained])).toBe("refused");
});

test("draining the leader moves the shards, draining another one leaves them where they are", () => {
  expect(drainEffect(leader, [leader, standby])).toBe("handsOver");
  expect(drainEffect(standby, [leader, standby, server("d")])).toBe("stepsBack");
  expect(drainEffect(standby, [leader, standby])).toBe("unguards");
  expect(drainEffect(standby, [leader, standby, drained])).toBe("unguards");
});

test("the leader stands first, and those that are drained last", () => {
  const names = sortByRole([drained, server("z"), standby, leader]).map(({ name }) => name);
  expect(names).toEqual(["a", "b", "z", "c"]);
});
