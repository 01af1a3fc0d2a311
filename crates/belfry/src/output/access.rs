//! Tables and detailed views of accounts, roles, role bindings and tokens, and the views of `belfry auth`.
//!
//! A permission is shown as `verbs: resources`, as in a rule of a role. [`groups`] joins resources with the same verbs, so
//! the rights of an administrator are one line.

use std::fmt::Write as _;

use model::Duration;
use model::access::{Resource, Verb};
use model::api::{Account, AccountLogin, Binding, Me, Right, Role, RoleInNamespace, Token, TokenStatus};
use serde::Serialize;

use super::OutputOptions;
use super::objects::exact_or_none;
use super::table::{Cell, Column, Detail, Row, Tone, column, wide};
use super::text::escape;
use super::time::{exact, format_duration, relative_or_exact};

/// Maximum width of a line with permissions.
const WIDTH: usize = 80;

/// Whether an account has a password.
fn password(look: &OutputOptions, login: &AccountLogin) -> String {
    match login.password_set_at {
        Some(at) => format!("set on {}", exact(look, at)),
        None => "none".to_owned(),
    }
}

/// The last login of an account, or that it cannot log in yet.
fn last_login(look: &OutputOptions, account: &Account) -> Option<String> {
    let login = account.login.as_ref()?;
    let can_log_in = login.password_set_at.is_some() || login.oidc.is_some();
    match (login.last_login_at, can_log_in, &login.invitation) {
        (Some(at), true, _) => Some(relative_or_exact(look, at)),
        (_, false, Some(_)) => Some("invited".to_owned()),
        (_, false, None) => Some("no password".to_owned()),
        (None, true, _) => Some("never".to_owned()),
    }
}

fn account_status(account: &Account) -> Cell {
    match account.disabled {
        true => Cell::new("disabled", Tone::Dim),
        false => Cell::new("enabled", Tone::Good),
    }
}

fn role_in_namespace(role: &RoleInNamespace) -> String {
    match &role.group {
        Some(group) => format!("{} in {} (group {group})", role.role, role.namespace),
        None => format!("{} in {}", role.role, role.namespace),
    }
}

fn joined(texts: impl Iterator<Item = String>) -> Option<String> {
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

impl Row for Account {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 24),
        column("KIND", 7).optional(2),
        column("STATUS", 8),
        column("TITLE", 20).cut(10).optional(1),
        column("ROLES", 30).cut(20),
        column("LAST LOGIN", 11).optional(3),
        wide("SUBMIT RATE", 20),
        wide("CREATED", 30),
        wide("CREATED BY", 16),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            self.kind.as_str().into(),
            account_status(self),
            self.title.as_deref().into(),
            joined(self.roles.iter().map(role_in_namespace)).into(),
            last_login(look, self).into(),
            submit_rate(self).into(),
            relative_or_exact(look, self.created_at).into(),
            self.created_by.as_str().into(),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

/// Limit of an account in jobs per minute, and whether it is the default.
fn submit_rate(account: &Account) -> String {
    let limit = account.jobs_per_minute.map_or_else(|| "unlimited".to_owned(), |jobs| format!("{jobs}/min"));
    if account.submit_rate.is_default() { format!("{limit} (default)") } else { limit }
}

impl Detail for Account {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let mut lines = vec![
            ("Account", self.name.as_str().into()),
            ("Title", self.title.as_deref().into()),
            ("Kind", self.kind.as_str().into()),
            ("Status", account_status(self)),
            ("Submit rate", submit_rate(self).into()),
            ("Created", format!("{} by {}", exact(look, self.created_at), self.created_by).into()),
        ];
        if let Some(login) = &self.login {
            lines.push(("Password", password(look, login).into()));
            if let Some(found) = &login.oidc {
                lines.push(("OpenID", format!("{} at {}", found.subject, found.issuer).into()));
                lines.push(("Groups", joined(found.groups.iter().cloned()).into()));
            }
            lines.push(("Last login", exact_or_none(look, login.last_login_at)));
            lines.push(("Sessions", login.sessions.to_string().into()));
            if let Some(found) = &login.invitation {
                let text = format!("until {}, by {}", exact(look, found.expires_at), found.created_by);
                lines.push(("Invitation", text.into()));
            }
        }
        if self.roles.is_empty() {
            lines.push(("Role", Cell::none()));
        }
        lines.extend(self.roles.iter().map(|role| ("Role", role_in_namespace(role).into())));
        lines
    }
}

