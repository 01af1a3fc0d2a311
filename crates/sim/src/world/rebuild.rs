//! Compares the running engine with an engine that is rebuilt from the rows: both must have the same state (I28).
//! The statistics of all commits must agree with the same rows.

use std::sync::Arc;

use engine::{Difference, Engine, Now};
use model::record::Lease;
use model::{ShardId, Timestamp};

use super::World;
use super::calls::Loaded;
use crate::history::What;

impl World {
    /// Compares the engines once no store call is pending.
    pub(super) fn request_rebuild(&mut self) {
        let Some(server) = self.store.owner(self.now) else { return };
        if self.leases_of(server).is_some() {
            self.servers[server].rebuild_wanted = true;
        }
    }

    /// Rebuilds and compares. Must run between an answered commit and any other event.
    pub(super) fn rebuild(&mut self, server: usize) {
        let Some(leases) = self.leases_of(server) else { return };
        let Some(leader) = &self.servers[server].leader else { return };
        let Some(engine) = leader.engine() else { return };
        if leader.commits_in_flight() > 0 || !engine.is_idle() {
            self.servers[server].rebuild_wanted = true;
            return;
        }
        let (reconciling, holds) = (engine.is_reconciling(), engine.holds_new_work());
        if !self.store.holds(&leases) {
            // The server learns of its last commit after another server has continued from there.
            return;
        }
        let loaded = Loaded { tail_lost: reconciling, ..self.loaded_rows() };
        let built = self.build(server, &leases, &loaded, holds);
        let Some(engine) = self.servers[server].leader.as_ref().and_then(|leader| leader.engine()) else {
            return;
        };
        let difference = match engine.difference(&built) {
            Some(difference) => Some(differing(&difference)),
            None => built.check_invariants().err().or_else(|| self.store.statistics_difference()),
        };
        self.record_rebuilt(server, difference);
    }

    pub(super) fn record_rebuilt(&mut self, server: usize, difference: Option<String>) {
        self.record(What::Rebuilt { server: u32::try_from(server).unwrap_or(u32::MAX), difference });
    }

    /// Builds and starts an engine from rows.
    fn build(
        &mut self,
        server: usize,
        leases: &Arc<[Lease]>,
        loaded: &Loaded,
        holds_new_work: bool,
    ) -> Engine {
        let now = self.clocks(server);
        let mut engine = self.restore(server, leases, loaded);
        engine.resume_from(loaded.now);
        engine.hold_new_work(holds_new_work);
        engine.start(now);
        engine
    }

    /// Builds an engine from rows without starting it. It draws no random numbers, so the world is not changed.
    pub(super) fn restore(&mut self, server: usize, leases: &[Lease], loaded: &Loaded) -> Engine {
        let config = engine::Config { lease: self.plan.setup.lease, ..engine::Config::default() };
        let clocks = Now { wall: Timestamp::default(), ..self.clocks(server) };
        let mut engine = Engine::new(config, leases, self.plan.shards, clocks);
        for row in &loaded.rows {
            if let Err(poison) = engine.restore(row.clone()) {
                self.inconsistent(server, format!("the engine refused a committed row: {poison}"));
            }
        }
        if loaded.tail_lost {
            engine.assume_lost_commits(&(0..self.plan.shards).map(ShardId).collect::<Vec<_>>());
        }
        engine
    }
}

/// Describes the first difference of two engines, with the text before it.
pub(super) fn differing(Difference { subject, here: running, there: rebuilt }: &Difference) -> String {
    let same = running.chars().zip(rebuilt.chars()).take_while(|(a, b)| a == b).count();
    let from = |line: &str| line.chars().skip(same.saturating_sub(40)).take(160).collect::<String>();
    format!("{subject}: running … {} …; rebuilt … {} …", from(running), from(rebuilt))
}
