//! Changes of tokens.
//!
//! An account creates and revokes its own tokens without a role. A limited token creates no token that outlives it, and
//! revokes only itself. All other tokens need the role `admin` in the
//! whole cluster: with the token, the actor could act as the bearer.

use model::{Duration, Timestamp};

use super::{Plan, validate};
use crate::action::Verb;
use crate::admins::Without;
use crate::check::Check;
use crate::decide::List;
use crate::entry::{Bearer, Entry, EntryKind, Row, Token, TokenHash, TokenScope};
use crate::identity::{Ceiling, IdentityKind};

use crate::refusal::Refusal;
use crate::role::BuiltInRole;

/// Maximum time to the end of the token of an account.
const LIFETIME_MAX: Duration = Duration::from_hours(24 * 366);

/// Maximum number of usable tokens of an account.
const TOKENS_MAX: usize = 100;

/// Fields of a token that the caller chooses.
pub(super) struct NewToken {
    pub(super) id: String,
    pub(super) hash: TokenHash,
    pub(super) bearer: Bearer,
    pub(super) description: Option<String>,
    pub(super) scope: Option<TokenScope>,
    pub(super) expires_at: Option<Timestamp>,
}

impl Plan<'_> {
    pub(super) fn create_token(&self, new: NewToken) -> Result<Vec<Row>, Refusal> {
        let is_own = self.is_own(&new.bearer);
        if !is_own {
            self.authorize(Verb::Create, "*")?;
        }
        validate(|check| self.check_token(check, &new))?;
        self.ensure_new(EntryKind::Token, &new.id, self.directory.token(&new.id).is_some())?;
        if let Bearer::Account(account) = &new.bearer {
            self.existing_account(account)?;
        }
        if let Some(role) = new.scope.as_ref().and_then(|scope| scope.role.as_deref()) {
            self.existing_role(role)?;
        }
        if !is_own {
            self.ensure_administrates(&new.bearer)?;
        }
        self.ensure_not_wider(new.scope.as_ref())?;
        self.ensure_not_longer(new.expires_at)?;
        self.ensure_few(&new.bearer)?;
        let NewToken { id, hash, bearer, description, scope, expires_at } = new;
        let (created_at, created_by) = (self.now, self.actor_name());
        let token = Token {
            id,
            bearer,
            description,
            hash,
            scope,
            session: false,
            created_at,
            created_by,
            expires_at,
            revoked_at: None,
        };
        Ok(vec![Entry::Token(token).row()])
    }

    pub(super) fn revoke_token(&self, id: &str) -> Result<Vec<Row>, Refusal> {
        let token = self.directory.token(id);
        // A limited token has not the rights of its account, so it ends only itself.
        let is_own = |token: &Token| self.actor.ceiling.is_none() && self.is_own(&token.bearer);
        if !token.is_some_and(|token| is_own(token) || self.is_actors(token)) {
            self.authorize(Verb::Delete, "*")?;
        }
        let token = token.ok_or_else(|| self.absent(EntryKind::Token, id))?;
        if token.revoked_at.is_some() {
            return Ok(Vec::new());
        }
        self.ensure_admin_remains(Without::Token(id), || format!("revoke token `{id}`"))?;
        Ok(vec![self.revocation(token)])
    }

    pub(super) fn revocation(&self, token: &Token) -> Row {
        Entry::Token(Token { revoked_at: Some(self.now), ..token.clone() }).row()
    }

    /// Returns whether the bearer is the account of the actor.
    pub(super) fn is_own(&self, bearer: &Bearer) -> bool {
        let is_account = matches!(self.actor.kind, IdentityKind::User | IdentityKind::Service);
        is_account && matches!(bearer, Bearer::Account(name) if *name == *self.actor.name)
    }

    /// Returns whether the actor sent the request with this token. A worker only works.
    fn is_actors(&self, token: &Token) -> bool {
        self.actor.kind != IdentityKind::Worker && *token.id == *self.actor.token_id
    }

    fn check_token(&self, check: &mut Check, new: &NewToken) {
        check.token_id("id", &new.id);
        check.bearer("bearer", &new.bearer);
        check.description(new.description.as_deref());
        if let Some(scope) = &new.scope {
            check.scope(&new.bearer, scope);
        }
        check.ensure(new.expires_at.is_none_or(|end| end > self.now), "expires_at", || {
            "is in the past: expected a time in the future".into()
        });
        if matches!(new.bearer, Bearer::Account(_)) {
            let latest = self.now + LIFETIME_MAX;
            check.ensure(new.expires_at.is_some_and(|end| end <= latest), "expires_at", || {
                format!("the token of an account must expire: expected a time until {latest}")
            });
        }
    }

    /// Refuses a token of another bearer, unless the actor administrates everything. A bearer can get further rights
    /// later, and a worker gets the specs and the input of jobs of all namespaces.
    fn ensure_administrates(&self, bearer: &Bearer) -> Result<(), Refusal> {
        let action = || format!("create a token of `{}`", bearer.name());
        self.ensure_held(BuiltInRole::Admin.permissions(), "*", action)
    }

    /// Refuses a further token of an account that has many: each one costs memory on every server.
    fn ensure_few(&self, bearer: &Bearer) -> Result<(), Refusal> {
        let Bearer::Account(account) = bearer else { return Ok(()) };
        let of_account = self.directory.tokens().filter(|token| token.bearer == *bearer && !token.session);
        if of_account.filter(|token| token.is_usable(self.now)).count() < TOKENS_MAX {
            return Ok(());
        }
        Err(Refusal::TokenLimit { account: account.clone(), max: TOKENS_MAX })
    }

    /// Refuses a token that outlives the limited token of the actor: a leaked one could renew itself for ever.
    fn ensure_not_longer(&self, expires_at: Option<Timestamp>) -> Result<(), Refusal> {
        let own = self.directory.token(&self.actor.token_id).filter(|_| self.actor.ceiling.is_some());
        match own.and_then(|own| own.expires_at) {
            Some(end) if expires_at.is_none_or(|new| new > end) => {
                Err(Refusal::WiderScope { actor: self.actor_name(), limit: format!("the time until {end}") })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a scope that allows something that the scope of the actor's token does not allow.
    fn ensure_not_wider(&self, scope: Option<&TokenScope>) -> Result<(), Refusal> {
        let Some(ceiling) = &self.actor.ceiling else { return Ok(()) };
        let refuse = |limit| Err(Refusal::WiderScope { actor: self.actor_name(), limit });
        if let Some((name, limit)) = &ceiling.role {
            let role = scope.and_then(|scope| self.directory.role(scope.role.as_deref()?));
            if role.is_none_or(|role| !role.permissions().difference(*limit).is_empty()) {
                return refuse(format!("the role `{name}`"));
            }
        }
        let namespaces = scope.map_or(&[][..], |scope| &scope.namespaces);
        if !covers_all(ceiling, namespaces) {
            let names: Vec<_> = ceiling.patterns.iter().map(|pattern| pattern.as_str()).collect();
            return refuse(format!("the namespaces {}", List(&names)));
        }
        Ok(())
    }
}

/// Returns whether each of the namespaces of a new scope is in a namespace of the ceiling. No namespaces are all.
fn covers_all(ceiling: &Ceiling, namespaces: &[String]) -> bool {
    let is_covered = |name: &String| ceiling.patterns.iter().any(|pattern| pattern.covers(name));
    ceiling.patterns.is_empty() || !namespaces.is_empty() && namespaces.iter().all(is_covered)
}
