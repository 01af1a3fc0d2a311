//! Time-based one-time codes (RFC 6238) as a second factor of logins with passwords, and recovery codes.
//!
//! The parameters are those that every authenticator app supports: HMAC-SHA-1, 6 digits, steps of 30 seconds. A code of the
//! step before or after is accepted too, because clocks differ. The directory keeps the step of the last accepted code, so
//! a code works once.
//!
//! A recovery code has 80 random bits, so a fast hash is enough.
//!
//! # Invariants
//! - The secret and the codes appear in no `Debug` output and no log.

use std::fmt;

use ring::hmac;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Length of a step, in seconds.
const STEP_SECONDS: u64 = 30;
const DIGITS: usize = 6;
/// Steps before and after the present one whose codes are accepted.
const SKEW: u64 = 1;
/// Length of a secret in bytes, that of the hash (RFC 4226, section 4).
const SECRET_LEN: usize = 20;
/// Number of recovery codes.
const RECOVERY_CODES: usize = 10;
/// Length of a recovery code in bytes.
const RECOVERY_LEN: usize = 10;
/// Alphabet of base 32 (RFC 4648).
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Secret that the server and an authenticator app share.
#[derive(Clone, PartialEq, Eq)]
pub struct TotpSecret(Vec<u8>);

impl fmt::Debug for TotpSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TotpSecret(…)")
    }
}

impl TotpSecret {
    /// Returns a new secret.
    pub fn generate() -> Self {
        Self(rand::random::<[u8; SECRET_LEN]>().to_vec())
    }

    /// Reads the text of a secret.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = from_base32(text)?;
        (bytes.len() == SECRET_LEN).then_some(Self(bytes))
    }

    /// Returns the secret in base 32, as people type it into an app.
    pub fn text(&self) -> String {
        to_base32(&self.0)
    }

    /// Returns the address of the secret for an authenticator app, as a QR code has it.
    pub fn uri(&self, account: &str) -> String {
        let account = percent_encoding::utf8_percent_encode(account, percent_encoding::NON_ALPHANUMERIC);
        format!("otpauth://totp/Belfry:{account}?secret={}&issuer=Belfry", self.text())
    }

    /// Returns the step of a code at a time in seconds since 1970; `None` if the code is wrong, or its step is not after
    /// `last`. The time does not depend on the code.
    pub fn step_of(&self, code: &str, seconds: u64, last: u64) -> Option<u64> {
        let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
        let now = seconds / STEP_SECONDS;
        let mut found = None;
        for step in now.saturating_sub(SKEW)..=now + SKEW {
            if bool::from(self.code(step).as_bytes().ct_eq(code.as_bytes())) && step > last {
                found = Some(step);
            }
        }
        found
    }

    /// Returns the code of a step (RFC 4226, section 5.3).
    fn code(&self, step: u64) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let tag = tag.as_ref();
        let offset = usize::from(tag[tag.len() - 1] & 0xf);
        let bytes = [tag[offset] & 0x7f, tag[offset + 1], tag[offset + 2], tag[offset + 3]];
        format!("{:0DIGITS$}", u32::from_be_bytes(bytes) % 10_u32.pow(DIGITS as u32))
    }

    /// Returns the code at a time in seconds since 1970.
    #[cfg(test)]
    pub fn code_at(&self, seconds: u64) -> String {
        self.code(seconds / STEP_SECONDS)
    }
}

/// Returns new recovery codes, in groups of four letters and digits.
pub fn recovery_codes() -> Vec<String> {
    let group = |text: String| {
        let groups: Vec<_> = text.as_bytes().chunks(4).map(String::from_utf8_lossy).collect();
        groups.join("-").to_lowercase()
    };
    (0..RECOVERY_CODES).map(|_| group(to_base32(&rand::random::<[u8; RECOVERY_LEN]>()))).collect()
}

/// Returns the hash of a recovery code; `None` for text that is none. Spaces, hyphens and letter case do not matter.
pub fn recovery_hash(code: &str) -> Option<[u8; 32]> {
    let plain: String = code.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    let bytes = from_base32(&plain.to_uppercase()).filter(|bytes| bytes.len() == RECOVERY_LEN)?;
    Some(Sha256::digest(bytes).into())
}

fn to_base32(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(5) {
        let mut group = [0; 8];
        group[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(group);
        let digits = (chunk.len() * 8).div_ceil(5);
        text.extend((0..digits).map(|at| char::from(BASE32[(bits >> (35 - 5 * at) & 31) as usize])));
    }
    text
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes() {
        let value = BASE32.iter().position(|known| *known == digit)?;
        bits = bits << 5 | value as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret of appendix B of RFC 6238.
    fn secret() -> TotpSecret {
        TotpSecret(b"12345678901234567890".to_vec())
    }

    /// Appendix B of RFC 6238, the last six of the eight digits.
    #[test]
    fn codes_are_those_of_the_standard() {
        for (seconds, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(secret().code(seconds / STEP_SECONDS), code, "{seconds}");
        }
    }

    #[test]
    fn a_code_is_accepted_one_step_early_or_late_and_once() {
        let (secret, now) = (secret(), 1_111_111_111);
        let step = now / STEP_SECONDS;
        let code = secret.code(step);
        for (seconds, accepted) in
            [(now - 60, false), (now - 30, true), (now, true), (now + 30, true), (now + 90, false)]
        {
            assert_eq!(secret.step_of(&code, seconds, 0).is_some(), accepted, "{seconds}");
        }
        assert_eq!(secret.step_of("050 471", now, step - 1), Some(step), "apps show a space");
        assert_eq!(secret.step_of(&code, now, step), None, "it was used");
        for wrong in ["", "050472", "0504711", "50471", "０５０４７１"] {
            assert_eq!(secret.step_of(wrong, now, 0), None, "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_read_as_it_was_written() {
        assert_eq!(secret().text(), "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        assert_eq!(TotpSecret::parse(&secret().text()), Some(secret()));
        for wrong in ["", "GEZD", "gezdgnbvgy3tqojqgezdgnbvgy3tqojq", "1"] {
            assert_eq!(TotpSecret::parse(wrong), None, "{wrong}");
        }
        let uri = secret().uri("ann@example.com");
        assert_eq!(
            uri,
            "otpauth://totp/Belfry:ann%40example%2Ecom?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=Belfry"
        );
        assert_eq!(format!("{:?}", secret()), "TotpSecret(…)");
    }

    #[test]
    fn recovery_codes_differ_and_are_read_in_any_form() {
        let codes = recovery_codes();
        let distinct: std::collections::BTreeSet<_> = codes.iter().collect();
        assert_eq!((codes.len(), distinct.len()), (RECOVERY_CODES, RECOVERY_CODES));
        assert_eq!(codes[0].len(), 19, "{}", codes[0]);
        let typed = codes[0].to_uppercase().replace('-', " ");
        assert_eq!(recovery_hash(&typed), recovery_hash(&codes[0]));
        assert!(recovery_hash("123456").is_none() && recovery_hash("").is_none());
    }
}
