//! Checks of names and texts.
//!
//! What decisions depend on (names and namespaces) is checked for each change and for each row of the store; the
//! lengths of texts only for changes.

use model::limits;
use model::validate::{self, Invalid, Problem};

use crate::action::Verb;
use crate::entry::{Bearer, OidcIdentity, PasswordHash, Subject, Token, TokenScope};
use crate::role::Rule;

/// Maximum length of the name of an account: that of an e-mail address.
const ACCOUNT_NAME_LEN_MAX: usize = 254;
const TITLE_LEN_MAX: usize = 100;
const DESCRIPTION_LEN_MAX: usize = 200;
/// Maximum number of rules of a role, and of namespaces of a token.
const ENTRIES_MAX: usize = 100;
const TOKEN_ID_LEN_MAX: usize = 64;
const PASSWORD_HASH_LEN_MAX: usize = 300;
/// Maximum length of the name of a group, in characters.
const GROUP_NAME_LEN_MAX: usize = 200;
/// Maximum number of groups of an account.
const GROUPS_MAX: usize = 1_000;
/// Maximum length of the URL of an OpenID provider, in bytes.
const ISSUER_LEN_MAX: usize = 500;
/// Maximum length of the identifier of a person there, in bytes (OpenID Connect Core, section 2).
const SUBJECT_LEN_MAX: usize = 255;

/// Collects all errors of one object.
#[derive(Default)]
pub(crate) struct Check {
    problems: Vec<Problem>,
}

impl Check {
    pub(crate) fn ensure(&mut self, ok: bool, path: &str, message: impl FnOnce() -> String) {
        if !ok {
            self.problems.push(Problem { path: path.to_owned(), message: message() });
        }
    }

    /// # Errors
    /// [`Invalid`] with all errors, in the order of the checks.
    pub(crate) fn finish(self) -> Result<(), Invalid> {
        if self.problems.is_empty() { Ok(()) } else { Err(Invalid { problems: self.problems }) }
    }

