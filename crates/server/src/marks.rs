//! Marks of requests between servers, for servers behind a proxy that terminates TLS.
//!
//! A mark is the id of the sending server and a MAC with a key in the store. So only a server of this store can make one.
//! Its purpose and what it is for are part of the MAC.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use model::ServerId;
use sha2::Sha256;

/// Makes and verifies the marks of one purpose.
pub(crate) struct Marks {
    key: [u8; 32],
    purpose: &'static str,
}

impl Marks {
    /// Creates it with the key in the store. A mark is valid for no other `purpose` under the same key.
    pub(crate) fn new(key: [u8; 32], purpose: &'static str) -> Self {
        Self { key, purpose }
    }

    /// Returns the mark of a server for a request, of which `parts` are.
    pub(crate) fn mark(&self, server: ServerId, parts: &[&str]) -> String {
        let mac = self.mac(&server.to_string(), parts).finalize().into_bytes();
        format!("{server}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    /// Whether a server of this store has made the mark for these parts.
    pub(crate) fn is_ours(&self, mark: &[u8], parts: &[&str]) -> bool {
        let halves = std::str::from_utf8(mark).ok().and_then(|mark| mark.rsplit_once('.'));
        let decoded = halves.and_then(|(server, mac)| Some((server, URL_SAFE_NO_PAD.decode(mac).ok()?)));
        decoded.is_some_and(|(server, mac)| self.mac(server, parts).verify_slice(&mac).is_ok())
    }

    fn mac(&self, server: &str, parts: &[&str]) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a MAC takes a key of any length");
        let all = [self.purpose, server].into_iter().chain(parts.iter().copied());
        all.fold(mac, |mac, part| mac.chain_update(part).chain_update([0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_valid_for_one_request_one_purpose_and_one_store() {
        let ours = Marks::new([1; 32], "one");
        let (store, purpose) = (Marks::new([2; 32], "one"), Marks::new([1; 32], "two"));
        let server = ServerId::from_bits(7 << 80);
        let mark = ours.mark(server, &["req_1"]);
        assert!(ours.is_ours(mark.as_bytes(), &["req_1"]));
        assert!(!ours.is_ours(mark.as_bytes(), &["req_2"]));
        assert!(!store.is_ours(mark.as_bytes(), &["req_1"]));
        assert!(!purpose.is_ours(mark.as_bytes(), &["req_1"]));
        for forged in ["", ".", "srv", &server.to_string(), &mark[..mark.len() - 1]] {
            assert!(!ours.is_ours(forged.as_bytes(), &["req_1"]), "{forged}");
        }
    }
}
