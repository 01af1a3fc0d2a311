//! Requests of a running task through its socket.

use client::AddedElements;
use serde_json::json;

use crate::fake::Fake;

/// C4. A request with an unknown outcome is retried unchanged; the name of the batch makes it idempotent.
#[tokio::test]
async fn adding_elements_is_retried_until_the_outcome_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let answer = json!({"step": "page", "first": 7, "count": 2, "total": 9, "added": true});
    fake.refuses(503, "outcome_unknown", Some(1)).answers(201, answer.clone()).answers(200, answer);
    let task = fake.start_task(&folder.path().join("task.sock"));
    let elements = [json!({"page": 1}), json!("two")];
    let added = task.add_elements(None, "depth 1/\u{9875}", &elements).await.unwrap();
    let expected = AddedElements { step: "page".into(), first: 7, count: 2, total: 9, added: true };
    assert_eq!(added, expected);
    task.add_elements(Some("page"), "b", &elements).await.unwrap();
    let first = "POST /elements?batch=depth+1%2F%E9%A1%B5";
    assert_eq!(fake.lines(), [first, first, "POST /elements?step=page&batch=b"]);
    assert!(fake.requests().iter().all(|asked| asked.json() == json!(elements)));
}

/// C4.
#[tokio::test]
async fn elements_that_are_refused_are_not_added_again() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    fake.refuses(404, "elements_not_accepted", None);
    let task = fake.start_task(&folder.path().join("task.sock"));
    let refused = task.add_elements(None, "x", &[json!(1)]).await.unwrap_err();
    assert_eq!((refused.code(), fake.lines().len()), (Some("elements_not_accepted"), 1));
}
