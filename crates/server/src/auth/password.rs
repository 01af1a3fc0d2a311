//! Passwords: which ones are accepted, and their hashes.
//!
//! A password is hashed with Argon2id, with the parameters that OWASP recommends: 19 MiB of memory, two passes, one lane.
//! Before, its characters are brought into the Unicode form NFKC, as NIST SP 800-63B recommends. So a password that is
//! typed with another keyboard or input method is the same: `é` as one character or two, or `１２３` in full width.
//!
//! A hash takes about 20 ms and 19 MiB. So hashes run on blocking threads, at most `PARALLEL_MAX` at the same time, and
//! at most `WAITING_MAX` wait for a thread. Further ones are refused: requests of clients without a token must not fill
//! the memory.
//!
//! # Invariants
//! - The time of a check does not tell whether the account exists or has a password: a hash that matches nothing takes
//!   the place of a missing one.
//! - No password is logged: a [`ClearText`] does not print its text.

use std::fmt;
use std::sync::{Arc, LazyLock};

use access::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};
use model::limits::{PASSWORD_LEN_MAX, PASSWORD_LEN_MIN};
use tokio::sync::Semaphore;
use unicode_normalization::UnicodeNormalization as _;

/// Memory of a hash in KiB, number of passes, and lanes: one of the equal choices of the "Password Storage Cheat Sheet"
/// of OWASP.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// Most hashes at the same time.
const PARALLEL_MAX: usize = 4;
/// Most hashes that wait for a thread.
const WAITING_MAX: usize = 64;

/// Long passwords that attackers try first. Comparisons ignore letter case.
const COMMON: &[&str] = &[
    "123456789012",
    "1234567890123",
    "12345678901234",
    "123456789123",
    "1234567890qwerty",
    "1q2w3e4r5t6y",
    "1qaz2wsx3edc",
    "abcdefghijkl",
    "administrator",
    "belfrybelfry",
    "changemechangeme",
    "iloveyouiloveyou",
    "letmeinletmein",
    "password1234",
    "password12345",
    "password123456",
    "passwordpassword",
    "qwertyqwerty",
    "qwertyuiop12",
    "qwertyuiop123",
    "qwertyuiopas",
    "qwertyuiopasdfgh",
    "welcome12345",
    "welcomewelcome",
];

/// Password in its Unicode form NFKC.
#[derive(Clone)]
pub struct ClearText(String);

impl ClearText {
    /// Brings a typed password into its form.
    pub fn new(typed: &str) -> Self {
        Self(typed.nfkc().collect())
    }

    /// Checks that an account may have this password. There are no rules about kinds of characters: they make passwords
    /// harder to remember and not harder to guess.
    ///
    /// # Errors
    /// The reason, as the message of a field.
    pub fn check(&self, account: &str) -> Result<(), String> {
        let length = self.0.chars().count();
        if !(PASSWORD_LEN_MIN..=PASSWORD_LEN_MAX).contains(&length) {
            return Err(format!(
                "has {length} characters: expected {PASSWORD_LEN_MIN} to {PASSWORD_LEN_MAX}"
            ));
        }
        if self.0.chars().any(char::is_control) {
            return Err("must not contain control characters".to_owned());
        }
        let lower = self.0.to_lowercase();
        if lower == account.to_lowercase() {
            return Err("must not be the name of the account".to_owned());
        }
        let mut chars = lower.chars();
        let first = chars.next();
        if chars.all(|c| Some(c) == first) || COMMON.contains(&lower.as_str()) {
            return Err("is too common: attackers try it first".to_owned());
        }
        Ok(())
    }
}

impl fmt::Debug for ClearText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClearText(…)")
    }
}

/// Why a hash was not computed.
#[derive(Debug, thiserror::Error)]
pub enum HashError {
    /// Too many hashes wait for a thread.
    #[error("too many logins at the same time")]
    Busy,
    /// The system has no randomness, or the server stops.
    #[error("cannot compute the hash of a password")]
    Failed,
}

/// Computes hashes of passwords on blocking threads, a bounded number at the same time.
#[derive(Debug)]
pub struct Passwords {
    threads: Arc<Semaphore>,
    places: Semaphore,
}

impl Default for Passwords {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with_limits(cores.div_ceil(2).min(PARALLEL_MAX), WAITING_MAX)
    }
}

impl Passwords {
    fn with_limits(threads: usize, waiting: usize) -> Self {
        Self { threads: Arc::new(Semaphore::new(threads)), places: Semaphore::new(threads + waiting) }
    }

    /// Returns the hash of a password, with a new salt.
    ///
    /// # Errors
    /// [`HashError`]
    pub async fn hash(&self, password: &ClearText) -> Result<PasswordHash, HashError> {
        let password = password.clone();
        self.run(move || hash(&password)).await?.ok_or(HashError::Failed)
    }

