//! Access control: the caller and its rights, logins, accounts, roles, role bindings, tokens.
//!
//! A change is effective on the server that answers when the method returns, and within a second on all others.

use model::access::{Resource, Verb};
use model::api::{
    AcceptInvitation, AccessDecision, Account, Accounts, Binding, Bindings, ChangeAccount, ChangePassword,
    CreateAccount, CreateInvitation, CreateToken, CreatedInvitation, CreatedToken, ExchangeOidcCode, LogIn,
    LoggedIn, LoginMethods, Me, PutBinding, PutRole, Role, Roles, Token, TokenKind, TokenStatus, Tokens,
};

use crate::error::Error;
use crate::http::{Client, Request};

/// Conditions for a list of accounts. All conditions must match.
#[derive(Debug, Clone, Default)]
pub struct AccountFilter {
    /// Only accounts whose name or display name contains this text.
    pub text: Option<String>,
    /// Only accounts that have a role in this namespace, or in all namespaces.
    pub namespace: Option<String>,
}

/// Conditions for a list of role bindings. All conditions must match.
#[derive(Debug, Clone, Default)]
pub struct BindingFilter {
    /// Only bindings of this account.
    pub account: Option<String>,
    /// Only bindings of this group.
    pub group: Option<String>,
    /// Only bindings of this role.
    pub role: Option<String>,
    /// Only bindings in this namespace; `*` for those in all namespaces.
    pub namespace: Option<String>,
}

/// Conditions for a list of tokens. All conditions must match.
#[derive(Debug, Clone, Default)]
pub struct TokenFilter {
    /// Only tokens of this bearer: an account, or the name of an admin or worker token.
    pub name: Option<String>,
    /// Only tokens of these kinds; empty for all.
    pub kinds: Vec<TokenKind>,
    /// Only tokens in one of these statuses; empty for active tokens.
    pub statuses: Vec<TokenStatus>,
}

/// Question whether an action is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessQuestion {
    /// Action.
    pub verb: Verb,
    /// Kind of resource.
    pub resource: Resource,
    /// Namespace of the resource; `None` for all namespaces and the cluster itself.
    pub namespace: Option<String>,
    /// Account to check; `None` for the caller. Another account needs the right to read access in the whole cluster.
    pub account: Option<String>,
}

impl Client {
    /// Returns the caller: the bearer of the token, and its rights.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `unauthenticated`, and `forbidden` for a worker token.
    pub async fn me(&self) -> Result<Me, Error> {
        self.json(Request::get(["me"])).await
    }

    /// Returns whether an action is allowed.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found`, and `forbidden` for another account.
    pub async fn check_access(&self, question: &AccessQuestion) -> Result<AccessDecision, Error> {
        let request = Request::get(["access", "check"])
            .query("verb", question.verb)
            .query("resource", question.resource)
            .query_opt("namespace", question.namespace.as_deref())
            .query_opt("account", question.account.as_deref());
        self.json(request).await
    }

