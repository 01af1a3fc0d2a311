//! Rules for the audit log.
//!
//! # Invariants
//! - The chain is linear: of two servers that append after the same row, one is refused.
//! - What remains after retention continues after the noted cut.

use model::Timestamp;

use super::{Fixture, Subject};
use crate::audit::{AuditChain, AuditFilter, AuditLink, AuditRow};
use crate::query::Page;

/// Returns a row; the store does not check hashes.
fn row(sequence: u64, namespace: Option<&str>, actor: &str) -> AuditRow {
    AuditRow {
        link: AuditLink { sequence, hash: [sequence as u8; 32] },
        at: Timestamp::from_millis(sequence as i64 * 1_000),
        namespace: namespace.map(str::to_owned),
        actor: actor.to_owned(),
        action: "cancel_job".into(),
        verb: "operate".into(),
        resource: "jobs".into(),
        object: sequence.is_multiple_of(2).then(|| format!("job {sequence}")),
        outcome: if sequence.is_multiple_of(3) { "denied" } else { "allowed" }.into(),
        body: format!("{{\"action\":\"钟 {sequence}\"}}"),
    }
}

pub(crate) fn rows(sequences: std::ops::RangeInclusive<u64>) -> Vec<AuditRow> {
    sequences
        .map(|n| row(n, [None, Some("a"), Some("b\0")][n as usize % 3], ["ann", "钟\0"][n as usize % 2]))
        .collect()
}

fn link(sequence: u64) -> AuditLink {
    AuditLink { sequence, hash: [sequence as u8; 32] }
}

async fn filled<S: Subject>(count: u64) -> Fixture<S> {
    let scene = Fixture::<S>::new().await;
    assert!(scene.store().append_audit(&AuditLink::default(), &rows(1..=count)).await.unwrap());
    scene
}

/// H3.
pub async fn appended_entries_of_the_audit_log_are_kept_in_order<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    assert_eq!(scene.store().audit_chain().await.unwrap(), AuditChain::default());
    assert!(scene.store().append_audit(&AuditLink::default(), &rows(1..=4)).await.unwrap());
    assert!(scene.store().append_audit(&link(4), &rows(5..=6)).await.unwrap());
    let scene = scene.reopen().await;
    let chain = AuditChain { last: link(6), cut: AuditLink::default() };
    assert_eq!(scene.store().audit_chain().await.unwrap(), chain);
    assert_eq!(scene.store().audit_after(0, 100).await.unwrap(), rows(1..=6));
    assert_eq!(scene.store().audit_after(2, 3).await.unwrap(), rows(3..=5));
}

/// H3. The chain must not fork.
pub async fn of_two_servers_that_append_one_is_refused<S: Subject>() {
    let scene = filled::<S>(2).await;
    let store = scene.store();
    let (first, second) = ([row(3, None, "one")], [row(3, None, "other"), row(4, None, "other")]);
    let last = link(2);
    let (one, other) = tokio::join!(store.append_audit(&last, &first), store.append_audit(&last, &second));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one != other, "{one} {other}");
    let expected = if one { first.to_vec() } else { second.to_vec() };
    assert_eq!(store.audit_after(2, 100).await.unwrap(), expected);
    // The same position with another hash is another chain.
    let foreign = AuditLink { hash: [9; 32], ..store.audit_chain().await.unwrap().last };
    assert!(!store.append_audit(&foreign, &[row(9, None, "x")]).await.unwrap());
    assert!(!store.append_audit(&link(2), &[row(9, None, "x")]).await.unwrap());
}

/// H3.
pub async fn every_filter_of_the_audit_log_finds_the_matching_entries<S: Subject>() {
    let scene = filled::<S>(12).await;
    let text = |text: &str| Some(text.to_owned());
    let at = |second: i64| Some(Timestamp::from_millis(second * 1_000));
    let any = AuditFilter::default;
    for (filter, expected) in [
        (any(), (1..=12).rev().collect()),
        (AuditFilter { namespace: text("a"), ..any() }, vec![10, 7, 4, 1]),
        (AuditFilter { namespace: text("b\0"), actor: text("ann"), ..any() }, vec![8, 2]),
        (AuditFilter { actor: text("钟\0"), ..any() }, vec![11, 9, 7, 5, 3, 1]),
        (AuditFilter { object: text("job 4"), ..any() }, vec![4]),
        (AuditFilter { outcome: text("denied"), ..any() }, vec![12, 9, 6, 3]),
        (AuditFilter { verb: text("operate"), resource: text("jobs"), since: at(11), ..any() }, vec![12, 11]),
        (AuditFilter { since: at(3), until: at(5), ..any() }, vec![4, 3]),
        (AuditFilter { until: at(2), ..any() }, vec![1]),
        (AuditFilter { until: at(1), ..any() }, vec![]),
        (AuditFilter { since: at(13), ..any() }, vec![]),
        (AuditFilter { action: text("submit_jobs"), ..any() }, vec![]),
    ] {
        let found = scene.store().audit(&filter, Page { after: None, limit: 50 }).await.unwrap();
        let sequences: Vec<_> = found.items.iter().map(|row| row.link.sequence).collect();
        assert_eq!(sequences, expected, "{filter:?}");
    }
    let page = scene.store().audit(&any(), Page { after: Some(6), limit: 3 }).await.unwrap();
    let (mut items, more) = (page.items, page.more);
    items.reverse();
    assert_eq!((items, more), (rows(3..=5), true));
}

/// H3. The rest of the chain can be verified from the noted cut on.
pub async fn old_entries_of_the_audit_log_are_deleted_from_the_oldest_on<S: Subject>() {
    let scene = filled::<S>(6).await;
    let store = scene.store();
    let before = Timestamp::from_millis(4_000);
    assert_eq!(store.trim_audit(Timestamp::from_millis(1_000), 10).await.unwrap(), 0);
    assert_eq!(store.trim_audit(before, 2).await.unwrap(), 2);
    assert_eq!(store.audit_chain().await.unwrap(), AuditChain { last: link(6), cut: link(2) });
    assert_eq!(store.trim_audit(before, 2).await.unwrap(), 1);
    assert_eq!(store.trim_audit(before, 2).await.unwrap(), 0);
    assert_eq!(store.audit_chain().await.unwrap(), AuditChain { last: link(6), cut: link(3) });
    assert_eq!(store.audit_after(0, 10).await.unwrap(), rows(4..=6));
    // Everything is old: the chain continues all the same.
    assert_eq!(store.trim_audit(Timestamp::from_millis(60_000), 10).await.unwrap(), 3);
    assert_eq!(store.audit_chain().await.unwrap(), AuditChain { last: link(6), cut: link(6) });
    assert!(store.append_audit(&link(6), &rows(7..=7)).await.unwrap());
    let scene = scene.reopen().await;
    assert_eq!(scene.store().audit_after(0, 10).await.unwrap(), rows(7..=7));
}
