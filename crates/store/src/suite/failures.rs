//! Rules for groups of failures.
//!
//! As for statistics, a failure is in exactly one place: pending with its commit, or in its group. What a store must
//! return is computed here with the same types, in the order of the commits, without any fold.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::failures::{FailureCount, FailureGroup, FailureMark, FailureState, Signature};
use model::record::Batch;
use model::statistics::CommitStatistics;
use model::{Duration, JobId, Timestamp};

use super::{Fixture, Subject};
use crate::failures::{FailureQuery, GROUPS_KEPT, GROUPS_MAX, KEPT};

fn failure(namespace: &str, name: &str, message: &str, job: u128) -> FailureCount {
    FailureCount {
        namespace: namespace.into(),
        name: name.into(),
        signature: Signature::new("exit_code", Some(1), message),
        count: 1,
        jobs: vec![JobId::from_bits(job)],
        message: message.into(),
    }
}

/// The groups that a store must return, by namespace and signature.
#[derive(Default)]
struct Expected(BTreeMap<(Arc<str>, Signature), FailureGroup>);

impl Expected {
    fn add(&mut self, at: Timestamp, failures: &FailureCount) {
        let key = (Arc::clone(&failures.namespace), failures.signature.clone());
        self.0
            .entry(key)
            .and_modify(|group| group.add(at, failures))
            .or_insert_with(|| FailureGroup::new(at, failures));
    }

    fn groups(&self, namespace: Option<&str>) -> Vec<FailureGroup> {
        let wanted = |group: &&FailureGroup| namespace.is_none_or(|wanted| &*group.namespace == wanted);
        let mut groups: Vec<_> = self.0.values().filter(wanted).cloned().collect();
        groups.sort_by(|a, b| b.last_seen.cmp(&a.last_seen).then_with(|| a.id().cmp(&b.id())));
        groups
    }
}

impl<S: Subject> Fixture<S> {
    async fn fail(&self, now: Timestamp, failures: Vec<FailureCount>) {
        let statistics = CommitStatistics { failures, ..CommitStatistics::default() };
        let batch = Batch { now, statistics, ..Batch::default() };
        self.store().commit(&self.leases, Arc::new(batch)).await.unwrap();
    }

    async fn groups(&self, namespace: Option<&str>) -> Vec<FailureGroup> {
        let query = FailureQuery { namespace: namespace.map(Into::into) };
        self.store().failures(&query).await.unwrap()
    }

    async fn fold_failures(&self) {
        while self.store().fold_statistics().await.unwrap() > 0 {}
    }
}

/// H6, D7. Whether a failure is pending or folded, of one namespace or of all, and after a restart at any time.
pub async fn failures_are_complete_before_and_after_a_fold<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let mut now = scene.sampler.now();
    let mut expected = Expected::default();
    for round in 0..6_u128 {
        for (number, (namespace, name, message)) in [
            ("a", "one", "KeyError: 'x'"),
            ("a", "two", "KeyError: 'x'"),
            ("b", "one", "KeyError: 'x'"),
            ("a", "one", "disk full"),
        ]
        .into_iter()
        .enumerate()
        {
            let failures = vec![failure(namespace, name, message, round * 10 + number as u128)];
            failures.iter().for_each(|failures| expected.add(now, failures));
            scene.fail(now, failures).await;
            now = now + Duration::from_secs(600);
        }
        for namespace in [None, Some("a"), Some("b"), Some("c")] {
            assert_eq!(
                scene.groups(namespace).await,
                expected.groups(namespace),
                "{namespace:?} in round {round}"
            );
        }
        match round {
            1 => scene = scene.reopen().await,
            2 | 4 => scene.fold_failures().await,
            _ => {}
        }
    }
    let groups = scene.groups(Some("a")).await;
    assert_eq!(groups.iter().map(|group| group.count).collect::<Vec<_>>(), [6, 12]);
    assert_eq!(groups[1].names.len(), 2);
}

/// H6. Any text and any number, in both places.
pub async fn every_field_of_a_failure_group_survives<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let now = scene.sampler.now();
    let mut expected = Expected::default();
    for _ in 0..20 {
        let failures = vec![scene.sampler.failures()];
        failures.iter().for_each(|failures| expected.add(now, failures));
        scene.fail(now, failures).await;
    }
    assert_eq!(scene.groups(None).await, expected.groups(None));
    scene.fold_failures().await;
    assert_eq!(scene.groups(None).await, expected.groups(None));
}

