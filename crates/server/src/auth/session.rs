//! Browser sessions: the rights of a token, in a cookie that no script can read.
//!
//! A session is a text with the id of its token and its end time, and a MAC with a key of the server. The server stores
//! nothing: [`Sessions::read`] checks the MAC and the time. [`AccessControl::bearer`](super::AccessControl::bearer) returns
//! `None` after the token was deleted.
//!
//! # Invariants
//! - A session does not reveal its token.
//! - A session ends with its token, at its end time, or when the server's key changes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use model::Timestamp;
use sha2::Sha256;

/// Domain separator: a session's MAC is valid for no other purpose under the same key.
const PURPOSE: &str = "belfry session v1";

/// Creates and verifies browser sessions.
#[derive(Clone)]
pub struct Sessions {
    key: [u8; 32],
}

impl Sessions {
    /// Creates it with the session key of the server.
    pub const fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// Returns a session of the token with this id, valid before `until`. It consists of letters, digits, `-`, `_` and
    /// `.`.
    pub fn open(&self, token_id: &str, until: Timestamp) -> String {
        let body = format!("{token_id}.{}", until.as_millis());
        let mac = URL_SAFE_NO_PAD.encode(self.mac(&body).finalize().into_bytes());
        format!("{body}.{mac}")
    }

    /// Returns the token id of a session; `None` if the session has expired or its MAC is invalid.
    pub fn read<'a>(&self, session: &'a str, now: Timestamp) -> Option<&'a str> {
        let (body, mac) = session.rsplit_once('.')?;
        self.mac(body).verify_slice(&URL_SAFE_NO_PAD.decode(mac).ok()?).ok()?;
        let (token_id, until) = body.split_once('.')?;
        (now.as_millis() < until.parse().ok()?).then_some(token_id)
    }

    fn mac(&self, body: &str) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a MAC takes a key of any length");
        mac.chain_update(PURPOSE).chain_update([0]).chain_update(body)
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Timestamp = Timestamp::from_millis(1_000);
    const BEFORE: Timestamp = Timestamp::from_millis(999);

    #[test]
    fn a_session_names_its_token_until_its_end() {
        let sessions = Sessions::new([7; 32]);
        let session = sessions.open("abc", END);
        assert_eq!(sessions.read(&session, BEFORE), Some("abc"));
        assert_eq!(sessions.read(&session, END), None);
    }

    #[test]
    fn a_changed_session_is_invalid() {
        let sessions = Sessions::new([7; 32]);
        let session = sessions.open("abc", END);
        for at in 0..session.len() {
            let mut changed = session.clone().into_bytes();
            changed[at] = if changed[at] == b'x' { b'9' } else { b'x' };
            assert_eq!(sessions.read(str::from_utf8(&changed).unwrap(), BEFORE), None, "at {at}");
        }
        for text in ["", ".", "..", "abc.1000", "abc.1000."] {
            assert_eq!(sessions.read(text, BEFORE), None, "{text}");
        }
    }

    #[test]
    fn a_session_of_another_key_is_invalid() {
        let session = Sessions::new([7; 32]).open("abc", END);
        assert_eq!(Sessions::new([8; 32]).read(&session, BEFORE), None);
    }
}
