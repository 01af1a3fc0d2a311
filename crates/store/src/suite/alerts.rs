//! Rules for the rows of alerts.
//!
//! # Invariants
//! - Of two changes of the same version, one is applied, completely.

use super::{Fixture, Subject};
use crate::{AlertChange, AlertRow, AlertRows};

fn row(kind: &str, key: &str, body: &str) -> AlertRow {
    AlertRow { kind: kind.into(), key: key.into(), body: body.into() }
}

fn put(kind: &str, key: &str, body: &str) -> AlertChange {
    AlertChange { kind: kind.into(), key: key.into(), body: Some(body.into()) }
}

fn delete(kind: &str, key: &str) -> AlertChange {
    AlertChange { kind: kind.into(), key: key.into(), body: None }
}

/// H3.
pub async fn rows_of_alerts_are_kept_replaced_and_deleted<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    assert_eq!(store.alerts().await.unwrap(), AlertRows { version: 1, rows: Vec::new() });
    let changes = [put("rule", "default/a", "1"), put("alert", "钟\0", "\0\u{1}"), put("alert", "7", "{}")];
    assert!(store.change_alerts(1, 2, &changes).await.unwrap());
    let changes = [put("rule", "default/a", "2"), delete("alert", "7"), delete("alert", "8")];
    assert!(store.change_alerts(2, 900, &changes).await.unwrap());
    let scene = scene.reopen().await;
    let rows = vec![row("alert", "钟\0", "\0\u{1}"), row("rule", "default/a", "2")];
    assert_eq!(scene.store().alerts().await.unwrap(), AlertRows { version: 900, rows });
    assert!(scene.store().change_alerts(900, 901, &[]).await.unwrap());
    assert_eq!(scene.store().alerts().await.unwrap().version, 901);
}

/// H3, D6. The loser is no longer the leader.
pub async fn a_change_of_outdated_rows_of_alerts_writes_nothing<S: Subject>() {
    let scene = Fixture::<S>::new().await;
    let store = scene.store();
    let (first, second) = ([put("alert", "1", "a")], [put("alert", "1", "b"), put("alert", "2", "b")]);
    let (one, other) = tokio::join!(store.change_alerts(1, 2, &first), store.change_alerts(1, 2, &second));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one != other, "{one:?} {other:?}");
    let rows =
        if one { vec![row("alert", "1", "a")] } else { vec![row("alert", "1", "b"), row("alert", "2", "b")] };
    let expected = AlertRows { version: 2, rows };
    assert_eq!(store.alerts().await.unwrap(), expected);
    for outdated in [0, 1, 3] {
        assert!(!store.change_alerts(outdated, 9, &[delete("alert", "1")]).await.unwrap());
    }
    assert_eq!(store.alerts().await.unwrap(), expected);
}
