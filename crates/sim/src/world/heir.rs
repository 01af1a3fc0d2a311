//! What a server does while it stands by: it follows the rows that another one changes, so that it can go on at once.
//!
//! A step is taken each time that it asks for the shards in vain. The first ones read all rows, some of
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
pub(super) struct Heir {
    follower: Follower,
    place: Place,
    /// Rows that were read and not taken in yet, while not all are.
    on_their_way: Option<Vec<LiveRow>>,
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
        self.servers[server].heir = match self.servers[server].heir.take() {
            None => Some(self.begin_to_follow(server)),
            Some(heir) => self.go_on_following(heir),
        };
    }

    fn begin_to_follow(&mut self, server: usize) -> Heir {
        let place = self.store.changelog_end();
        let config = engine::Config { lease: self.plan.setup.lease, ..engine::Config::default() };
        let mut follower = Follower::new(config, self.plan.shards, self.clocks(server));
        let mut on_their_way = Vec::new();
        for row in self.store.load() {
            match page_of(&row) {
                Page::AtOnce => follower.restore(row),
                Page::ReadEarly => on_their_way.push(row),
                Page::ReadLate => {}
            }
        }
        Heir { follower, place, on_their_way: Some(on_their_way) }
    }

    fn go_on_following(&mut self, mut heir: Heir) -> Option<Heir> {
        self.follow(&mut heir)?;
        match heir.on_their_way.take() {
            Some(rows) => {
                let late = self.store.load().into_iter().filter(|row| matches!(page_of(row), Page::ReadLate));
                for row in rows.into_iter().chain(late) {
                    heir.follower.restore(row);
                }
                heir.follower.loaded();
            }
            None => {
                let most = self.heir_dice.below(STEP);
                self.refresh(&mut heir, most);
            }
        }
        Some(heir)
    }

    fn follow(&self, heir: &mut Heir) -> Option<()> {
        let (touched, end) = self.store.changelog_since(heir.place)?;
        heir.place = end;
        heir.follower.follow(&touched).ok()
    }

    fn refresh(&self, heir: &mut Heir, most: usize) {
        let keys = heir.follower.stale(most);
        heir.follower.refresh(&keys, self.store.live_rows(&keys));
    }

    /// The shards are taken: the engine that the heir became, with the engine time of the newest commit, unless all rows
    /// have to be loaded.
    ///
    /// It is compared with one that is built from all rows, and neither has been started.
    pub(super) fn inherit(&mut self, server: usize, loaded: Loaded) -> Option<(Box<Engine>, Timestamp)> {
        let mut heir = self.servers[server].heir.take()?;
        let leases = self.servers[server].leader.as_ref()?.leases().cloned()?;
        if heir.on_their_way.is_some() {
            return None;
        }
        self.follow(&mut heir)?;
        self.refresh(&mut heir, usize::MAX);
        let Some(warm) = heir.follower.own(&leases) else {
            self.inconsistent(server, "what it followed contradicts itself".into());
            return None;
        };
        let cold = self.restore(server, &leases, &loaded);
        let difference = warm.difference(&cold).or_else(|| cold.difference(&warm));
        self.record_rebuilt(server, difference.as_ref().map(super::rebuild::differing));
        // Both ways of taking over are used in every world.
        self.heir_dice.chance(0.8).then(|| (Box::new(warm), loaded.now))
    }
}