/// H6. A fold and a user may change a group at the same time.
pub async fn the_mark_of_a_group_survives_further_failures<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let now = scene.sampler.now();
    let failed = failure("a", "one", "disk full", 1);
    let id = failed.signature.group();
    let mark = FailureMark {
        state: FailureState::Known,
        note: Some("ticket\0\u{1} 7".into()),
        by: "ann".into(),
        at: now,
        count: 1,
    };
    assert!(!scene.store().mark_failures("a", id, Some(&mark)).await.unwrap(), "no job has failed");
    scene.fail(now, vec![failed.clone()]).await;
    scene.fold_failures().await;
    assert!(scene.store().mark_failures("a", id, Some(&mark)).await.unwrap());
    assert!(!scene.store().mark_failures("b", id, Some(&mark)).await.unwrap());
    scene
        .fail(now + Duration::from_secs(1), vec![FailureCount { jobs: vec![JobId::from_bits(2)], ..failed }])
        .await;
    scene = scene.reopen().await;
    for is_folded in [false, true] {
        let groups = scene.groups(Some("a")).await;
        assert_eq!(groups.len(), 1);
        assert_eq!((groups[0].count, groups[0].mark.as_ref()), (2, Some(&mark)), "folded: {is_folded}");
        scene.fold_failures().await;
    }
    assert!(scene.store().mark_failures("a", id, None).await.unwrap());
    assert_eq!(scene.groups(Some("a")).await[0].mark, None);
}

/// E7. New messages get groups again, at the cost of the groups without a mark whose failures are oldest.
pub async fn a_full_namespace_gets_room_for_new_groups<S: Subject>() {
    /// More than the difference between the limits, so that the groups with a mark need the room of others.
    const MARKED: usize = 150;
    let mut scene = Fixture::<S>::new().await;
    let mut now = scene.sampler.now();
    let letter = |i: u64| char::from(b'a' + u8::try_from(i % 26).unwrap());
    let message = |i: u64| format!("m {}{}{}", letter(i), letter(i / 26), letter(i / 676));
    for i in 0..=GROUPS_MAX {
        scene.fail(now, vec![failure("full", "one", &message(i), i.into())]).await;
        now = now + Duration::from_secs(1);
    }
    scene.fail(now, vec![failure("quiet", "one", "m", 1)]).await;
    scene.fold_failures().await;
    let groups = scene.groups(Some("full")).await;
    assert_eq!(groups.len() as u64, GROUPS_MAX + 1);
    assert_eq!(
        (&*groups[0].signature.message, groups[0].count),
        ("", 1),
        "the newest got no group of its own"
    );
    let (newest, marked) = groups.split_at(groups.len() - MARKED);
    let mark = FailureMark { state: FailureState::Muted, note: None, by: "ann".into(), at: now, count: 1 };
    for group in marked {
        assert!(scene.store().mark_failures("full", group.id(), Some(&mark)).await.unwrap());
    }

    while scene.store().trim_statistics(now).await.unwrap() > 0 {}
    let kept = scene.groups(Some("full")).await;
    assert_eq!(kept.len() as i64, GROUPS_KEPT);
    let (kept, kept_marked) = kept.split_at(kept.len() - MARKED);
    assert_eq!(kept, &newest[..kept.len()], "the newest, and all of each");
    assert!(kept_marked.iter().map(FailureGroup::id).eq(marked.iter().map(FailureGroup::id)));
    assert_eq!(scene.groups(Some("quiet")).await.len(), 1);
    scene.fail(now, vec![failure("full", "one", "something new", 1)]).await;
    scene.fold_failures().await;
    assert!(scene.groups(Some("full")).await.iter().any(|group| &*group.message == "something new"));
}

/// D10. A group is deleted when its newest failure is old, not when its first one is.
pub async fn groups_without_recent_failures_are_deleted<S: Subject>() {
    let mut scene = Fixture::<S>::new().await;
    let start = scene.sampler.now();
    let later = start + KEPT + Duration::from_secs(1);
    scene.fail(start, vec![failure("a", "one", "old", 1), failure("a", "one", "both", 2)]).await;
    scene.fail(later, vec![failure("a", "one", "both", 3)]).await;
    scene.fold_failures().await;
    while scene.store().trim_statistics(later - Duration::from_secs(2)).await.unwrap() > 0 {}
    assert_eq!(scene.groups(None).await.len(), 2);
    while scene.store().trim_statistics(later).await.unwrap() > 0 {}
    let groups = scene.groups(None).await;
    assert_eq!(groups.iter().map(|group| (&*group.message, group.count)).collect::<Vec<_>>(), [("both", 2)]);
}
