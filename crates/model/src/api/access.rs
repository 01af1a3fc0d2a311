//! Access control: accounts, roles, bindings, tokens and logins.
//!
//! An account is a person or a program. A binding gives it a role in one namespace or in all of them. A token
//! authenticates it, and may limit it further. The text of a token is in [`CreatedToken`] only: it is shown once.
//! A person can also log in with a password, which creates a session: a token that ends soon. An invitation lets the
//! person choose the password. The rules are in the crate `access`.

use super::*;
use crate::access::{AccountKind, Resource, SubmitRate, Verb};

/// Account of a person or a program. It has rights through role bindings, and tokens to authenticate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Account {
    /// Name of the account, for example `ann` or `ann@example.com`. It is the owner of submitted jobs.
    pub name: String,
    /// Kind of the account.
    pub kind: AccountKind,
    /// Display name of the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether the account is disabled: its tokens are refused.
    pub disabled: bool,
    /// Limit on the jobs that the account may submit per minute, as it was set.
    #[serde(default)]
    pub submit_rate: SubmitRate,
    /// Jobs that the account may submit per minute, also if the limit is the default. Absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs_per_minute: Option<u32>,
    /// Roles of the account.
    pub roles: Vec<RoleInNamespace>,
    /// Login of the account. Absent: the account is that of a program, or the caller may not read access in the whole
    /// cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<AccountLogin>,
    /// Time at which the account was created.
    pub created_at: Timestamp,
    /// User who created the account.
    pub created_by: String,
}

/// Login of the account of a person.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct AccountLogin {
    /// Time at which the person set the password. Absent: the account has no password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_set_at: Option<Timestamp>,
    /// Time at which the person turned on the second factor. Absent: the login needs only the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totp_set_at: Option<Timestamp>,
    /// Time of the last login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_login_at: Option<Timestamp>,
    /// Invitation that was not used yet and has not expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invitation: Option<AccountInvitation>,
    /// Identity at the OpenID provider. Absent: the person has not logged in there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<AccountOidc>,
    /// Number of open sessions.
    pub sessions: u32,
}

/// Identity of an account at the OpenID provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountOidc {
    /// URL of the provider.
    pub issuer: String,
    /// Identifier of the person there.
    pub subject: String,
    /// Groups at the last login. The account has their roles.
    pub groups: Vec<String>,
    /// Time of the first login there.
    pub linked_at: Timestamp,
}

/// Invitation that was not used yet, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountInvitation {
    /// Time at which the invitation was created.
    pub created_at: Timestamp,
    /// User who created the invitation.
    pub created_by: String,
    /// Time at which the invitation expires.
    pub expires_at: Timestamp,
}

/// Role, and the namespace in which an account has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct RoleInNamespace {
    /// Name of the role.
    pub role: String,
    /// Namespace, or `*` for all namespaces and the cluster itself.
    pub namespace: String,
    /// Group that gives the account the role; absent for a role of the account itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// All accounts that the caller may see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Accounts {
    /// Accounts, by name.
    pub items: Vec<Account>,
}

/// Request to create an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAccount {
    /// Name of the account: letters, digits, `-`, `_`, `.` and `@`, starting with a letter or digit.
    #[schema(min_length = 1, max_length = 254)]
    pub name: String,
    /// Kind of the account.
    pub kind: AccountKind,
    /// Display name, at most 100 characters of any script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub title: Option<String>,
    /// Limit on the jobs that the account may submit per minute [default: default]
    #[serde(default, skip_serializing_if = "SubmitRate::is_default")]
    pub submit_rate: SubmitRate,
}

/// Request to change an account. Absent fields stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeAccount {
    /// Display name; an empty text removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub title: Option<String>,
    /// Whether the account is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Limit on the jobs that the account may submit per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit_rate: Option<SubmitRate>,
}

/// Role: a set of permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Role {
    /// Name of the role.
    pub name: String,
    /// Whether the role is built in. Built-in roles cannot be changed.
    pub built_in: bool,
    /// Purpose of the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Permissions of the role.
    pub rules: Vec<RoleRule>,
}

/// All roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Roles {
    /// The built-in roles, then the custom roles by name.
    pub items: Vec<Role>,
}

