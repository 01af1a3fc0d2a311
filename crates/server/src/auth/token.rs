//! Text format of bearer tokens and invitations: `bf_<kind>_<id>_<secret><checksum>`. The kind of an invitation is
//! `invite`.
//!
//! The id is not secret and identifies the token; the secret has 256 random bits. The checksum is the CRC-32 of the
//! text before it. With it, a scanner can verify a leaked token without a server, and a truncated token is refused. Id,
//! secret and checksum are lower-case Crockford base 32, which is easy to read aloud and to select by a double-click.

use std::fmt;

use access::IdentityKind;
use sha2::{Digest, Sha256};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// 60 bits: collisions of ids in one server are practically impossible.
const ID_LEN: usize = 12;
/// 256 bits, and four bits of padding.
const SECRET_LEN: usize = 52;
/// 32 bits, and three bits of padding.
const CHECKSUM_LEN: usize = 7;

const KINDS: [IdentityKind; 4] =
    [IdentityKind::Admin, IdentityKind::Worker, IdentityKind::User, IdentityKind::Service];

/// Kind of an invitation, as it stands in its text.
const INVITATION: &str = "invite";

/// Returns the name of a kind, as it stands in a token.
pub const fn kind_name(kind: IdentityKind) -> &'static str {
    match kind {
        IdentityKind::Admin => "admin",
        IdentityKind::Worker => "worker",
        IdentityKind::User => "user",
        IdentityKind::Service => "service",
    }
}

/// Parts of a token's text. The token is not verified yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// Claimed kind of the token.
    pub kind: IdentityKind,
    /// Id of the token; not secret.
    pub id: &'a str,
    secret: &'a str,
}

impl Parsed<'_> {
    /// Returns the SHA-256 of the secret. The secret has 256 random bits, so a slow hash would add nothing.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret).into()
    }
}

impl fmt::Debug for Parsed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bf_{}_{}_…", kind_name(self.kind), self.id)
    }
}

/// Parts of the text of an invitation. It is not verified yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ParsedInvitation<'a> {
    /// Id of the invitation; not secret.
    pub id: &'a str,
    secret: &'a str,
}

impl ParsedInvitation<'_> {
    /// Returns the SHA-256 of the secret.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret).into()
    }
}

impl fmt::Debug for ParsedInvitation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bf_{INVITATION}_{}_…", self.id)
    }
}

/// Parses a token; `None` if it is malformed, truncated or mistyped.
pub fn parse(text: &str) -> Option<Parsed<'_>> {
    let (kind, id, secret) = parts(text)?;
    let kind = KINDS.into_iter().find(|known| kind_name(*known) == kind)?;
    Some(Parsed { kind, id, secret })
}

/// Parses the text of an invitation; `None` if it is malformed, truncated or mistyped.
pub fn parse_invitation(text: &str) -> Option<ParsedInvitation<'_>> {
    let (kind, id, secret) = parts(text)?;
    (kind == INVITATION).then_some(ParsedInvitation { id, secret })
}

/// Returns kind, id and secret of a well-formed text.
fn parts(text: &str) -> Option<(&str, &str, &str)> {
    if !text.is_ascii() {
        return None;
    }
    let (body, checksum) = text.split_at_checked(text.len().checked_sub(CHECKSUM_LEN)?)?;
    let mut parts = body.strip_prefix("bf_")?.split('_');
    let (kind, id, secret) = (parts.next()?, parts.next()?, parts.next()?);
    let well_formed = parts.next().is_none() && id.len() == ID_LEN && secret.len() == SECRET_LEN;
    (well_formed && checksum == checksum_of(body)).then_some((kind, id, secret))
}

/// Generates a token of `kind` with the system's random number generator.
pub fn generate(kind: IdentityKind) -> String {
    generate_text(kind_name(kind))
}

/// Generates a token with a given id, which [`new_id`] has returned.
pub fn generate_with_id(kind: IdentityKind, id: &str) -> String {
    text(kind_name(kind), id, &rand::random())
}

