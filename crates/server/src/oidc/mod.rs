//! Logins at an OpenID provider: authorization code flow with PKCE (OpenID Connect Core 1.0, RFC 7636).
//!
//! ```text
//! browser ──start──> server: state, nonce, verifier ──sealed cookie──> browser ──> provider
//! browser <──code, state── provider
//! browser ──callback──> server ──code, verifier──> provider ──ID token──> server: checks ──> Person
//! ```
//!
//! - [`Oidc`]: the provider of the settings; its metadata and keys are read on demand and cached.
//! - `pending`: what the server must remember between start and callback. It is in a sealed cookie, so the callback may
//!   arrive at any server.
//! - `http`: requests to the provider, which respect `server.private_networks`.
//! - `jwt`: signatures of ID tokens; `claims`: their contents.
//!
//! The account of a person is the matter of the crate `access`, and the routes are in `api::oidc`.
//!
//! # Invariants
//! - Only a callback in the browser that has started a login, with the state of this start, leads to a request to the
//!   provider.
//! - A person is known by issuer and subject. No claim that the provider, or the person, can change selects an account.
//! - Neither codes, tokens nor the client secret appear in a log or an error.

mod claims;
mod http;
mod jwt;
mod pending;
mod provider;

pub use model::api::OidcProblem;
pub(crate) use pending::PENDING_FOR;
pub use pending::{CliLogin, Grant, Pending, challenge_of, random_text};
pub use provider::{Oidc, Person};

/// Difference between the clocks of the provider and of the server that is accepted, in seconds.
const CLOCK_SKEW: i64 = 60;

/// Failure of a login: the reason for the person, and the details for the log of the server.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub struct Failure {
    /// Reason that the person sees.
    pub problem: OidcProblem,
    /// Details for the log. They contain no codes and no tokens.
    pub detail: String,
}

impl Failure {
    fn new(problem: OidcProblem, detail: impl Into<String>) -> Self {
        Self { problem, detail: detail.into() }
    }

    /// The provider sent something that the server cannot accept.
    fn invalid(detail: impl Into<String>) -> Self {
        Self::new(OidcProblem::InvalidResponse, detail)
    }

    /// The provider does not answer.
    fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(OidcProblem::ProviderUnavailable, detail)
    }
}