/// Permissions of a role: each verb on each resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleRule {
    /// Actions.
    #[schema(min_items = 1)]
    pub verbs: Vec<Verb>,
    /// Kinds of resources.
    #[schema(min_items = 1)]
    pub resources: Vec<Resource>,
}

/// Request to create or replace a custom role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutRole {
    /// Purpose of the role, at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub description: Option<String>,
    /// Permissions of the role.
    #[schema(min_items = 1)]
    pub rules: Vec<RoleRule>,
}

/// Role binding: an account or a group has a role in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Binding {
    /// Name of the role.
    pub role: String,
    /// Name of the account; absent for a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Name of the group at the OpenID provider; absent for an account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Namespace, or `*` for all namespaces and the cluster itself.
    pub namespace: String,
    /// Time at which the binding was created.
    pub created_at: Timestamp,
    /// User who created the binding.
    pub created_by: String,
}

/// All role bindings that the caller may see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bindings {
    /// Bindings of accounts, then those of groups, by name, role and namespace.
    pub items: Vec<Binding>,
}

/// Request to give an account or a group a role in a namespace. Exactly one of `account` and `group` is required.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutBinding {
    /// Name of the role.
    pub role: String,
    /// Name of the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Name of a group, as the OpenID provider names it. All accounts with the group at their last login get the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Namespace, or `*` for all namespaces and the cluster itself.
    pub namespace: String,
}

/// Kind of the bearer of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// Administrator: all rights, independent of accounts.
    Admin,
    /// Worker: connects to the servers, and nothing else.
    Worker,
    /// Account of a person.
    User,
    /// Account of a program.
    Service,
}

crate::status::words! { TokenKind, "a kind of token", {
    Admin = "admin";
    Worker = "worker";
    User = "user";
    Service = "service";
} }

/// Token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// ID of the token; not secret. A token begins with `bf_`, its kind and its ID.
    pub id: String,
    /// Kind of the bearer.
    pub kind: TokenKind,
    /// Name of the bearer: an account, or the name that an admin or worker token was given.
    pub name: String,
    /// Purpose of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Role that limits the token: it never has more rights than this role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Namespaces that limit the token. Empty: no limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Whether a login with a password created the token. The token is then a session, and ends when the person logs out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub session: bool,
    /// Status of the token.
    pub status: TokenStatus,
    /// Time at which the token was created.
    pub created_at: Timestamp,
    /// User who created the token.
    pub created_by: String,
    /// Time at which the token expires. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Time at which the token was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// Status of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenStatus {
    /// Accepted.
    Active,
    /// Refused, because its time has passed.
    Expired,
    /// Refused, because a user revoked it.
    Revoked,
}

crate::status::words! { TokenStatus, "a status of a token", {
    Active = "active";
    Expired = "expired";
    Revoked = "revoked";
} }

/// Tokens that the caller may see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tokens {
    /// Tokens, newest first.
    pub items: Vec<Token>,
}

/// Request to create a token.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateToken {
    /// Account of the token [default: your own account]. Not for tokens of the kinds `admin` and `worker`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// `admin` or `worker`, for a token without an account [default: the kind of the account].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<TokenKind>,
    /// Name of the bearer of an `admin` or `worker` token [default: the kind].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Purpose of the token, at most 200 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub description: Option<String>,
    /// Role that limits the token: it never has more rights than this role [default: the rights of the account].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Namespaces that limit the token [default: the namespaces of the account].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Time until the token expires, at most 366 days for tokens of accounts [default: 90 days; never for `admin` and
    /// `worker`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "720h")]
    pub expires_in: Option<Duration>,
}

/// New token. The server keeps only a hash of the secret, so this response is the only one that has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// The token itself: send it as `Authorization: Bearer TOKEN`.
    pub secret: String,
    /// Description of the token.
    pub token: Token,
}

/// Password, as the person has typed it. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, format = Password)]
pub struct PasswordText(pub String);

impl std::fmt::Debug for PasswordText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordText(…)")
    }
}

/// Request to log in with a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogIn {
    /// Name of the account.
    pub account: String,
    /// Password of the account.
    pub password: PasswordText,
    /// Code of the authenticator app, or a recovery code. Required if the account has a second factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<PasswordText>,
    /// Whether the session lasts for 30 days instead of one [default: false].
    #[serde(default)]
    pub remember: bool,
    /// Whether the session is a cookie of a browser: the response then has no secret [default: false].
    #[serde(default)]
    pub cookie: bool,
}

