//! Browser sessions: the rights of a token, in a cookie that no script can read.
//!
//! A session is a text with the id of its token and its end time, and a MAC with a key of the server. The server stores
//! nothing: [`Sessions::read`] checks the MAC and the time. [`AccessControl::bearer`](super::AccessControl::bearer) returns
//! `None` after the token was deleted.
//!
//! The session of a login with a password ends when it was idle for some time: it has a class ([`SessionClass`]), and its
//! cookie is replaced by one with a later end while the browser sends requests. Its token has the last end of all.
//!
//! # Invariants
//! - A session does not reveal its token.
//! - A session ends with its token, at its end time, or when the server's key changes.
//! - A proof that a browser has logged in to an account ([`Sessions::prove_browser`]) gives no right.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use model::{Duration, Timestamp};
use sha2::Sha256;

/// Domain separator: a session's MAC is valid for no other purpose under the same key.
const PURPOSE: &str = "belfry session v1";
/// The same for proofs that a browser has logged in before.
const BROWSER_PURPOSE: &str = "belfry browser v1";

/// How long the session of a login lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionClass {
    /// Until the browser ends, at most a day. It ends after 8 hours without a request.
    Short,
    /// At most 30 days, also over restarts of the browser. It ends after 7 days without a request.
    Remembered,
}

impl SessionClass {
    /// Returns the class that the user has chosen.
    pub const fn of(remember: bool) -> Self {
        if remember { Self::Remembered } else { Self::Short }
    }

    /// Returns the time from the login to the end of the session.
    pub const fn lasts(self) -> Duration {
        match self {
            Self::Short => Duration::from_hours(24),
            Self::Remembered => Duration::from_hours(24 * 30),
        }
    }

    /// Returns the time without a request after which the session ends.
    pub const fn idle(self) -> Duration {
        match self {
            Self::Short => Duration::from_hours(8),
            Self::Remembered => Duration::from_hours(24 * 7),
        }
    }

    /// Returns the end of a session that is in use now, and whose token ends at `token_end`.
    pub fn until(self, now: Timestamp, token_end: Timestamp) -> Timestamp {
        (now + self.idle()).min(token_end)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Short => "s",
            Self::Remembered => "r",
        }
    }
}

/// Valid session of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Id of the token that the session represents.
    pub token_id: String,
    /// Time at which the session ends.
    pub until: Timestamp,
    /// Class of the session of a login; `None` for the session of a token.
    pub class: Option<SessionClass>,
}

impl Session {
    /// Returns the class and the new end of a session that should be renewed: at least a tenth of its idle time has
    /// passed. The session cannot outlive its token, which ends at `token_end`.
    pub fn renewed(&self, now: Timestamp, token_end: Timestamp) -> Option<(SessionClass, Timestamp)> {
        let class = self.class?;
        let until = class.until(now, token_end);
        let gained = until.since(self.until).as_millis();
        (until > self.until && gained >= class.idle().as_millis() / 10).then_some((class, until))
    }
}

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
    pub fn open(&self, token_id: &str, until: Timestamp, class: Option<SessionClass>) -> String {
        let mut body = format!("{token_id}.{}", until.as_millis());
        if let Some(class) = class {
            body = format!("{body}.{}", class.as_str());
        }
        let mac = URL_SAFE_NO_PAD.encode(self.mac(PURPOSE, &body).finalize().into_bytes());
        format!("{body}.{mac}")
    }

    /// Returns a session; `None` if the session has expired or its MAC is invalid.
    pub fn read(&self, session: &str, now: Timestamp) -> Option<Session> {
        let (body, mac) = session.rsplit_once('.')?;
        self.mac(PURPOSE, body).verify_slice(&URL_SAFE_NO_PAD.decode(mac).ok()?).ok()?;
        let mut parts = body.split('.');
        let (token_id, until) = (parts.next()?, Timestamp::from_millis(parts.next()?.parse().ok()?));
        let class = match parts.next() {
            None => None,
            Some("s") => Some(SessionClass::Short),
            Some("r") => Some(SessionClass::Remembered),
            Some(_) => return None,
        };
        (now < until).then(|| Session { token_id: token_id.to_owned(), until, class })
    }

    /// Returns the proof that the browser with this id has logged in to an account. It gives no right, and only lets the
    /// browser pass limits that attackers of the account have used up. It consists of letters, digits, `-`, `_` and `.`.
    pub fn prove_browser(&self, id: &str, account: &str) -> String {
        let mac = self.mac(BROWSER_PURPOSE, &format!("{id}.{account}"));
        format!("{id}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    /// Returns the id of a browser that has logged in to this account; `None` if the proof is invalid, or one of another
    /// account.
    pub fn browser<'a>(&self, proof: &'a str, account: &str) -> Option<&'a str> {
        let (id, mac) = proof.split_once('.')?;
        let expected = self.mac(BROWSER_PURPOSE, &format!("{id}.{account}"));
        expected.verify_slice(&URL_SAFE_NO_PAD.decode(mac).ok()?).ok()?;
        Some(id)
    }

    fn mac(&self, purpose: &str, body: &str) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a MAC takes a key of any length");
        mac.chain_update(purpose).chain_update([0]).chain_update(body)
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
        for class in [None, Some(SessionClass::Short), Some(SessionClass::Remembered)] {
            let session = sessions.open("abc", END, class);
            let found = Session { token_id: "abc".into(), until: END, class };
            assert_eq!(sessions.read(&session, BEFORE), Some(found));
            assert_eq!(sessions.read(&session, END), None);
        }
    }

    #[test]
    fn the_session_of_a_login_is_renewed_after_a_tenth_of_its_idle_time() {
        let now = Timestamp::from_millis(1_780_000_000_000);
        let hours = |count| now + Duration::from_hours(count);
        let renewed = |class, until, token_end| {
            let session = Session { token_id: "abc".into(), until, class };
            session.renewed(now, token_end).map(|(_, until)| until)
        };
        let short = Some(SessionClass::Short);
        assert_eq!(renewed(short, hours(8), hours(24)), None);
        assert_eq!(renewed(short, hours(7), hours(24)), Some(hours(8)));
        assert_eq!(renewed(short, hours(1), hours(3)), Some(hours(3)), "it ends with its token");
        assert_eq!(renewed(short, hours(3), hours(3)), None);
        assert_eq!(renewed(None, hours(1), hours(24)), None, "the session of a token ends at its time");
    }

    #[test]
    fn a_proof_of_a_browser_is_for_one_account_and_no_session() {
        let sessions = Sessions::new([7; 32]);
        let proof = sessions.prove_browser("b1", "ann@example.com");
        assert_eq!(sessions.browser(&proof, "ann@example.com"), Some("b1"));
        assert_eq!(sessions.browser(&proof, "bob"), None);
        assert_eq!(sessions.browser("b1.", "ann@example.com"), None);
        assert_eq!(sessions.read(&sessions.prove_browser("abc", "1000"), BEFORE), None);
        assert_eq!(sessions.browser(&sessions.open("abc", END, None), "1000"), None);
    }

    #[test]
    fn a_changed_session_is_invalid() {
        let sessions = Sessions::new([7; 32]);
        let session = sessions.open("abc", END, Some(SessionClass::Short));
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
        let session = Sessions::new([7; 32]).open("abc", END, None);
        assert_eq!(Sessions::new([8; 32]).read(&session, BEFORE), None);
    }
}
