//! Memory of a large directory: 10,000 accounts with 10 bindings and one token each.
//!
//! A separate process, because the figure is the growth of its resident memory.
#![cfg(target_os = "linux")]

use access::{Account, AccountKind, Bearer, Binding, Directory, Entry, Token, TokenHash};
use model::Timestamp;

const ACCOUNTS: usize = 10_000;
const BINDINGS: usize = 10;
const LIMIT_BYTES: u64 = 50 * 1024 * 1024;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has this file");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a number of KiB") * 1024
}

fn entries() -> impl Iterator<Item = Entry> {
    let (created_at, created_by) = (Timestamp::from_millis(1_772_438_400_000), "root");
    let roles = ["viewer", "operator", "developer"];
    (0..ACCOUNTS).flat_map(move |n| {
        let name = format!("user-{n}@example.com");
        let bindings = (0..BINDINGS).map({
            let account = name.clone();
            move |b| {
                Entry::Binding(Binding {
                    role: roles[b % 3].into(),
                    subject: account.as_str().into(),
                    namespace: format!("team-{}", (n * 7 + b) % 500),
                    created_at,
                    created_by: created_by.into(),
                })
            }
        });
        let account = Entry::Account(Account {
            name: name.clone(),
            kind: AccountKind::User,
            title: Some(format!("User {n}")),
            disabled: false,
            submit_rate: access::SubmitRate::Default,
            created_at,
            created_by: created_by.into(),
        });
        let token = Entry::Token(Token {
            id: format!("token{n}"),
            bearer: Bearer::Account(name),
            description: None,
            hash: TokenHash([7; 32]),
            scope: None,
            created_at,
            created_by: created_by.into(),
            expires_at: None,
            session: false,
            revoked_at: None,
        });
        [account, token].into_iter().chain(bindings)
    })
}

#[test]
fn a_hundred_thousand_bindings_stay_within_50_mib() {
    let before = resident_bytes();
    let mut directory = Directory::default();
    assert_eq!(directory.apply(entries().map(|entry| entry.row())), []);
    let used = resident_bytes() - before;
    assert_eq!(directory.bindings().count(), ACCOUNTS * BINDINGS);
    assert!(used <= LIMIT_BYTES, "{used} bytes");
}
