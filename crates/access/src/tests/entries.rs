//! Rows and their reading.

use super::{account, binding, days, deletion, login, now, role, scope, token};
use crate::{Bearer, Directory, Entry, Resource, Row, Rule, Token, Verb};

fn row(kind: &str, key: &str, body: &str) -> Row {
    Row { kind: kind.into(), key: key.into(), body: body.into() }
}

fn entries() -> [Entry; 6] {
    [
        Entry::Account(crate::Account { title: Some("Ann 安".into()), ..account("ann") }),
        Entry::Role(role("deployer", &[Rule { verbs: vec![Verb::Read], resources: vec![Resource::Jobs] }])),
        Entry::Binding(binding("deployer", "ann", "team/*")),
        Entry::Token(Token {
            scope: Some(scope(Some("viewer"), &["team/a"])),
            expires_at: Some(now()),
            ..token("4w1", Bearer::Account("ann".into()))
        }),
        Entry::Token(Token {
            session: true,
            expires_at: Some(now() + days(1)),
            ..token("5x2", Bearer::Account("ann".into()))
        }),
        Entry::Login(login("ann")),
    ]
}

#[test]
fn bodies_are_plain_json() {
    let text: Vec<_> = entries()
        .iter()
        .map(Entry::row)
        .map(|row| format!("{} {}\n{}\n", row.kind, row.key, row.body))
        .collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn an_unknown_field_or_value_makes_an_entry_unreadable() {
    for entry in entries() {
        let valid = entry.row();
        for body in [
            valid.body.replacen('{', r#"{"only_from":"10.0.0.0/8","#, 1),
            valid.body.replace("created_at", "made_at").replace("verbs", "words"),
            valid.body.replace(r#""kind":"user""#, r#""kind":"robot""#).replace(r#""read""#, r#""admire""#),
            String::new(),
            "{}".into(),
        ] {
            if body == valid.body {
                continue;
            }
            let mut directory = Directory::default();
            let found = directory.apply([Row { body: body.clone(), ..valid.clone() }]);
            assert_eq!(found.len(), 1, "{body}");
            assert_eq!((found[0].kind.as_str(), found[0].key.as_str()), (entry.kind(), &*entry.key()));
            let read = directory.accounts().count()
                + directory.bindings().count()
                + directory.tokens().count()
                + usize::from(directory.has_login_row("ann"));
            assert_eq!((read, directory.roles().count()), (0, 4), "{body}");
        }
    }
}

#[test]
fn rows_that_do_not_fit_are_unreadable() {
    let [ann, deployer, bound, limited, ..] = entries().map(|entry| entry.row());
    let worker = Entry::Token(token("w", Bearer::Worker("node-1".into()))).row();
    let messages: Vec<String> = [
        row("policy", "p", "{}"),
        Row { key: "bob".into(), ..ann.clone() },
        row("account", "@a", &ann.body.replace(r#""ann""#, r#""@a""#)),
        row("role", "viewer", &deployer.body.replace("deployer", "viewer")),
        row("role", "deployer", &deployer.body.replace(r#""read""#, r#""work""#)),
        row("binding", "deployer/ann/team/", &bound.body.replace("team/*", "team/")),
        Row { body: limited.body.replace("abab", "ABAB"), ..limited.clone() },
        Row {
            body: limited.body.replace(r#"{"role":"viewer","namespaces":["team/a"]}"#, "{}"),
            ..limited.clone()
        },
        Row {
            body: worker.body.replace(r#""hash""#, r#""scope":{"role":"viewer"},"hash""#),
            ..worker.clone()
        },
        Row { body: deletion(&entries()[3]).body, ..limited },
    ]
    .into_iter()
    .map(|row| {
        let found = Directory::default().apply([row.clone()]);
        assert_eq!(found.len(), 1, "{row:?}");
        found[0].to_string()
    })
    .collect();
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn secrets_are_not_printed() {
    let [_, _, _, limited, ..] = entries();
    let mut directory = Directory::default();
    directory.apply([limited.row()]);
    let Entry::Token(token) = &limited else { unreachable!() };
    let change = crate::Change::CreateToken {
        id: "a".into(),
        hash: token.hash,
        bearer: token.bearer.clone(),
        description: None,
        scope: None,
        expires_at: None,
    };
    for text in [
        format!("{:?}", limited.row()),
        format!("{limited:?}"),
        format!("{directory:?}"),
        format!("{change:?}"),
    ] {
        assert!(!text.contains("abab") && !text.contains("171"), "{text}");
    }
    assert!(limited.row().body.contains(&"ab".repeat(32)));
}