    pub(crate) fn account_name(&mut self, path: &str, name: &str) {
        let ok = name.len() <= ACCOUNT_NAME_LEN_MAX
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && !name.ends_with('@')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'@'));
        self.ensure(ok, path, || {
            format!(
                "`{}` is not a valid account name: expected 1 to {ACCOUNT_NAME_LEN_MAX} letters, digits, `-`, `_`, \
                 `.` or `@`, starting with a letter or digit and not ending with `@`",
                shown(name)
            )
        });
    }

    pub(crate) fn role_name(&mut self, path: &str, name: &str) {
        self.ensure(validate::name(name).is_ok(), path, || {
            format!(
                "`{}` is not a valid name: expected 1 to {} letters, digits, `-`, `_` or `.`, starting with a letter \
                 or digit",
                shown(name),
                limits::NAME_LEN_MAX
            )
        });
    }

    pub(crate) fn subject(&mut self, subject: &Subject) {
        match subject {
            Subject::Account(name) => self.account_name("account", name),
            Subject::Group(name) => self.group_name("group", name),
        }
    }

    fn group_name(&mut self, path: &str, name: &str) {
        let length = name.chars().count();
        let ok = (1..=GROUP_NAME_LEN_MAX).contains(&length) && !name.chars().any(char::is_control);
        self.ensure(ok, path, || {
            format!(
                "`{}` is not a valid group name: expected 1 to {GROUP_NAME_LEN_MAX} characters, without control \
                 characters",
                shown(name)
            )
        });
    }

    pub(crate) fn oidc(&mut self, identity: &OidcIdentity) {
        let OidcIdentity { issuer, subject, groups, .. } = identity;
        for (field, text, max) in [("issuer", issuer, ISSUER_LEN_MAX), ("subject", subject, SUBJECT_LEN_MAX)]
        {
            let ok = (1..=max).contains(&text.len()) && !text.chars().any(char::is_control);
            self.ensure(ok, &format!("oidc.{field}"), || {
                format!("expected 1 to {max} bytes, without control characters")
            });
        }
        self.ensure(groups.len() <= GROUPS_MAX, "oidc.groups", || {
            format!("has {} entries: expected at most {GROUPS_MAX}", groups.len())
        });
        for group in groups {
            self.group_name("oidc.groups", group);
        }
    }

    /// Checks a namespace or a pattern: `*`, `team/*`, `team/a` or `a`.
    pub(crate) fn namespace(&mut self, path: &str, text: &str) {
        let name = text.strip_suffix("/*").unwrap_or(text);
        let ok = text == "*"
            || name.len() <= limits::NAME_LEN_MAX && name.split('/').all(|part| validate::name(part).is_ok());
        self.ensure(ok, path, || {
            format!(
                "`{}` is not a namespace: expected the name of a namespace, a prefix such as `team/*`, or `*` for all",
                shown(text)
            )
        });
    }

    pub(crate) fn token_id(&mut self, path: &str, id: &str) {
        let ok = (1..=TOKEN_ID_LEN_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric());
        self.ensure(ok, path, || {
            format!("`{}` is not a token ID: expected 1 to {TOKEN_ID_LEN_MAX} letters or digits", shown(id))
        });
    }

    pub(crate) fn bearer(&mut self, path: &str, bearer: &Bearer) {
        self.account_name(path, bearer.name());
    }

    pub(crate) fn scope(&mut self, bearer: &Bearer, scope: &TokenScope) {
        self.ensure(!matches!(bearer, Bearer::Worker(_)), "scope", || {
            "a worker token cannot be limited: expected no scope".into()
        });
        self.ensure(scope.role.is_some() || !scope.namespaces.is_empty(), "scope", || {
            "limits nothing: expected a role, namespaces, or no scope".into()
        });
        self.count("scope.namespaces", scope.namespaces.len());
        for (i, namespace) in scope.namespaces.iter().enumerate() {
            self.namespace(&format!("scope.namespaces[{i}]"), namespace);
        }
    }

    /// Checks that a session belongs to an account, and ends.
    pub(crate) fn session(&mut self, token: &Token) {
        let ok = matches!(token.bearer, Bearer::Account(_)) && token.expires_at.is_some();
        self.ensure(!token.session || ok, "session", || {
            "is only for tokens of accounts that expire: expected `false`".into()
        });
    }

    pub(crate) fn password_hash(&mut self, path: &str, hash: &PasswordHash) {
        let ok = hash.0.starts_with("$argon2id$") && hash.0.len() <= PASSWORD_HASH_LEN_MAX;
        self.ensure(ok, path, || "is not a hash by Argon2id".into());
    }

    /// Checks the rules of a custom role.
    pub(crate) fn rules(&mut self, rules: &[Rule]) {
        self.ensure(!rules.is_empty(), "rules", || "must contain at least one rule".into());
        self.count("rules", rules.len());
        for (i, rule) in rules.iter().enumerate() {
            for (field, empty) in [("verbs", rule.verbs.is_empty()), ("resources", rule.resources.is_empty())]
            {
                self.ensure(!empty, &format!("rules[{i}].{field}"), || "must not be empty".into());
            }
            self.ensure(!rule.verbs.contains(&Verb::Work), &format!("rules[{i}].verbs"), || {
                "`work` is only for worker tokens: create a worker token instead".into()
            });
        }
    }

    fn count(&mut self, path: &str, count: usize) {
        self.ensure(count <= ENTRIES_MAX, path, || {
            format!("has {count} entries: expected at most {ENTRIES_MAX}")
        });
    }

    pub(crate) fn title(&mut self, title: Option<&str>) {
        self.text("title", title, TITLE_LEN_MAX);
    }

    pub(crate) fn description(&mut self, description: Option<&str>) {
        self.text("description", description, DESCRIPTION_LEN_MAX);
    }

    fn text(&mut self, path: &str, text: Option<&str>, length_max: usize) {
        let Some(text) = text else { return };
        let length = text.chars().count();
        self.ensure((1..=length_max).contains(&length), path, || {
            format!("has {length} characters: expected 1 to {length_max}")
        });
        self.ensure(!text.chars().any(char::is_control), path, || {
            "must not contain control characters".into()
        });
    }
}

/// Returns text of a user for a message: at most 64 characters, without control characters.
fn shown(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
