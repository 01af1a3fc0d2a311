//! Cost of decisions, changes and loading: `cargo bench -p belfry-access`.
//!
//! For developers of this crate: run the benchmarks before and after a change. Preparation is not measured.

use access::{
    Account, AccountKind, Bearer, Binding, Directory, Entry, Identity, Object, Resource, Row, Token,
    TokenHash, Verb,
};
use divan::{Bencher, black_box};
use model::Timestamp;

fn main() {
    divan::main();
}

fn now() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().expect("it is a time")
}

fn account(name: &str, bindings: usize) -> Vec<Row> {
    let (created_at, created_by) = (now(), "root");
    let account = Entry::Account(Account {
        name: name.into(),
        kind: AccountKind::User,
        title: None,
        disabled: false,
        submit_rate: access::SubmitRate::Default,
        created_at,
        created_by: created_by.into(),
    });
    let token = Entry::Token(Token {
        id: name.into(),
        bearer: Bearer::Account(name.into()),
        description: None,
        hash: TokenHash([7; 32]),
        scope: None,
        created_at,
        created_by: created_by.into(),
        expires_at: None,
        session: false,
        revoked_at: None,
    });
    let binding = |n| {
        Entry::Binding(Binding {
            role: "developer".into(),
            subject: name.into(),
            namespace: format!("team-{n:03}"),
            created_at,
            created_by: created_by.into(),
        })
    };
    [account, token].into_iter().chain((0..bindings).map(binding)).map(|entry| entry.row()).collect()
}

fn directory(accounts: usize, bindings: usize) -> Directory {
    let mut directory = Directory::default();
    let rows = (0..accounts).flat_map(|n| account(&format!("user{n}"), bindings));
    assert_eq!(directory.apply(rows), []);
    directory
}

fn identity(bindings: usize) -> Identity {
    directory(1, bindings).identity("user0", now()).expect("a usable token")
}

const BINDINGS: &[usize] = &[1, 20, 1_000];

/// The grant is the last one.
#[divan::bench(args = BINDINGS)]
fn allow(bencher: Bencher, bindings: usize) {
    let identity = identity(bindings);
    let namespace = format!("team-{:03}", bindings - 1);
    let object = Object::in_namespace(Resource::Jobs, &namespace);
    assert!(identity.decide(Verb::Change, object).is_ok());
    bencher.bench_local(|| identity.decide(black_box(Verb::Change), black_box(object)));
}

#[divan::bench(args = BINDINGS)]
fn deny(bencher: Bencher, bindings: usize) {
    let identity = identity(bindings);
    let object = Object::in_namespace(Resource::Jobs, "sales");
    assert!(identity.decide(Verb::Change, object).is_err());
    bencher.bench_local(|| identity.decide(black_box(Verb::Change), black_box(object)));
}

#[divan::bench(args = BINDINGS)]
fn namespaces(bencher: Bencher, bindings: usize) {
    let identity = identity(bindings);
    bencher.bench_local(|| identity.namespaces(black_box(Verb::Read), Resource::Jobs));
}

/// From the id of a token to its identity.
#[divan::bench(args = [1, 10_000])]
fn identify(bencher: Bencher, accounts: usize) {
    let directory = directory(accounts, 10);
    bencher.bench_local(|| directory.identity(black_box("user0"), now()));
}

#[divan::bench(args = [1, 10_000], sample_count = 10)]
fn load(bencher: Bencher, accounts: usize) {
    let rows = || (0..accounts).flat_map(|n| account(&format!("user{n}"), 10)).collect::<Vec<_>>();
    bencher.with_inputs(rows).bench_local_values(|rows| {
        let mut directory = Directory::default();
        directory.apply(rows);
        directory
    });
}

/// One more binding of an account.
#[divan::bench(args = [1, 10_000], sample_count = 10)]
fn bind(bencher: Bencher, accounts: usize) {
    let directory = directory(accounts, 10);
    let row = account("user0", 11).pop().expect("the last binding");
    bencher.with_inputs(|| directory.clone()).bench_local_values(|mut directory| {
        directory.apply([row.clone()]);
        directory
    });
}
