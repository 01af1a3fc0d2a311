//! Requests about access control: which are repeated, and how lists are filtered.

use client::{BindingFilter, Error, TokenFilter};
use model::api::{CreateToken, TokenKind, TokenStatus};
use serde_json::json;

use crate::fake::Fake;

/// Otherwise a user who sees one token could own two.
#[tokio::test]
async fn a_token_is_not_created_again_if_the_outcome_is_unknown() {
    let fake = Fake::default();
    fake.drops_connection();
    let client = fake.start().await;
    let error = client.create_token(&CreateToken::default()).await.unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }), "{error:?}");
    assert_eq!(fake.lines(), ["POST /api/v1/tokens"]);
}

#[tokio::test]
async fn a_revocation_is_repeated_until_its_outcome_is_known() {
    let fake = Fake::default();
    fake.drops_connection().answers(200, json!({}));
    fake.start().await.revoke_token("4w1kq0zj8x2m").await.unwrap();
    assert_eq!(fake.lines(), ["DELETE /api/v1/tokens/4w1kq0zj8x2m"; 2]);
}

#[tokio::test]
async fn conditions_of_lists_are_parameters() {
    let fake = Fake::default();
    fake.answers(200, json!({"items": []})).answers(200, json!({"items": []}));
    let client = fake.start().await;
    let filter = TokenFilter {
        name: Some("ann@example.com".into()),
        kinds: vec![TokenKind::User, TokenKind::Service],
        statuses: vec![TokenStatus::Revoked],
    };
    client.tokens(&filter).await.unwrap();
    let all = BindingFilter { namespace: Some("*".into()), ..BindingFilter::default() };
    client.bindings(&all).await.unwrap();
    assert_eq!(
        fake.lines(),
        [
            "GET /api/v1/tokens?name=ann%40example.com&kind=user%2Cservice&status=revoked",
            "GET /api/v1/bindings?namespace=*"
        ]
    );
}