/// Returns a new id.
pub fn new_id() -> String {
    encode(&rand::random::<[u8; 8]>())[..ID_LEN].to_owned()
}

/// Generates the text of an invitation.
pub fn generate_invitation() -> String {
    generate_text(INVITATION)
}

fn generate_text(kind: &str) -> String {
    text(kind, &new_id(), &rand::random())
}

fn text(kind: &str, id: &str, secret: &[u8; 32]) -> String {
    let body = format!("bf_{kind}_{id}_{}", encode(secret));
    let checksum = checksum_of(&body);
    body + &checksum
}

/// Returns the token with another id, as an attacker makes it who does not know the secret of that id.
#[cfg(test)]
pub fn with_id(text: &str, id: &str) -> String {
    let parsed = parse(text).unwrap();
    let body = format!("bf_{}_{id}_{}", kind_name(parsed.kind), parsed.secret);
    let checksum = checksum_of(&body);
    body + &checksum
}

fn checksum_of(body: &str) -> String {
    encode(&crc32(body.as_bytes()).to_be_bytes())
}

/// Encodes in base 32, most significant bit first; the last digit is padded with zero bits.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut bits, mut count) = (0u32, 0u32);
    for &byte in bytes {
        bits = (bits << 8) | u32::from(byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            text.push(digit(bits >> count));
        }
    }
    if count > 0 {
        text.push(digit(bits << (5 - count)));
    }
    text
}

fn digit(bits: u32) -> char {
    char::from(ALPHABET[(bits & 31) as usize])
}

/// CRC-32 as in zip and Ethernet, bit by bit: it processes at most a hundred bytes a request.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(
            crc ^ u32::from(byte),
            |crc, _| {
                if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_is_read_back_with_its_kind_and_id() {
        for kind in KINDS {
            let text = generate(kind);
            let parsed = parse(&text).unwrap();
            assert_eq!(parsed.kind, kind);
            assert!(text.starts_with(&format!("bf_{}_{}_", kind_name(kind), parsed.id)), "{text}");
            assert_eq!(text.rsplit('_').next().unwrap().len(), SECRET_LEN + CHECKSUM_LEN);
        }
    }

    #[test]
    fn an_invitation_is_no_token_and_a_token_no_invitation() {
        let (invitation, token) = (generate_invitation(), generate(IdentityKind::User));
        let parsed = parse_invitation(&invitation).unwrap();
        assert!(invitation.starts_with(&format!("bf_invite_{}_", parsed.id)), "{invitation}");
        assert_eq!((parse(&invitation), parse_invitation(&token)), (None, None));
        assert!(!format!("{parsed:?}").contains(parsed.secret));
    }

    #[test]
    fn no_two_tokens_share_an_id_or_a_secret() {
        let (a, b) = (generate(IdentityKind::Admin), generate(IdentityKind::Admin));
        let (a, b) = (parse(&a).unwrap(), parse(&b).unwrap());
        assert!(a.id != b.id && a.hash() != b.hash());
    }

    #[test]
    fn a_change_of_any_one_character_is_detected() {
        let text = generate(IdentityKind::Admin);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'z' { b'y' } else { b'z' };
            assert_eq!(parse(str::from_utf8(&changed).unwrap()), None, "at {at}");
        }
    }

    #[test]
    fn a_malformed_token_is_refused() {
        let whole = generate(IdentityKind::Worker);
        for text in [
            "",
            "bf_",
            "bf_admin",
            "secret",
            "bf_admin_a_b_c_d",
            &whole[..whole.len() - 1],
            "ñ".repeat(40).as_str(),
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_token_does_not_print_its_secret() {
        let text = generate(IdentityKind::Admin);
        let shown = format!("{:?}", parse(&text).unwrap());
        let secret = text.rsplit('_').next().unwrap();
        assert!(!shown.contains(&secret[..8]), "{shown}");
    }

    #[test]
    fn the_checksum_is_the_common_crc_32() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