fn role_type(role: &Role) -> &'static str {
    if role.built_in { "built-in" } else { "custom" }
}

impl Row for Role {
    const COLUMNS: &'static [Column] =
        &[column("NAME", 20), column("TYPE", 8), column("DESCRIPTION", 60).cut(20), wide("PERMISSIONS", 60)];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            role_type(self).into(),
            self.description.as_deref().into(),
            permissions(self).iter().map(Group::line).collect::<Vec<_>>().join("; ").into(),
        ]
    }

    fn name(&self) -> String {
        escape(&self.name)
    }
}

impl Detail for Role {
    fn detail(&self, _look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        vec![
            ("Role", self.name.as_str().into()),
            ("Type", role_type(self).into()),
            ("Description", self.description.as_deref().into()),
        ]
    }

    fn appendix(&self, _look: &OutputOptions) -> String {
        let mut text = "Permissions:\n".to_owned();
        permissions(self).iter().for_each(|group| group.write(&mut text));
        text
    }
}

impl Row for Binding {
    const COLUMNS: &'static [Column] = &[
        column("SUBJECT", 24),
        column("ROLE", 16),
        column("NAMESPACE", 16),
        column("CREATED", 10).optional(2),
        column("CREATED BY", 16).cut(10).optional(1),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            subject(self).into(),
            self.role.as_str().into(),
            self.namespace.as_str().into(),
            relative_or_exact(look, self.created_at).into(),
            self.created_by.as_str().into(),
        ]
    }

    /// Role, subject and namespace, as in messages of the server.
    fn name(&self) -> String {
        escape(&format!("{}/{}/{}", self.role, subject(self), self.namespace))
    }
}

/// The name of the account, or `group:NAME`.
fn subject(binding: &Binding) -> String {
    match (&binding.account, &binding.group) {
        (Some(account), _) => account.clone(),
        (None, group) => format!("group:{}", group.as_deref().unwrap_or_default()),
    }
}

fn token_status(token: &Token) -> Cell {
    let tone = match token.status {
        TokenStatus::Active => Tone::Good,
        TokenStatus::Expired | TokenStatus::Revoked => Tone::Dim,
    };
    Cell::new(token.status.as_str(), tone)
}

/// Returns the limits of a token: `developer in finance`; `None` without limits.
pub(crate) fn token_limits(token: &Token) -> Option<String> {
    let namespaces = joined(token.namespaces.iter().cloned());
    match (&token.role, namespaces) {
        (Some(role), Some(namespaces)) => Some(format!("{role} in {namespaces}")),
        (Some(role), None) => Some(role.clone()),
        (None, namespaces) => namespaces.map(|namespaces| format!("in {namespaces}")),
    }
}

/// Kind of a token. A session has the kind of its account, which is always `user`.
fn token_kind(token: &Token) -> &'static str {
    if token.session { "session" } else { token.kind.as_str() }
}

impl Row for Token {
    const COLUMNS: &'static [Column] = &[
        column("ID", 12),
        column("KIND", 7).optional(2),
        column("NAME", 20),
        column("STATUS", 7),
        column("EXPIRES", 10),
        column("LIMITS", 20).cut(10).optional(3),
        column("DESCRIPTION", 24).cut(12).optional(1),
        wide("CREATED", 30),
        wide("CREATED BY", 16),
        wide("REVOKED", 30),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.id.as_str().into(),
            token_kind(self).into(),
            self.name.as_str().into(),
            token_status(self),
            self.expires_at.map_or_else(|| "never".into(), |at| relative_or_exact(look, at)).into(),
            token_limits(self).into(),
            self.description.as_deref().into(),
            relative_or_exact(look, self.created_at).into(),
            self.created_by.as_str().into(),
            self.revoked_at.map(|at| relative_or_exact(look, at)).into(),
        ]
    }

    fn name(&self) -> String {
        escape(&self.id)
    }
}

