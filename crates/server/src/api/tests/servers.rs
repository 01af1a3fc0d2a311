//! Servers that share a store.

use axum::http::StatusCode;
use serde_json::json;
use store::cluster::ServerRecord;

use super::World;

/// D8, G5.
#[tokio::test]
async fn a_server_shows_whether_it_leads() {
    let world = World::new().await;
    world.services.members.announce_and_read().await.unwrap();
    let id = world.services.members.me().id;
    let all = world.get("/api/v1/servers").await.json();
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
    let shown = world.get(&format!("/api/v1/servers/{id}")).await.json();
    assert_eq!(all["items"][0], shown);
    assert_eq!((&shown["leader"], &shown["shards"]), (&json!(true), &json!(4)));
    assert_eq!((&shown["draining"], &shown["responder"]), (&json!(false), &json!(true)));
}

/// D8. One server must remain to lead.
#[tokio::test]
async fn a_server_is_drained_only_if_another_can_lead() {
    let world = World::new().await;
    world.services.members.announce_and_read().await.unwrap();
    let me = world.services.members.me().clone();
    let drain = format!("/api/v1/servers/{}/drain", me.id);
    let refused = world.post_nothing(&drain).await;
    assert_eq!((refused.status, &refused.json()["code"]), (StatusCode::CONFLICT, &json!("no_other_server")));

    let other = ServerRecord { id: model::ServerId::from_bits(1 << 80), name: "other".into(), ..me.clone() };
    let store = world.services.node.store();
    store.announce(&other, None, model::Duration::from_secs(600)).await.unwrap();
    let drained = world.post_nothing(&drain).await;
    assert_eq!((drained.status, &drained.json()["draining"]), (StatusCode::OK, &json!(true)));
    let undrained = world.post_nothing(&format!("/api/v1/servers/{}/undrain", me.id)).await;
    assert_eq!(undrained.json()["draining"], json!(false));

    store.remove_member(other.id).await.unwrap();
    for verb in ["drain", "undrain"] {
        let gone = world.post_nothing(&format!("/api/v1/servers/{}/{verb}", other.id)).await;
        let found = (gone.status, &gone.json()["code"]);
        assert_eq!(found, (StatusCode::NOT_FOUND, &json!("server_not_found")), "{verb}");
    }
}
