//! Followers: engines of standbys that follow the rows of another owner, and rows that arrive late.
//!
//! At each restart, every scenario checks that a follower equals an engine rebuilt from the rows.

use engine::{Config, Follower, Unfollowed};
use model::changelog::{LiveKey, Touched};
use model::queue::QueueSettings;
use model::record::{KeyRecord, LiveRow};
use model::{JobStatus, ShardId, Timestamp};

use crate::scenario::{SHARDS, Scenario, leases};

fn empty(t: &Scenario) -> Follower {
    Follower::new(Config::default(), SHARDS, t.now)
}

fn count(follower: &Follower, status: JobStatus) -> u64 {
    follower.live().get(&status).copied().unwrap_or_default()
}

#[test]
fn a_job_that_ended_while_its_row_was_on_the_way_is_not_taken_in() {
    let mut t = Scenario::new();
    let (ended, lives) = (t.job().submit(), t.job().submit());
    let mut follower = empty(&t);
    let rows = t.rows.live();
    follower.follow(&[Touched::Ended(ended)]).unwrap();
    rows.into_iter().for_each(|row| follower.restore(row));
    follower.loaded();
    assert_eq!(count(&follower, JobStatus::Waiting), 1);
    let engine = follower.own(&leases(2)).unwrap();
    assert_eq!(engine.view().queues[0].waiting, 1, "{lives} alone waits");
}

#[test]
fn what_was_touched_is_stale_until_it_is_read_again() {
    let mut t = Scenario::new();
    let job = t.job().submit();
    let mut follower = empty(&t);
    t.rows.live().into_iter().for_each(|row| follower.restore(row));
    follower.loaded();
    let key = LiveKey::Job(job);
    follower.follow(&[Touched::Rows(key)]).unwrap();
    assert_eq!((follower.stale(9), follower.count_stale()), (vec![key], 1));
    follower.refresh(&[key], Vec::new());
    assert_eq!(
        (follower.count_stale(), count(&follower, JobStatus::Waiting)),
        (0, 0),
        "it has no rows any more"
    );
}

#[test]
fn nobody_decides_while_something_is_stale_or_on_its_way() {
    let mut t = Scenario::new();
    let job = t.job().submit();
    assert!(empty(&t).own(&leases(2)).is_none(), "the follower has not read all rows");
    let mut follower = empty(&t);
    follower.loaded();
    follower.follow(&[Touched::Rows(LiveKey::Job(job))]).unwrap();
    assert!(follower.own(&leases(2)).is_none());
}

/// The execution is read before its job, whose row refers to it only later.
#[test]
fn rows_that_contradict_each_other_are_read_again() {
    let mut t = Scenario::new();
    t.worker().join();
    let waits = t.rows.live();
    let job = t.job().submit();
    t.start(job);
    let runs = t.rows.live();
    let mut follower = empty(&t);
    let is_execution = |row: &LiveRow| matches!(row, LiveRow::Execution(_));
    waits
        .into_iter()
        .chain(runs.clone().into_iter().filter(is_execution))
        .for_each(|row| follower.restore(row));
    follower.loaded();
    assert_eq!(follower.stale(9), [LiveKey::Job(job)]);
    let again = runs.into_iter().filter(|row| LiveKey::of(row) == Some(LiveKey::Job(job)));
    follower.refresh(&[LiveKey::Job(job)], again.collect());
    assert!(follower.own(&leases(2)).is_some());
}

#[test]
fn changed_calendars_are_not_followed() {
    let t = Scenario::new();
    assert_eq!(empty(&t).follow(&[Touched::Rows(LiveKey::Calendars)]), Err(Unfollowed));
}

#[test]
fn keys_are_forgotten_by_their_shard_and_time() {
    let mut t = Scenario::new();
    let job = t.job().submit();
    let key = |key, expires_at| KeyRecord { key, body: 0, job, expires_at };
    let (old, new) = (t.now, Timestamp::from_micros(t.now.as_micros() + 1));
    let touched = [Touched::Key(key(1, old)), Touched::Key(key(2, new))];
    let forgotten = |shard| Touched::KeysForgotten { shard, expired_before: old };
    let elsewhere = ShardId((job.shard().0 + 1) % SHARDS);
    let cold = |keys: &[KeyRecord]| {
        let mut engine = engine::Engine::new(Config::default(), &leases(2), SHARDS, old);
        keys.iter().for_each(|key| engine.restore(LiveRow::Key(*key)).unwrap());
        engine
    };
    let (late, all) = (key(3, old), vec![key(1, old), key(2, new), key(3, old)]);
    for (shard, kept) in [(job.shard(), vec![key(2, new), late]), (elsewhere, all)] {
        let mut follower = empty(&t);
        follower.loaded();
        follower.follow(&touched).unwrap();
        // A key that had expired when it was used was not among the keys purged before.
        follower.follow(&[forgotten(shard), Touched::Key(key(3, old))]).unwrap();
        assert_eq!(follower.own(&leases(2)).unwrap().difference(&cold(&kept)), None);
    }
}

/// I21. The standby time gives no burst.
#[test]
fn rates_begin_with_the_ownership() {
    let mut t = Scenario::new();
    t.queue(
        "default",
        QueueSettings { rate_per_second: Some(0.5), burst: Some(9), ..QueueSettings::default() },
    );
    let worker = t.worker().join();
    t.pass(600);
    t.restart();
    t.rejoin(worker);
    for _ in 0..5 {
        t.job().submit();
    }
    assert_eq!(t.running(), 0);
    t.pass(2);
    assert_eq!(t.running(), 1);
}

/// A clock that was an hour ahead when the follower started, and was set back since.
#[test]
fn engine_time_is_that_of_the_rows_and_of_the_start() {
    let mut t = Scenario::new();
    t.worker().join();
    let job = t.job().in_seconds(1_800).submit();
    let ahead = t.now + model::Duration::from_hours(1);
    let mut follower = Follower::new(Config::default(), SHARDS, ahead);
    t.rows.live().into_iter().for_each(|row| follower.restore(row));
    follower.loaded();
    let mut engine = follower.own(&leases(2)).unwrap();
    engine.start(t.now);
    engine.flush(t.now);
    assert_eq!(engine.view().live.get(&JobStatus::Ready), Some(&1), "{job} is not ready");
    assert_eq!(engine.flush(t.now).batch.now, t.now);
}
