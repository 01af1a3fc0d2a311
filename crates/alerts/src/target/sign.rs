//! Signatures that services require. All are HMAC-SHA256 in base64, of different texts.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Prefix of a secret that is base64 (Standard Webhooks, "Signature scheme").
const BASE64_PREFIX: &str = "whsec_";

/// Returns the header `webhook-signature` of Standard Webhooks. `seconds` is the header `webhook-timestamp`.
pub(super) fn webhook(secret: &str, id: &str, seconds: i64, body: &[u8]) -> String {
    let decode = |text: &str| STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok();
    let decoded = secret.strip_prefix(BASE64_PREFIX).and_then(decode);
    let key = decoded.unwrap_or_else(|| secret.as_bytes().to_vec());
    let mut text = format!("{id}.{seconds}.").into_bytes();
    text.extend_from_slice(body);
    format!("v1,{}", mac(&key, &text))
}

/// Returns the signature of DingTalk, which goes into the query. `millis` is the parameter `timestamp`.
pub(super) fn dingtalk(secret: &str, millis: i64) -> String {
    mac(secret.as_bytes(), format!("{millis}\n{secret}").as_bytes())
}

/// Returns the signature of Feishu, which goes into the body. `seconds` is the field `timestamp`. The signed text is
/// the key, and the message is empty.
pub(super) fn feishu(secret: &str, seconds: i64) -> String {
    mac(format!("{seconds}\n{secret}").as_bytes(), b"")
}

fn mac(key: &[u8], text: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a MAC takes a key of any length");
    mac.update(text);
    STANDARD.encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks libraries.
    #[test]
    fn a_webhook_is_signed_as_in_the_published_example() {
        let signature = webhook(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_without_prefix_is_the_key_itself() {
        let key = STANDARD.encode("sixteen bytes key");
        let with_prefix = webhook(&format!("whsec_{key}"), "id", 1, b"{}");
        assert_eq!(webhook("sixteen bytes key", "id", 1, b"{}"), with_prefix);
    }

    /// Values of an independent implementation (Python `hmac`).
    #[test]
    fn the_signatures_of_dingtalk_and_feishu_differ_in_key_and_text() {
        assert_eq!(dingtalk("SECabc", 1_700_000_000_000), "jcUpW0QmtKduN03n4JqQ0PBosVjqnM8gU7fIIvsDmCM=");
        assert_eq!(feishu("abc", 1_700_000_000), "VIS10b0EBvzzSdFnuk4tznEmK5wHaruvf/WnViv2yR4=");
    }
}