/// New session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoggedIn {
    /// The caller, with its rights.
    pub me: Me,
    /// Description of the session.
    pub session: Token,
    /// Secret of the session: send it as `Authorization: Bearer SECRET`. Absent if the session is a cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Request to turn on the second factor of the own account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartTotp {
    /// Password of the account.
    pub password: PasswordText,
}

/// Secret for an authenticator app. It has no effect until a first code is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartedTotp {
    /// Secret in base 32, to type into the app.
    pub secret: PasswordText,
    /// Address of the secret, for a QR code.
    pub uri: PasswordText,
    /// Text to send with the first code; valid for 10 minutes.
    pub setup: PasswordText,
}

/// Request to turn on the second factor with a first code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutTotp {
    /// Text of the start.
    pub setup: PasswordText,
    /// Code that the app shows.
    pub code: PasswordText,
}

/// Recovery codes of a second factor. They are not shown again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecoveryCodes {
    /// Codes; each replaces the code of the app once.
    pub codes: Vec<PasswordText>,
}

/// Request to turn off the second factor of the own account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteTotp {
    /// Password of the account.
    pub password: PasswordText,
}

/// Ways to log in at a server, in addition to passwords and tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginMethods {
    /// OpenID provider; absent if the server has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcMethod>,
}

/// OpenID provider of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OidcMethod {
    /// Display name of the provider.
    pub name: String,
    /// URL of the dashboard, at which a login must start: the provider returns the browser to this URL.
    pub url: String,
}

/// Request to start a login at the OpenID provider, from the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartOidcLogin {
    /// Whether the session outlives the browser and lasts for 30 days [default: false].
    pub remember: bool,
    /// Path of the dashboard to show after the login [default: `/`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_to: Option<String>,
    /// Secret of an invitation: the login is linked to its account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invitation: Option<String>,
}

/// Started login at the OpenID provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartedOidcLogin {
    /// URL of the provider to open in the browser.
    pub url: String,
}

/// Request of a command line to exchange the code of a login for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExchangeOidcCode {
    /// Code that the browser has brought; valid once, for a minute.
    pub code: String,
    /// Secret whose SHA-256 the command line has sent at the start.
    pub verifier: PasswordText,
}

/// Reason why a login at the OpenID provider failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OidcProblem {
    /// The person or the provider refused the login.
    AccessDenied,
    /// The login was started too long ago, in another browser, or has already ended.
    Expired,
    /// The provider does not answer.
    ProviderUnavailable,
    /// The provider has answered with an error.
    ProviderRefused,
    /// The provider has sent something that is not valid for this login.
    InvalidResponse,
    /// The person is in no group that may log in.
    NotAllowed,
    /// The person has no account, and the server creates none.
    NoAccount,
    /// Another person has an account with the name.
    AccountExists,
    /// The provider gives the person no name, or none that an account can have.
    NoAccountName,
    /// The provider has not verified the mail address.
    UnverifiedEmail,
    /// The account is disabled, or is that of a program.
    AccountDisabled,
    /// The invitation is not valid.
    InvitationInvalid,
    /// The server failed.
    ServerError,
}

impl OidcProblem {
    /// All reasons.
    pub const ALL: &[Self] = &[
        Self::AccessDenied,
        Self::Expired,
        Self::ProviderUnavailable,
        Self::ProviderRefused,
        Self::InvalidResponse,
        Self::NotAllowed,
        Self::NoAccount,
        Self::AccountExists,
        Self::NoAccountName,
        Self::UnverifiedEmail,
        Self::AccountDisabled,
        Self::InvitationInvalid,
        Self::ServerError,
    ];

