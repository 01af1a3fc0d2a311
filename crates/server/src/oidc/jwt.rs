//! Signatures of ID tokens (RFC 7515, RFC 7518).
//!
//! The algorithms are a fixed list of asymmetric ones: neither `none` nor an HMAC, whose key an attacker could choose, is
//! ever accepted. A key is used only for the algorithms of its type, and only if it comes from the key set of the
//! provider; keys in the header of a token are ignored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Failure;

/// Longest ID token, in bytes.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// Keys of the provider (RFC 7517).
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct KeySet {
    keys: Vec<Key>,
}

/// Public key. Unknown types and fields are ignored.
#[derive(Debug, Clone, Deserialize)]
struct Key {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// Why a token is not accepted.
pub(super) enum Refused {
    /// No key of the set verifies the token: the provider may have a new key.
    UnknownKey,
    Invalid(Failure),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Invalid(failure)
    }
}

/// Algorithm of a signature.
enum Algorithm {
    Rsa(&'static RsaParameters),
    /// Curve of the key, and the type of the key: `EC` or `OKP`.
    Curve(&'static str, &'static str, &'static dyn VerificationAlgorithm),
}

impl Algorithm {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            "RS384" => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            "RS512" => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            "PS256" => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
            "PS384" => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
            "PS512" => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
            "ES256" => Self::Curve("P-256", "EC", &signature::ECDSA_P256_SHA256_FIXED),
            "ES384" => Self::Curve("P-384", "EC", &signature::ECDSA_P384_SHA384_FIXED),
            "EdDSA" => Self::Curve("Ed25519", "OKP", &signature::ED25519),
            _ => return None,
        })
    }

    /// Returns whether a signature is valid. It is not if the key is for another algorithm.
    fn verify(&self, key: &Key, message: &[u8], signature: &[u8]) -> bool {
        self.try_verify(key, message, signature).is_some()
    }

    fn try_verify(&self, key: &Key, message: &[u8], signature: &[u8]) -> Option<()> {
        let part = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        match *self {
            Self::Rsa(parameters) if key.kty == "RSA" => {
                let (n, e) = (part(&key.n)?, part(&key.e)?);
                // Some providers write the sign byte of the number.
                let n = &n[n.iter().position(|byte| *byte != 0)?..];
                RsaPublicKeyComponents { n, e: &e[..] }.verify(parameters, message, signature).ok()
            }
            Self::Curve(curve, kty, algorithm) if key.kty == kty && key.crv.as_deref() == Some(curve) => {
                let point = match kty {
                    "EC" => [vec![4], part(&key.x)?, part(&key.y)?].concat(),
                    _ => part(&key.x)?,
                };
                UnparsedPublicKey::new(algorithm, point).verify(message, signature).ok()
            }
            _ => None,
        }
    }
}

/// Verifies the signature of a token, and returns its claims, which are not checked yet.
pub(super) fn verify(token: &str, keys: &KeySet) -> Result<Map<String, Value>, Refused> {
    let malformed = || Failure::invalid("the ID token is malformed");
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Failure::invalid("the ID token is too long").into());
    }
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed().into());
    };
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed());
    let message = &token[..header.len() + 1 + claims.len()];
    let header: Header = serde_json::from_slice(&decoded(header)?).map_err(|_| malformed())?;
    if header.crit.is_some() {
        return Err(Failure::invalid("the ID token has an unknown critical header").into());
    }
    let Some(algorithm) = Algorithm::named(&header.alg) else {
        let shown: String = header.alg.chars().take(16).collect();
        return Err(Failure::invalid(format!("the ID token has the algorithm `{shown}`")).into());
    };
    let signature = decoded(signature)?;
    let fits = |key: &&Key| {
        header.kid.as_ref().is_none_or(|kid| key.kid.as_ref() == Some(kid))
            && key.purpose.as_ref().is_none_or(|purpose| purpose == "sig")
            && key.alg.as_ref().is_none_or(|alg| *alg == header.alg)
    };
    let mut keys = keys.keys.iter().filter(fits);
    if !keys.any(|key| algorithm.verify(key, message.as_bytes(), &signature)) {
        return Err(Refused::UnknownKey);
    }
    Ok(serde_json::from_slice(&decoded(claims)?).map_err(|_| malformed())?)
}