impl Detail for Token {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let expires = self.expires_at.map_or_else(|| "never".into(), |at| exact(look, at));
        let mut lines = vec![
            ("Token", self.id.as_str().into()),
            ("Bearer", format!("{} ({})", self.name, token_kind(self)).into()),
            ("Status", token_status(self)),
            ("Description", self.description.as_deref().into()),
            ("Limits", token_limits(self).into()),
            ("Created", format!("{} by {}", exact(look, self.created_at), self.created_by).into()),
            ("Expires", expires.into()),
        ];
        if self.revoked_at.is_some() {
            lines.push(("Revoked", exact_or_none(look, self.revoked_at)));
        }
        lines
    }
}

/// Returns the sentence about a new token that is shown beside its secret.
pub(crate) fn token_note(token: &Token) -> String {
    let lifetime = token.expires_at.map(|at| {
        // The server sets both times one after the other: `90d` must not become `89d`.
        let seconds = (at.since(token.created_at).as_millis() + 500) / 1_000;
        format!("expires in {}", format_duration(Duration::from_secs(seconds)))
    });
    let lifetime = lifetime.unwrap_or_else(|| "never expires".to_owned());
    let mut text = format!("created token {} of `{}` ({}), {lifetime}", token.id, token.name, token.kind);
    if let Some(limits) = token_limits(token) {
        let _ = write!(text, ", limited to {}", limits.trim_start_matches("in "));
    }
    escape(&text)
}

/// Caller on a server: `belfry auth whoami`. Programs get the object of the API.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Caller {
    pub(crate) me: Me,
    #[serde(skip)]
    pub(crate) url: String,
}

impl Row for Caller {
    const COLUMNS: &'static [Column] = &[column("NAME", 24), column("KIND", 7), column("SERVER", 40)];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![self.me.name.as_str().into(), self.me.kind.as_str().into(), self.url.as_str().into()]
    }

    fn name(&self) -> String {
        escape(&self.me.name)
    }
}

impl Detail for Caller {
    fn detail(&self, _look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let mut lines = vec![("Name", self.me.name.as_str().into()), ("Kind", self.me.kind.as_str().into())];
        lines.extend(self.me.title.as_deref().map(|title| ("Title", title.into())));
        lines.push(("Server", self.url.as_str().into()));
        lines
    }

    fn appendix(&self, _look: &OutputOptions) -> String {
        if self.me.rights.is_empty() {
            return "Rights:  none\n".to_owned();
        }
        let mut text = String::new();
        for (place, rights) in by_namespaces(&self.me.rights) {
            let _ = writeln!(text, "Rights {}:", escape(&place));
            groups(rights.iter().copied()).iter().for_each(|group| group.write(&mut text));
        }
        text
    }
}

/// Joins rights in the same namespaces, with the text for these namespaces.
fn by_namespaces(rights: &[Right]) -> Vec<(String, Vec<(Verb, Resource)>)> {
    let mut found: Vec<(String, Vec<(Verb, Resource)>)> = Vec::new();
    for right in rights {
        let place = match right.namespaces.as_slice() {
            [all] if all == "*" => "in all namespaces and the cluster".to_owned(),
            [one] => format!("in namespace {one}"),
            several => format!("in namespaces {}", several.join(", ")),
        };
        let pair = (right.verb, right.resource);
        match found.iter_mut().find(|(known, _)| *known == place) {
            Some((_, pairs)) => pairs.push(pair),
            None => found.push((place, vec![pair])),
        }
    }
    found
}

fn permissions(role: &Role) -> Vec<Group> {
    let pairs = role.rules.iter().flat_map(|rule| {
        rule.resources.iter().flat_map(|resource| rule.verbs.iter().map(|verb| (*verb, *resource)))
    });
    groups(pairs)
}

/// Verbs that are allowed on each of these resources.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    verbs: Vec<Verb>,
    resources: Vec<Resource>,
}

/// Joins permissions: one group for all resources with the same verbs, the most verbs first.
fn groups(pairs: impl Iterator<Item = (Verb, Resource)>) -> Vec<Group> {
    let pairs: Vec<_> = pairs.collect();
    let mut found: Vec<Group> = Vec::new();
    for &resource in Resource::ALL {
        let verbs = Verb::ALL.iter().copied().filter(|verb| pairs.contains(&(*verb, resource)));
        let verbs: Vec<_> = verbs.collect();
        if verbs.is_empty() {
            continue;
        }
        match found.iter_mut().find(|group| group.verbs == verbs) {
            Some(group) => group.resources.push(resource),
            None => found.push(Group { verbs, resources: vec![resource] }),
        }
    }
    found.sort_by_key(|group| std::cmp::Reverse(group.verbs.len()));
    found
}

