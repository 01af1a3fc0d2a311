//! A standby follows the rows that the leader changes, so that it can take over at once.
//!
//! It takes a step each time that it asks for the shards in vain. The first ones read all rows, some of
//! them late and some long before they are taken in, as pages of a real store are; the others read the
//! changelog and some of what that names. When the shards are taken, what is left is read, and what came
//! of it must be what an engine knows that is built from the rows alone.

use engine::{Engine, Follower};
use model::Timestamp;
use model::changelog::{LiveKey, Place};
use model::record::LiveRow;

use super::World;
use super::calls::Loaded;

/// How many rows are read again in one step at most.
const STEP: usize = 40;

/// A follower, and how far it is.
#[derive(Debug)]
pub(super) struct Standby {
    follower: Follower,
    place: Place,
    /// Rows that were read and not restored yet; `None` once all are.
    pending: Option<Vec<LiveRow>>,
}

/// When a row of the first reading is read, and taken in.
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
        Some(LiveKey::Run(_)) | None => Page::ReadEarly,
        Some(_) => Page::AtOnce,
    }
}

impl World {
    /// One more step, if there is another server to follow.
    pub(super) fn stand_by(&mut self, server: usize) {
        if self.servers.len() < 2 || self.net.from_store.contains_key(&server) {
            return;
        }
        self.servers[server].standby = match self.servers[server].standby.take() {
            None => Some(self.begin_to_follow(server)),
            Some(standby) => self.go_on_following(standby),
        };
    }

    fn begin_to_follow(&mut self, server: usize) -> Standby {
        let place = self.store.changelog_end();
        let config = engine::Config { lease: self.plan.setup.lease, ..engine::Config::default() };
        let mut follower = Follower::new(config, self.plan.shards, self.clocks(server));
        let mut pending = Vec::new();
        for row in self.store.load() {
            match page_of(&row) {
                Page::AtOnce => follower.restore(row),
                Page::ReadEarly => pending.push(row),
                Page::ReadLate => {}
            }
        }
        Standby { follower, place, pending: Some(pending) }
    }

    fn go_on_following(&mut self, mut standby: Standby) -> Option<Standby> {
        self.follow(&mut standby)?;
        match standby.pending.take() {
            Some(rows) => {
                let late = self.store.load().into_iter().filter(|row| matches!(page_of(row), Page::ReadLate));
                for row in rows.into_iter().chain(late) {
                    standby.follower.restore(row);
                }
                standby.follower.loaded();
            }
            None => {
                let most = self.standby_dice.below(STEP);
                self.refresh(&mut standby, most);
            }
        }
        Some(standby)
    }

    fn follow(&self, standby: &mut Standby) -> Option<()> {
        let (touched, end) = self.store.changelog_since(standby.place)?;
        standby.place = end;
        standby.follower.follow(&touched).ok()
    }

    fn refresh(&self, standby: &mut Standby, most: usize) {
        let keys = standby.follower.stale(most);
        standby.follower.refresh(&keys, self.store.live_rows(&keys));
    }

    /// The shards are taken: the engine that the standby became, with the engine time of the newest commit. `None` if
    /// all rows have to be loaded.
    ///
    /// It is compared with one that is built from all rows, and neither has been started.
    pub(super) fn followed_engine(
        &mut self,
        server: usize,
        loaded: Loaded,
    ) -> Option<(Box<Engine>, Timestamp)> {
        let mut standby = self.servers[server].standby.take()?;
        let leases = self.servers[server].leader.as_ref()?.leases().cloned()?;
        if standby.pending.is_some() {
            return None;
        }
        self.follow(&mut standby)?;
        self.refresh(&mut standby, usize::MAX);
        let Some(followed) = standby.follower.own(&leases) else {
            self.inconsistent(server, "what it followed contradicts itself".into());
            return None;
        };
        let loaded_anew = self.restore(server, &leases, &loaded);
        let difference = followed.difference(&loaded_anew).or_else(|| loaded_anew.difference(&followed));
        self.record_rebuilt(server, difference.as_ref().map(super::rebuild::differing));
        // Both ways of taking over are used in every world.
        self.standby_dice.chance(0.8).then(|| (Box::new(followed), loaded.now))
    }
}
