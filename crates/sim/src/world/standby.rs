//! What the store answers to a standby that loads all rows, and the check of the resulting engine.
//!
//! The leader core follows and takes over. A real store reads rows page by page while they change. So this model
//! reads some rows early and answers late, and reads others late. After a takeover, the standby's engine must equal
//! an engine that is rebuilt from the rows.

use leader::NotFollowed;
use model::changelog::LiveKey;
use model::record::LiveRow;

use super::calls::{Loaded, StoreCall, Verdict};
use super::{World, WorldEvent};

/// Maximum duration of a preload, in milliseconds.
const PRELOAD_MAX_MILLIS: u64 = 1_000;

/// When a row of a preload is read and delivered.
enum Page {
    AtOnce,
    ReadEarly,
    ReadLate,
}

fn page_of(row: &LiveRow) -> Page {
    match LiveKey::of(row) {
        Some(LiveKey::Job(job)) => match job.to_bits() % 3 {
            0 => Page::AtOnce,
            1 => Page::ReadEarly,
            _ => Page::ReadLate,
        },
        Some(LiveKey::Schedule(id)) if id.to_bits().is_multiple_of(2) => Page::ReadLate,
        Some(LiveKey::Service(id)) if id.to_bits().is_multiple_of(2) => Page::ReadLate,
        Some(LiveKey::Run(_) | LiveKey::Service(_)) | None => Page::ReadEarly,
        Some(_) => Page::AtOnce,
    }
}

impl World {
    /// Delivers a part of the rows, and schedules the rest.
    pub(super) fn preload_begins(&mut self, mut call: StoreCall) {
        let (mut at_once, mut early) = (Vec::new(), Vec::new());
        for row in self.store.load() {
            match page_of(&row) {
                Page::AtOnce => at_once.push(row),
                Page::ReadEarly => early.push(row),
                Page::ReadLate => {}
            }
        }
        if !self.net.from_store.contains_key(&call.caller.server) {
            self.answer_in(model::Duration::from_millis(1), call.caller, Verdict::Rows(at_once));
        }
        call.read_early = Some(early);
        let later = self.now + self.standby_dice.millis(2, PRELOAD_MAX_MILLIS);
        self.put(later, WorldEvent::Store(Box::new(call)));
    }

    /// Returns the remaining rows: those that were read at the start, and those that are read now.
    pub(super) fn preload_ends(&mut self, early: Vec<LiveRow>) -> Verdict {
        let late = self.store.load().into_iter().filter(|row| matches!(page_of(row), Page::ReadLate));
        let rows = early.into_iter().chain(late).collect();
        Verdict::Loaded(Box::new(Loaded { rows, now: self.store.now(), tail_lost: false }))
    }

    /// Compares the engine of a standby that takes over with one that is rebuilt from all rows. Neither is started.
    pub(super) fn compare_followed(&mut self, server: usize) {
        let Some(leader) = &self.servers[server].leader else { return };
        let Some(leases) = leader.leases().cloned().filter(|leases| self.store.holds(leases)) else { return };
        if leader.followed_engine().is_none() {
            return;
        }
        let loaded = self.loaded_rows();
        let loaded_anew = self.restore(server, &leases, &loaded);
        let followed = self.servers[server].leader.as_ref().and_then(|leader| leader.followed_engine());
        let Some(followed) = followed else { return };
        let difference = followed.difference(&loaded_anew).or_else(|| loaded_anew.difference(followed));
        let difference = difference.as_ref().map(super::rebuild::differing);
        self.record_rebuilt(server, difference);
    }

    /// Reports an inconsistency unless a fault of the store or network explains why the standby's engine is unusable.
    pub(super) fn check_not_followed(&mut self, server: usize, why: &NotFollowed) {
        let leases = self.servers[server].leader.as_ref().and_then(|leader| leader.leases());
        let is_deposed = leases.is_some_and(|leases| !self.store.holds(leases));
        let is_explained = match why {
            NotFollowed::Store(_)
            | NotFollowed::OutOfReach
            | NotFollowed::Unread
            | NotFollowed::Unfollowed(_) => true,
            // Counts and rows come from different snapshots if another server has taken over in between.
            NotFollowed::Miscounted { .. } => is_deposed,
            NotFollowed::Damaged(_) | NotFollowed::Inconsistent(_) | NotFollowed::Panicked => false,
        };
        if !is_explained {
            self.inconsistent(server, format!("a standby's engine is unusable: {why}"));
        }
    }
}