impl Group {
    /// Returns the words of the line: the verbs, then the resources.
    fn words(&self) -> Vec<String> {
        let verbs = self.verbs.iter().map(|verb| verb.as_str());
        let resources: Vec<_> = match self.resources.len() == Resource::ALL.len() {
            true => vec!["everything"],
            false => self.resources.iter().map(|resource| resource.as_str()).collect(),
        };
        let with = |words: Vec<&str>, end: &str| {
            let last = words.len().saturating_sub(1);
            let words = words.into_iter().enumerate();
            words.map(|(i, word)| format!("{word}{}", if i == last { end } else { "," })).collect::<Vec<_>>()
        };
        [with(verbs.collect(), ":"), with(resources, "")].concat()
    }

    fn line(&self) -> String {
        self.words().join(" ")
    }

    /// Writes the group as indented lines of at most [`WIDTH`] columns.
    fn write(&self, text: &mut String) {
        let mut line = " ".to_owned();
        for word in self.words() {
            if line.len() + 1 + word.len() > WIDTH {
                text.push_str(&line);
                text.push('\n');
                line = "   ".to_owned();
            }
            line.push(' ');
            line.push_str(&word);
        }
        text.push_str(&line);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;
    use crate::output::{Format, list, one};

    fn look(format: Format) -> OutputOptions {
        OutputOptions { format, color: false, now: "2026-11-21T08:10:00Z".parse().unwrap(), width: None }
    }

    fn narrow() -> OutputOptions {
        OutputOptions { width: Some(80), ..look(Format::Table) }
    }

    fn from<T: DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn accounts() -> Vec<Account> {
        from(json!([
            {"name": "ann@example.com", "kind": "user", "title": "Ann Lee 安", "disabled": false,
             "roles": [{"role": "developer", "namespace": "finance"}, {"role": "viewer", "namespace": "*"}],
             "submit_rate": "default", "jobs_per_minute": 1000,
             "created_at": "2026-11-21T08:00:00Z", "created_by": "admin"},
            {"name": "finance-ci", "kind": "service", "disabled": true, "roles": [],
             "submit_rate": 5, "jobs_per_minute": 5,
             "created_at": "2026-11-20T08:00:00Z", "created_by": "ann@example.com"},
        ]))
    }

    #[test]
    fn accounts_as_a_table() {
        insta::assert_snapshot!("accounts_table", list(&narrow(), &accounts()).unwrap());
        insta::assert_snapshot!("accounts_wide", list(&look(Format::Wide), &accounts()).unwrap());
        insta::assert_snapshot!("account_detail", one(&look(Format::Table), &accounts()[0]).unwrap());
        insta::assert_snapshot!(
            "account_detail_without_roles",
            one(&look(Format::Table), &accounts()[1]).unwrap()
        );
        assert_eq!(list(&look(Format::Name), &accounts()).unwrap(), "ann@example.com\nfinance-ci\n");
    }

    fn roles() -> Vec<Role> {
        let all: Vec<_> = Resource::ALL.iter().filter(|resource| **resource != Resource::Access).collect();
        from(json!([
            {"name": "viewer", "built_in": true, "rules": [{"verbs": ["read"], "resources": all}],
             "description": "Reads everything except accounts, roles, bindings and tokens"},
            {"name": "on-call", "built_in": false, "rules": [
                {"verbs": ["read", "operate"], "resources": ["jobs", "runs"]},
                {"verbs": ["read"], "resources": ["logs", "jobs"]},
            ]},
        ]))
    }

    #[test]
    fn roles_as_a_table() {
        insta::assert_snapshot!("roles_table", list(&narrow(), &roles()).unwrap());
        insta::assert_snapshot!("roles_wide", list(&look(Format::Wide), &roles()).unwrap());
        insta::assert_snapshot!("role_detail", one(&look(Format::Table), &roles()[0]).unwrap());
        insta::assert_snapshot!("role_detail_custom", one(&look(Format::Table), &roles()[1]).unwrap());
    }

    #[test]
    fn bindings_as_a_table() {
        let bindings: Vec<Binding> = from(json!([
            {"role": "developer", "account": "ann@example.com", "namespace": "finance",
             "created_at": "2026-11-21T08:00:00Z", "created_by": "admin"},
            {"role": "admin", "account": "root", "namespace": "*",
             "created_at": "2026-11-21T08:00:00Z", "created_by": "admin"},
            {"role": "viewer", "group": "devs", "namespace": "web",
             "created_at": "2026-11-21T08:00:00Z", "created_by": "admin"},
        ]));
        insta::assert_snapshot!("bindings_table", list(&narrow(), &bindings).unwrap());
        let names = list(&look(Format::Name), &bindings).unwrap();
        assert_eq!(names, "developer/ann@example.com/finance\nadmin/root/*\nviewer/group:devs/web\n");
    }

    fn tokens() -> Vec<Token> {
        from(json!([
            {"id": "4w1kq0zj8x2m", "kind": "service", "name": "finance-ci", "description": "deployments",
             "role": "developer", "namespaces": ["finance"], "status": "active",
             "created_at": "2026-11-21T08:00:00Z", "created_by": "ann@example.com",
             "expires_at": "2027-02-19T07:59:59.999Z"},
            {"id": "8x2m4w1kq0zj", "kind": "worker", "name": "worker", "status": "revoked",
             "created_at": "2026-11-01T08:00:00Z", "created_by": "admin", "revoked_at": "2026-11-20T08:00:00Z"},
        ]))
    }

    #[test]
    fn tokens_as_a_table() {
        insta::assert_snapshot!("tokens_table", list(&narrow(), &tokens()).unwrap());
        insta::assert_snapshot!("tokens_wide", list(&look(Format::Wide), &tokens()).unwrap());
        insta::assert_snapshot!("token_detail", one(&look(Format::Table), &tokens()[0]).unwrap());
        insta::assert_snapshot!("token_detail_revoked", one(&look(Format::Table), &tokens()[1]).unwrap());
    }

    #[test]
    fn a_new_token_is_described_in_a_sentence() {
        let notes: Vec<_> = tokens().iter().map(token_note).collect();
        insta::assert_snapshot!(notes.join("\n"), @r"
        created token 4w1kq0zj8x2m of `finance-ci` (service), expires in 90d, limited to developer in finance
        created token 8x2m4w1kq0zj of `worker` (worker), never expires
        ");
    }

    fn caller(rights: serde_json::Value) -> Caller {
        let me = json!({"name": "ann@example.com", "kind": "user", "title": "Ann Lee 安", "rights": rights});
        Caller { me: from(me), url: "https://belfry.example".into() }
    }

    #[test]
    fn the_caller_is_shown_with_rights_in_short() {
        let right = |verb, resource, namespaces: &[&str]| json!({"verb": verb, "resource": resource, "namespaces": namespaces});
        let developer = caller(json!([
            right("read", "jobs", &["finance", "web"]),
            right("create", "jobs", &["finance"]),
            right("read", "runs", &["finance", "web"]),
            right("read", "server", &["*"]),
        ]));
        insta::assert_snapshot!("caller_with_some_rights", one(&look(Format::Table), &developer).unwrap());
        insta::assert_snapshot!(
            "caller_without_rights",
            one(&look(Format::Table), &caller(json!([]))).unwrap()
        );
        let all = Resource::ALL.iter().flat_map(|resource| {
            Verb::ALL.iter().filter(|verb| **verb != Verb::Work).map(move |verb| (verb, resource))
        });
        let all: Vec<_> =
            all.map(|(verb, resource)| right(verb.as_str(), resource.as_str(), &["*"])).collect();
        insta::assert_snapshot!(
            "caller_with_all_rights",
            one(&look(Format::Table), &caller(all.into())).unwrap()
        );
    }

    /// Programs get the object of the API, without the server.
    #[test]
    fn the_caller_for_programs_is_the_object_of_the_api() {
        let shown = one(&look(Format::Json), &caller(json!([]))).unwrap();
        assert_eq!(serde_json::from_str::<Me>(&shown).unwrap(), caller(json!([])).me);
        assert_eq!(one(&look(Format::Name), &caller(json!([]))).unwrap(), "ann@example.com\n");
    }

    #[test]
    fn lines_with_permissions_fit_a_terminal() {
        let mut text = String::new();
        let group = Group { verbs: Verb::ALL.to_vec(), resources: Resource::ALL[1..].to_vec() };
        group.write(&mut text);
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }
}
