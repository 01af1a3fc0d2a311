//! Followers: engines of standbys that follow the rows of another owner, and rows that arrive late.
//!
//! At each restart, every scenario checks that a follower equals an engine rebuilt from the rows.

use engine::{Config, FollowError, Follower};
use model::changelog::{LiveChange, LiveKey};
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
fn job_that_ended_during_the_load_is_not_restored() {
    let mut t = Scenario::new();
    let (ended, lives) = (t.job().submit(), t.job().submit());
    let mut follower = empty(&t);
    let rows = t.rows.live();
    follower.follow(&[LiveChange::Ended(ended)]).unwrap();
    rows.into_iter().for_each(|row| follower.restore(row));
    follower.loaded();
    assert_eq!(count(&follower, JobStatus::Waiting), 1);
    let engine = follower.own(&leases(2)).unwrap();
    assert_eq!(engine.view().queues[0].waiting, 1, "{lives} alone waits");
}

#[test]
fn changed_key_is_stale_until_its_rows_are_read_again() {
    let mut t = Scenario::new();
    let job = t.job().submit();
    let mut follower = empty(&t);
    t.rows.live().into_iter().for_each(|row| follower.restore(row));
    follower.loaded();
    let key = LiveKey::Job(job);
    follower.follow(&[LiveChange::Rows(key)]).unwrap();
    assert_eq!((follower.stale(9), follower.stale_count()), (vec![key], 1));
    follower.refresh(&[key], Vec::new());
    assert_eq!(
        (follower.stale_count(), count(&follower, JobStatus::Waiting)),
        (0, 0),
        "it has no rows any more"
    );
}

#[test]
fn follower_with_stale_keys_does_not_become_an_engine() {
    let mut t = Scenario::new();
    let job = t.job().submit();
    assert!(empty(&t).own(&leases(2)).is_none(), "the follower has not read all rows");
    let mut follower = empty(&t);
    follower.loaded();
    follower.follow(&[LiveChange::Rows(LiveKey::Job(job))]).unwrap();
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
    assert_eq!(empty(&t).follow(&[LiveChange::Rows(LiveKey::Calendars)]), Err(FollowError));
}

#[test]
fn keys_are_purged_by_shard_and_time() {
    let mut t = Scenario::new();
    let job = t.job().submit();
    let key = |key, expires_at| KeyRecord { key, body: 0, job, expires_at };
    let (old, new) = (t.now, Timestamp::from_micros(t.now.as_micros() + 1));
    let touched = [LiveChange::Key(key(1, old)), LiveChange::Key(key(2, new))];
    let forgotten = |shard| LiveChange::KeysPurged { shard, expired_before: old };
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
        follower.follow(&[forgotten(shard), LiveChange::Key(key(3, old))]).unwrap();
        assert_eq!(follower.own(&leases(2)).unwrap().difference(&cold(&kept)), None);
    }
}

/// I21. The standby time gives no burst.
#[test]
fn rate_limits_start_empty_with_the_ownership() {
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
fn engine_time_comes_from_the_rows_and_the_start() {
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
