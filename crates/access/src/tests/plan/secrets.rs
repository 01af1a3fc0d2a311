//! Changes of secrets.

use std::collections::BTreeMap;

use model::limits::SECRETS_MAX;

use super::*;

fn put(namespace: &str, name: &str, value: &str, expected: Option<u64>) -> Change {
    let values = BTreeMap::from([("password".to_owned(), value.to_owned())]);
    Change::PutSecret { namespace: namespace.into(), name: name.into(), description: None, values, expected }
}

fn delete(namespace: &str, name: &str, expected: Option<u64>) -> Change {
    Change::DeleteSecret { namespace: namespace.into(), name: name.into(), expected }
}

#[test]
fn a_secret_has_a_version_for_each_change() {
    let mut scenario = office();
    assert_eq!(scenario.act("root", put("finance", "db", "v1.one", None)), ["secret finance/db"]);
    assert_eq!(scenario.act("root", put("finance", "db", "v1.one", None)), [""; 0], "unchanged");
    assert_eq!(scenario.act("root", put("finance", "db", "v1.two", Some(1))), ["secret finance/db"]);
    let secret = scenario.directory.secret("finance", "db").unwrap();
    assert_eq!((secret.version, secret.values["password"].as_str()), (2, "v1.two"));
    assert!(scenario.directory.secret("other", "db").is_none());
    assert_codes(
        &scenario,
        "outdated",
        [
            ("root", put("finance", "db", "x", Some(1))),
            ("root", put("finance", "new", "x", Some(1))),
            ("root", put("finance", "db", "x", Some(0))),
            ("root", delete("finance", "db", Some(1))),
        ],
    );
    assert_codes(&scenario, "not_found", [("root", delete("other", "db", None))]);
    let rows = scenario.act("root", delete("finance", "db", Some(2)));
    assert_eq!(rows, ["secret finance/db"]);
    assert!(scenario.directory.secret("finance", "db").is_none());
}

#[test]
fn only_developers_and_administrators_of_the_namespace_change_its_secrets() {
    let mut scenario = Scenario::new();
    for (role, name) in [("viewer", "vera"), ("operator", "otto"), ("developer", "dora"), ("admin", "abel")] {
        scenario = scenario.user(name).bound(name, role, "finance");
    }
    for name in ["dora", "abel"] {
        assert_eq!(scenario.act(name, put("finance", name, "x", None)).len(), 1);
    }
    assert_codes(
        &scenario,
        "denied",
        [
            ("vera", put("finance", "db", "x", None)),
            ("otto", put("finance", "db", "x", None)),
            ("otto", delete("finance", "dora", None)),
            ("dora", put("other", "db", "x", None)),
            ("dora", delete("other", "db", None)),
        ],
    );
}

#[test]
fn a_namespace_has_a_limit_of_secrets() {
    let mut scenario = office();
    for i in 0..SECRETS_MAX {
        scenario.act("root", put("finance", &format!("s{i}"), "x", None));
    }
    assert_codes(&scenario, "secret_limit", [("root", put("finance", "more", "x", None))]);
    assert_eq!(scenario.act("root", put("finance", "s0", "y", None)).len(), 1, "an existing one");
    assert_eq!(scenario.act("root", put("finance-2", "more", "x", None)).len(), 1, "another namespace");
}

#[test]
fn the_audit_log_and_the_debug_output_hide_values() {
    let mut scenario = office();
    scenario.act("root", put("finance", "db", "v1.one", None));
    let root = scenario.identity("root");
    let rows = scenario.directory.plan(&root, put("finance", "db", "v1.two", None), now()).unwrap();
    let changed =
        format!("{:?} {:?}", scenario.directory.changed(&rows), scenario.directory.secret("finance", "db"));
    assert!(changed.contains("******") && !changed.contains("v1."), "{changed}");
}