    /// Returns whether a password matches a hash. Without a hash it takes the same time, and the password does not match.
    ///
    /// # Errors
    /// [`HashError`]
    pub async fn verify(&self, password: &ClearText, hash: Option<&PasswordHash>) -> Result<bool, HashError> {
        let (password, hash) = (password.clone(), hash.cloned());
        let check = move || {
            // Also with a hash: its first use takes longer.
            let missing = LazyLock::force(&NO_PASSWORD);
            matches(&password, hash.as_ref().unwrap_or(missing)) && hash.is_some()
        };
        self.run(check).await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HashError> {
        let _place = self.places.try_acquire().map_err(|_| HashError::Busy)?;
        let thread = Arc::clone(&self.threads).acquire_owned().await.map_err(|_| HashError::Failed)?;
        let running = tokio::task::spawn_blocking(move || {
            // Held by the work itself: a client that disconnects does not stop it.
            let _thread = thread;
            work()
        });
        running.await.map_err(|_| HashError::Failed)
    }
}

/// Hash that no password is known for, with the current parameters.
static NO_PASSWORD: LazyLock<PasswordHash> = LazyLock::new(|| {
    let random: [u8; 32] = rand::random();
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    hash(&ClearText(text)).unwrap_or_else(|| PasswordHash(String::new()))
});

fn argon2() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).expect("the parameters are in their ranges");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

fn hash(password: &ClearText) -> Option<PasswordHash> {
    let hash = argon2().hash_password(password.0.as_bytes()).ok()?;
    Some(PasswordHash(hash.to_string()))
}

/// Compares with the parameters of the hash, in constant time.
fn matches(password: &ClearText, hash: &PasswordHash) -> bool {
    argon2().verify_password(password.0.as_bytes(), hash.0.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(password: &str) -> String {
        ClearText::new(password).check("ann@example.com").unwrap_err()
    }

    #[tokio::test]
    async fn a_password_matches_its_hash_and_no_other() {
        let passwords = Passwords::default();
        let [right, wrong] = ["correct horse battery", "correct horse batterz"].map(ClearText::new);
        let hash = passwords.hash(&right).await.unwrap();
        assert!(hash.0.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.0);
        assert!(passwords.verify(&right, Some(&hash)).await.unwrap());
        assert!(!passwords.verify(&wrong, Some(&hash)).await.unwrap());
        assert_ne!(hash, passwords.hash(&right).await.unwrap(), "each hash has a salt of its own");
        assert!(!passwords.verify(&right, None).await.unwrap());
        let damaged = PasswordHash("$argon2id$v=19$m=19456".into());
        assert!(!passwords.verify(&right, Some(&damaged)).await.unwrap());
        assert!(!format!("{right:?} {hash:?}").contains("horse"));
    }

    #[tokio::test]
    async fn one_text_typed_in_two_ways_is_one_password() {
        let passwords = Passwords::default();
        let hash = passwords.hash(&ClearText::new("caf\u{e9} １２３ 密码密码")).await.unwrap();
        let other = ClearText::new("cafe\u{301} 123 密码密码");
        assert!(passwords.verify(&other, Some(&hash)).await.unwrap());
    }

    #[test]
    fn long_texts_of_any_script_are_accepted() {
        for password in
            ["correct horse battery staple", "一二三四五六七八九十百千", "aB3$ aB3$ aB3$", &"é1".repeat(64)]
        {
            assert_eq!(ClearText::new(password).check("ann@example.com"), Ok(()), "{password}");
        }
    }

    #[test]
    fn short_long_and_guessable_texts_are_refused() {
        assert_eq!(refused("elevenchars"), "has 11 characters: expected 12 to 128");
        assert_eq!(refused(&"ab".repeat(65)), "has 130 characters: expected 12 to 128");
        assert_eq!(refused("Ann@Example.com"), "must not be the name of the account");
        assert_eq!(refused("correct horse\n"), "must not contain control characters");
        for common in ["PasswordPassword", "aaaaaaaaaaaaaaa", "1qaz2wsx3edc"] {
            assert_eq!(refused(common), "is too common: attackers try it first");
        }
    }

    /// Clients without a token must not fill the memory of the server.
    #[tokio::test]
    async fn further_hashes_are_refused_while_too_many_wait() {
        let passwords = Passwords::with_limits(1, 2);
        let password = ClearText::new("correct horse battery");
        let all = futures::future::join_all((0..5).map(|_| passwords.verify(&password, None))).await;
        let refused = all.iter().filter(|it| matches!(it, Err(HashError::Busy))).count();
        assert_eq!((refused, all.iter().filter(|it| it.is_ok()).count()), (2, 3));
        assert!(passwords.verify(&password, None).await.is_ok(), "the places are free again");
    }
}
