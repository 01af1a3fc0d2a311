//! Tests of the whole crate, through its public API.
//!
//! - `decisions`: the rules, as a table and as messages.
//! - `entries`: rows and their reading.
//! - `directory`: what rows do to identities.
//! - `plan`: rights of changes, and each refusal.
//! - `properties`: the invariants, for drawn directories.

mod decisions;
mod directory;
mod entries;
mod plan;
mod properties;

use model::{Duration, Timestamp};

use crate::{
    Account, AccountKind, Bearer, Binding, Change, CustomRole, Deletion, Directory, Entry, Identity,
    Invitation, Login, Password, PasswordHash, Refusal, Row, Rule, SubmitRate, Token, TokenHash, TokenScope,
};

fn now() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().unwrap()
}

fn days(count: u64) -> Duration {
    Duration::from_hours(24 * count)
}

fn account(name: &str) -> Account {
    let (created_at, created_by) = (now(), "root".to_owned());
    Account {
        name: name.into(),
        kind: AccountKind::User,
        title: None,
        disabled: false,
        submit_rate: SubmitRate::Default,
        created_at,
        created_by,
    }
}

fn binding(role: &str, account: &str, namespace: &str) -> Binding {
    Binding {
        role: role.into(),
        subject: account.into(),
        namespace: namespace.into(),
        created_at: now(),
        created_by: "root".into(),
    }
}

fn role(name: &str, rules: &[Rule]) -> CustomRole {
    CustomRole { name: name.into(), description: None, rules: rules.to_vec() }
}

fn token(id: &str, bearer: Bearer) -> Token {
    Token {
        id: id.into(),
        bearer,
        description: None,
        hash: TokenHash([0xab; 32]),
        scope: None,
        session: false,
        created_at: now(),
        created_by: "root".into(),
        expires_at: None,
        revoked_at: None,
    }
}

fn password_hash(text: &str) -> PasswordHash {
    PasswordHash(format!("$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ${text}"))
}

/// A login with a password, and an invitation for a day with the name of the account as its id.
fn login(name: &str) -> Login {
    let (created_at, created_by, expires_at) = (now(), "root".into(), now() + days(1));
    let hash = TokenHash([0xcd; 32]);
    Login {
        account: name.into(),
        account_created_at: now(),
        password: Some(Password { hash: password_hash(name), set_at: now() }),
        invitation: Some(Invitation { id: name.into(), hash, created_at, created_by, expires_at }),
        oidc: None,
        totp: None,
        last_login_at: None,
    }
}

fn scope(role: Option<&str>, namespaces: &[&str]) -> TokenScope {
    TokenScope {
        role: role.map(str::to_owned),
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn deletion(entry: &Entry) -> Row {
    let body = serde_json::to_string(&Deletion { deleted_at: now() }).unwrap();
    Row { body, ..entry.row() }
}

/// A directory with the admin token `root`. The token of an account has the name of the account as its ID.
struct Scenario {
    directory: Directory,
}

impl Scenario {
    fn new() -> Self {
        Self { directory: Directory::default() }.token(token("root", Bearer::Admin("root".into())))
    }

    fn entry(mut self, entry: Entry) -> Self {
        assert_eq!(self.directory.apply([entry.row()]), []);
        self
    }

    /// Adds a user with a token.
    fn user(self, name: &str) -> Self {
        self.entry(Entry::Account(account(name))).token(token(name, Bearer::Account(name.into())))
    }

    fn role(self, name: &str, rules: &[Rule]) -> Self {
        self.entry(Entry::Role(role(name, rules)))
    }

    fn bound(self, account: &str, role: &str, namespace: &str) -> Self {
        self.entry(Entry::Binding(binding(role, account, namespace)))
    }

    fn token(self, token: Token) -> Self {
        self.entry(Entry::Token(token))
    }

    /// Limits the token of an account.
    fn limited(self, account: &str, scope: TokenScope) -> Self {
        self.token(Token { scope: Some(scope), ..token(account, Bearer::Account(account.into())) })
    }

    #[track_caller]
    fn identity(&self, token_id: &str) -> Identity {
        self.directory.identity(token_id, now()).expect("a usable token")
    }

    fn plan(&self, actor: &str, change: Change) -> Result<Vec<Row>, Refusal> {
        self.directory.plan(&self.identity(actor), change, now())
    }

    #[track_caller]
    fn refusal(&self, actor: &str, change: Change) -> Refusal {
        self.plan(actor, change).expect_err("a refusal")
    }

    /// Plans and applies a change. Returns the keys of its rows.
    #[track_caller]
    fn act(&mut self, actor: &str, change: Change) -> Vec<String> {
        let rows = self.plan(actor, change).unwrap();
        let keys = rows.iter().map(|row| format!("{} {}", row.kind, row.key)).collect();
        assert_eq!(self.directory.apply(rows), []);
        keys
    }
}
