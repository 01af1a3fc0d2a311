//! Logins between their start and their end.
//!
//! Nothing of them is in the memory of a server: [`Pending`] is in a sealed cookie of the browser that has started the
//! login, and a [`Grant`] in the sealed code that a command line exchanges for its session. All servers of a store have the
//! key. Both name the session that they will open, and the store opens a session only once, so neither can be used twice.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::{Duration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::seal::Sealer;

/// Time between the start and the callback of a login.
pub(crate) const PENDING_FOR: Duration = Duration::from_secs(600);
/// Time in which a command line exchanges its code.
const GRANT_FOR: Duration = Duration::from_secs(60);

/// Contexts of the sealed texts: one is not accepted in the place of the other.
const PENDING: &str = "belfry oidc login v1";
const GRANT: &str = "belfry oidc code v1";

/// Login that a browser has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// Parameter `state`: the callback must have the same.
    pub state: String,
    /// Claim of the ID token.
    pub nonce: String,
    /// Secret of PKCE.
    pub verifier: String,
    /// Id of the session that the login opens.
    pub token_id: String,
    /// Time of the start.
    pub started_at: Timestamp,
    /// Whether the session outlives the browser.
    pub remember: bool,
    /// Path of the dashboard after the login.
    pub return_to: String,
    /// Id of the invitation that the person uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invitation: Option<String>,
    /// Command line that waits for the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cli: Option<CliLogin>,
}

/// Command line that waits on a port of the loopback address (RFC 8252, section 7.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CliLogin {
    /// Port.
    pub port: u16,
    /// SHA-256 of the secret of the command line, see [`challenge_of`].
    pub challenge: String,
    /// Text of the command line, which the result repeats.
    pub state: String,
}

/// Right of a command line to open a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Name of the account.
    pub account: String,
    /// Identifier of the person at the provider.
    pub subject: String,
    /// Id of the session that the grant opens.
    pub token_id: String,
    /// Hash of the secret of the command line.
    pub challenge: String,
    /// Whether the session lasts for 30 days.
    pub remember: bool,
    /// Time of the grant.
    pub granted_at: Timestamp,
}

impl Pending {
    /// Starts a login that opens the session with this id.
    pub fn start(token_id: String, now: Timestamp) -> Self {
        Self {
            state: random_text(),
            nonce: random_text(),
            verifier: random_text(),
            token_id,
            started_at: now,
            remember: false,
            return_to: "/".to_owned(),
            invitation: None,
            cli: None,
        }
    }

    /// Returns the value of the cookie.
    pub fn seal(&self, sealer: &Sealer) -> String {
        sealer.seal(PENDING, &serde_json::to_string(self).expect("it has only texts and numbers"))
    }

    /// Reads a cookie; `None` if it is forged or too old.
    pub fn open(sealed: &str, sealer: &Sealer, now: Timestamp) -> Option<Self> {
        let pending: Self = serde_json::from_str(&sealer.open_text(PENDING, sealed).ok()?).ok()?;
        (now < pending.started_at + PENDING_FOR).then_some(pending)
    }

    /// Returns whether a callback belongs to this login.
    pub fn has_state(&self, state: &str) -> bool {
        self.state.as_bytes().ct_eq(state.as_bytes()).into()
    }
}

impl Grant {
    /// Returns the code.
    pub fn seal(&self, sealer: &Sealer) -> String {
        sealer.seal(GRANT, &serde_json::to_string(self).expect("it has only texts and numbers"))
    }

    /// Reads a code; `None` if it is forged, too old, or the secret is not that of its command line.
    pub fn open(code: &str, verifier: &str, sealer: &Sealer, now: Timestamp) -> Option<Self> {
        let grant: Self = serde_json::from_str(&sealer.open_text(GRANT, code).ok()?).ok()?;
        let is_same = bool::from(challenge_of(verifier).as_bytes().ct_eq(grant.challenge.as_bytes()));
        (is_same && now < grant.granted_at + GRANT_FOR).then_some(grant)
    }
}

/// Returns the challenge of a secret: the base64url of its SHA-256 (`S256` of RFC 7636).
pub fn challenge_of(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

/// Returns a text of 256 random bits.
pub fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_login_is_read_by_each_server_until_it_is_too_old() {
        let now = Timestamp::from_millis(1_780_000_000_000);
        let pending = Pending::start("abc".into(), now);
        let sealed = pending.seal(&Sealer::with_key([7; 32]));
        let open = |key, at| Pending::open(&sealed, &Sealer::with_key([key; 32]), at);
        assert_eq!(open(7, now), Some(pending.clone()));
        assert_eq!(open(7, now + PENDING_FOR), None);
        assert_eq!(open(8, now), None);
        assert!(pending.has_state(&pending.state) && !pending.has_state(""));
        assert!(!sealed.contains(&pending.verifier));
    }

    #[test]
    fn a_code_is_only_for_the_command_line_that_has_asked() {
        let now = Timestamp::from_millis(1_780_000_000_000);
        let sealer = Sealer::with_key([7; 32]);
        let challenge = challenge_of("secret");
        let grant = Grant {
            account: "ann".into(),
            subject: "s-1".into(),
            token_id: "abc".into(),
            challenge,
            remember: false,
            granted_at: now,
        };
        let code = grant.seal(&sealer);
        assert_eq!(Grant::open(&code, "secret", &sealer, now), Some(grant.clone()));
        assert_eq!(Grant::open(&code, "guess", &sealer, now), None);
        assert_eq!(Grant::open(&code, "secret", &sealer, now + GRANT_FOR), None);
        assert_eq!(Pending::open(&code, &sealer, now), None, "a code is no cookie");
    }
}
