//! Rules for the entries of access control.
//!
//! # Invariants
//! - Every change has its own version, and a reader that knows a version gets exactly what changed after it.
//! - Of two changes of the same version, one is applied, completely.

use super::{Fixture, Subject};
use crate::{AccessRow, AccessRows};

fn row(kind: &str, key: &str, body: &str) -> AccessRow {
    AccessRow { kind: kind.into(), key: key.into(), body: body.into() }
}

/// H2.
pub async fn entries_of_access_control_are_kept_and_replaced<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    assert_eq!(store.access(0).await.unwrap(), AccessRows { version: 1, rows: Vec::new() });
    let (ann, bob, role) =
        (row("account", "ann", "1"), row("account", "钟\0", "\0\u{1}"), row("role", "ann", "2"));
    let rows = [role.clone(), bob.clone(), ann];
    assert!(store.change_access(1, 2, &rows).await.unwrap());
    let changed = row("account", "ann", "{\"name\": \"ann\"}");
    assert!(store.change_access(2, 900, std::slice::from_ref(&changed)).await.unwrap());
    let scene = scene.reopen().await;
    let found = scene.store().access(0).await.unwrap();
    assert_eq!(found, AccessRows { version: 900, rows: vec![changed, bob, role] });
}

/// H2. A server reads only what changed since its last look.
pub async fn entries_that_changed_after_a_version_are_returned<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    store.change_access(1, 2, &[row("token", "a", "1"), row("token", "b", "1")]).await.unwrap();
    store.change_access(2, 3, &[row("token", "b", "2"), row("token", "c", "2")]).await.unwrap();
    let rows = vec![row("token", "b", "2"), row("token", "c", "2")];
    assert_eq!(store.access(2).await.unwrap(), AccessRows { version: 3, rows });
    assert_eq!(store.access(3).await.unwrap(), AccessRows { version: 3, rows: Vec::new() });
    assert_eq!(store.access(0).await.unwrap().rows.len(), 3);
}

/// H2. The loser must look at the newer entries before it decides again.
pub async fn a_change_of_outdated_entries_writes_nothing<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    let (first, second) = ([row("token", "a", "1")], [row("token", "a", "2"), row("token", "b", "2")]);
    let (one, other) = tokio::join!(store.change_access(1, 2, &first), store.change_access(1, 2, &second));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one != other, "{one:?} {other:?}");
    let expected = if one { first.to_vec() } else { second.to_vec() };
    assert_eq!(store.access(0).await.unwrap(), AccessRows { version: 2, rows: expected.clone() });
    for outdated in [0, 1, 3] {
        assert!(!store.change_access(outdated, 9, &[row("token", "z", "3")]).await.unwrap());
    }
    assert_eq!(store.access(0).await.unwrap(), AccessRows { version: 2, rows: expected });
}

/// H2. Rows that no server uses any more leave no trace, and no server reads the others again.
pub async fn unchanged_entries_are_deleted_without_a_new_version<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    let rows = [row("token", "a", "1"), row("token", "b", "1"), row("token", "c", "1")];
    store.change_access(1, 2, &rows).await.unwrap();
    store.change_access(2, 3, &[row("token", "b", "2")]).await.unwrap();
    store.delete_access(&rows[..2]).await.unwrap();
    let kept = vec![row("token", "b", "2"), row("token", "c", "1")];
    assert_eq!(store.access(0).await.unwrap(), AccessRows { version: 3, rows: kept });
    store.delete_access(&[row("token", "b", "2")]).await.unwrap();
    let scene = scene.reopen().await;
    let rows = vec![row("token", "c", "1")];
    assert_eq!(scene.store().access(0).await.unwrap(), AccessRows { version: 3, rows });
}