    /// Returns the word of the reason, such as `access_denied`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AccessDenied => "access_denied",
            Self::Expired => "expired",
            Self::ProviderUnavailable => "provider_unavailable",
            Self::ProviderRefused => "provider_refused",
            Self::InvalidResponse => "invalid_response",
            Self::NotAllowed => "not_allowed",
            Self::NoAccount => "no_account",
            Self::AccountExists => "account_exists",
            Self::NoAccountName => "no_account_name",
            Self::UnverifiedEmail => "unverified_email",
            Self::AccountDisabled => "account_disabled",
            Self::InvitationInvalid => "invitation_invalid",
            Self::ServerError => "server_error",
        }
    }

    /// Returns the reason of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|problem| problem.as_str() == word)
    }

    /// Returns the message for the person.
    pub const fn message(self) -> &'static str {
        match self {
            Self::AccessDenied => "the provider refused the login",
            Self::Expired => "the login has expired, or was started in another browser: start it again",
            Self::ProviderUnavailable => "the OpenID provider does not answer: retry in a moment",
            Self::ProviderRefused => "the OpenID provider answered with an error: start the login again",
            Self::InvalidResponse => {
                "the response of the OpenID provider is not valid: ask an administrator to check the log of the server"
            }
            Self::NotAllowed => "you are in no group that may log in: ask an administrator",
            Self::NoAccount => "you have no account: ask an administrator for an invitation",
            Self::AccountExists => {
                "an account with your name already exists: if it is yours, ask an administrator for an invitation"
            }
            Self::NoAccountName => {
                "the OpenID provider gives you no valid account name: ask an administrator"
            }
            Self::UnverifiedEmail => "the OpenID provider has not verified your email address",
            Self::AccountDisabled => "your account is disabled: ask an administrator",
            Self::InvitationInvalid => "the invitation is not valid: ask an administrator for a new link",
            Self::ServerError => "the server failed: retry in a moment",
        }
    }
}

/// Request for an invitation to set the password of an account.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateInvitation {
    /// Time until the invitation expires, at most 30 days [default: 3 days].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "72h")]
    pub expires_in: Option<Duration>,
    /// Whether the password is deleted and the sessions end at once. Otherwise the password is valid until the person
    /// sets a new one [default: false].
    pub reset: bool,
}

/// New invitation. The server keeps only a hash of the secret, so this response is the only one that has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedInvitation {
    /// Name of the account.
    pub account: String,
    /// Secret of the invitation. The link is the address of the server with `/#invite=SECRET`.
    pub secret: String,
    /// Time at which the invitation expires.
    pub expires_at: Timestamp,
}

/// Question which account an invitation is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckInvitation {
    /// Secret of the invitation.
    pub secret: String,
}

/// Invitation, as its bearer sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckedInvitation {
    /// Name of the account.
    pub account: String,
    /// Display name of the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether the account has a password, which the new one replaces.
    pub has_password: bool,
    /// Time at which the invitation expires.
    pub expires_at: Timestamp,
}

/// Request to set a password with an invitation, and to log in with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptInvitation {
    /// Secret of the invitation.
    pub secret: String,
    /// New password: 12 to 128 characters.
    pub password: PasswordText,
    /// Code of the authenticator app, or a recovery code. Required if the account has a second factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<PasswordText>,
    /// Whether the session lasts for 30 days instead of one [default: false].
    #[serde(default)]
    pub remember: bool,
    /// Whether the session is a cookie of a browser: the response then has no secret [default: false].
    #[serde(default)]
    pub cookie: bool,
}

/// Request to change the own password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePassword {
    /// Current password.
    pub current: PasswordText,
    /// New password: 12 to 128 characters.
    pub new: PasswordText,
}

/// Answer to the question whether an account may do something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessDecision {
    /// Whether the action is allowed.
    pub allowed: bool,
    /// Reason of a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// Name of the caller.
    pub name: String,
    /// Kind of the token.
    pub kind: TokenKind,
    /// Display name of the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether the account has a password.
    #[serde(default)]
    pub has_password: bool,
    /// Whether a login with the password needs a second factor.
    #[serde(default)]
    pub has_totp: bool,
    /// Groups of the account at its last login at the OpenID provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whether the caller has logged in, and has no token.
    #[serde(default)]
    pub session: bool,
    /// Rights of the caller.
    pub rights: Vec<Right>,
}

/// Actions that the caller may take on a kind of resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Right {
    /// Kind of resource.
    pub resource: Resource,
    /// Action.
    pub verb: Verb,
    /// Namespaces in which the action is allowed; `*` for all namespaces and the cluster itself.
    pub namespaces: Vec<String>,
}