    /// Returns the accounts, by name.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn accounts(&self, filter: &AccountFilter) -> Result<Accounts, Error> {
        let request = Request::get(["accounts"])
            .query_opt("text", filter.text.as_deref())
            .query_opt("namespace", filter.namespace.as_deref());
        self.json(request).await
    }

    /// Returns an account.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found`.
    pub async fn account(&self, name: &str) -> Result<Account, Error> {
        self.json(Request::get(["accounts", name])).await
    }

    /// Creates an account. The account has no role and no token yet.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_exists`.
    pub async fn create_account(&self, account: &CreateAccount) -> Result<Account, Error> {
        self.json(Request::post(["accounts"]).json(account)).await
    }

    /// Changes the given fields of an account.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found` and `last_admin`.
    pub async fn change_account(&self, name: &str, change: &ChangeAccount) -> Result<Account, Error> {
        self.json(Request::patch(["accounts", name]).json(change)).await
    }

    /// Deletes an account and its role bindings, and revokes its tokens.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found` and `last_admin`.
    pub async fn delete_account(&self, name: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["accounts", name])).await
    }

    /// Logs in with a password. The result has the secret of the session; use it as the token of another client. If the
    /// outcome is unknown, the request is not repeated, because each request creates another session.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `login_failed`, `second_factor_required` and
    /// `login_throttled`.
    pub async fn log_in(&self, login: &LogIn) -> Result<LoggedIn, Error> {
        self.json(Request::post(["login"]).json(login)).await
    }

    /// Returns the ways to log in, in addition to passwords and tokens.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn login_methods(&self) -> Result<LoginMethods, Error> {
        self.json(Request::get(["login", "methods"])).await
    }

    /// Exchanges the code of a login at the OpenID provider, which the browser has brought, for a session. If the outcome
    /// is unknown, the request is not repeated, because a code works once.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `oidc_login_failed`.
    pub async fn exchange_oidc_code(&self, exchange: &ExchangeOidcCode) -> Result<LoggedIn, Error> {
        self.json(Request::post(["login", "oidc", "exchange"]).json(exchange)).await
    }

    /// Unlinks an account from its person at the OpenID provider. A repeated request changes nothing.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found`.
    pub async fn unlink_account(&self, account: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["accounts", account, "oidc"]).repeatable()).await
    }

    /// Logs out: revokes the session that the client uses as its token. Another token stays valid.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn log_out(&self) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["session"])).await
    }

    /// Changes the password of the caller. Its other sessions end.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`, `no_password_login` and `login_throttled`.
    pub async fn change_password(&self, change: &ChangePassword) -> Result<(), Error> {
        self.send_ignoring_body(Request::put(["me", "password"]).json(change)).await
    }

    /// Deletes the second factor of an account. A repeated request changes nothing.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found` and `escalation`.
    pub async fn reset_totp(&self, account: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["accounts", account, "totp"]).repeatable()).await
    }

    /// Creates an invitation for a person to set a password. Only the result has its secret. It replaces an earlier one.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found`, `no_password_login` and `escalation`.
    pub async fn invite(
        &self,
        account: &str,
        invitation: &CreateInvitation,
    ) -> Result<CreatedInvitation, Error> {
        self.json(Request::post(["accounts", account, "invitation"]).json(invitation)).await
    }

    /// Revokes the invitation of an account. A repeated request changes nothing.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found`.
    pub async fn revoke_invitation(&self, account: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["accounts", account, "invitation"]).repeatable()).await
    }

    /// Sets a password with an invitation, and logs in.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invitation_not_found` and `invalid_spec`.
    pub async fn accept_invitation(&self, accept: &AcceptInvitation) -> Result<LoggedIn, Error> {
        self.json(Request::post(["invitations", "accept"]).json(accept)).await
    }

    /// Ends the sessions of an account, except the one that sends the request. A repeated request changes nothing.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found`.
    pub async fn end_sessions(&self, account: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["accounts", account, "sessions"]).repeatable()).await
    }

    /// Returns the built-in roles, then the custom roles by name.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn roles(&self) -> Result<Roles, Error> {
        self.json(Request::get(["roles"])).await
    }

    /// Returns a role.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `role_not_found`.
    pub async fn role(&self, name: &str) -> Result<Role, Error> {
        self.json(Request::get(["roles", name])).await
    }

    /// Creates or replaces a custom role.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `role_built_in`, `escalation` and `last_admin`.
    pub async fn put_role(&self, name: &str, role: &PutRole) -> Result<Role, Error> {
        self.json(Request::put(["roles", name]).json(role)).await
    }

    /// Deletes a custom role.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `role_not_found`, `role_built_in` and `role_in_use`.
    pub async fn delete_role(&self, name: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["roles", name])).await
    }

    /// Returns the role bindings of accounts, then those of groups, by name, role and namespace.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn bindings(&self, filter: &BindingFilter) -> Result<Bindings, Error> {
        let request = Request::get(["bindings"])
            .query_opt("account", filter.account.as_deref())
            .query_opt("group", filter.group.as_deref())
            .query_opt("role", filter.role.as_deref())
            .query_opt("namespace", filter.namespace.as_deref());
        self.json(request).await
    }

    /// Gives an account or a group a role in a namespace. An existing binding is not changed.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found`, `role_not_found` and `escalation`.
    pub async fn put_binding(&self, binding: &PutBinding) -> Result<Binding, Error> {
        self.json(Request::put(["bindings"]).json(binding)).await
    }

    /// Takes a role in a namespace from an account or a group.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `binding_not_found` and `last_admin`.
    pub async fn delete_binding(&self, binding: &PutBinding) -> Result<(), Error> {
        let request = Request::delete(["bindings"])
            .query("role", &binding.role)
            .query_opt("account", binding.account.as_deref())
            .query_opt("group", binding.group.as_deref())
            .query("namespace", &binding.namespace);
        self.send_ignoring_body(request).await
    }

    /// Returns tokens without their secrets, newest first.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn tokens(&self, filter: &TokenFilter) -> Result<Tokens, Error> {
        let request = Request::get(["tokens"])
            .query_opt("name", filter.name.as_deref())
            .query_opt("kind", joined(&filter.kinds))
            .query_opt("status", joined(&filter.statuses));
        self.json(request).await
    }

    /// Returns a token without its secret.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `token_not_found`.
    pub async fn token(&self, id: &str) -> Result<Token, Error> {
        self.json(Request::get(["tokens", id])).await
    }

    /// Creates a token. Only the result has its secret. If the outcome is unknown, the request is not repeated, because
    /// each request creates another token.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `account_not_found`, `role_not_found` and `escalation`.
    pub async fn create_token(&self, token: &CreateToken) -> Result<CreatedToken, Error> {
        self.json(Request::post(["tokens"]).json(token)).await
    }

    /// Revokes a token. A repeated request changes nothing.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `token_not_found` and `last_admin`.
    pub async fn revoke_token(&self, id: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["tokens", id]).repeatable()).await
    }
}

/// Joins values for a query parameter; `None` without values.
fn joined(values: &[impl ToString]) -> Option<String> {
    let texts: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}
