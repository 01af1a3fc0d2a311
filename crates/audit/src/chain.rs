//! The chain of hashes, and its verification.
//!
//! The hash of an entry covers its sequence number, its canonical JSON, and the hash of the entry before it. [`seal`]
//! appends an entry; a [`Verifier`] follows the chain from a known [`Link`] and names the first entry that does not
//! continue it: changed, removed, inserted or moved.
//!
//! A person who can write all rows can compute a new chain. Only a link that is kept elsewhere detects this.

use std::fmt;
use std::str::FromStr;

use model::audit::Entry;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::canonical::canonical;

/// Separates these hashes from all others.
const PURPOSE: &[u8] = b"belfry audit v1\0";

/// Hash of an entry and of all entries before it: SHA-256, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// Text that is no hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 hexadecimal digits")]
pub struct InvalidHash;

impl FromStr for Hash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        let mut hash = [0; 32];
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(InvalidHash);
        }
        for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = str::from_utf8(pair).map_err(|_| InvalidHash)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidHash)?;
        }
        Ok(Self(hash))
    }
}

/// Position in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// Sequence number of the entry; 0 before the first one.
    pub sequence: u64,
    /// Hash of the entry; zeros before the first one.
    pub hash: Hash,
}

/// Entry with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Position of the entry.
    pub link: Link,
    /// Canonical JSON of the entry.
    pub body: String,
}

/// Returns the hash of an entry after the one with the hash `previous`.
pub fn hash(previous: Hash, sequence: u64, body: &str) -> Hash {
    let hash = Sha256::new().chain_update(PURPOSE).chain_update(previous.0);
    Hash(hash.chain_update(sequence.to_be_bytes()).chain_update(body).finalize().into())
}

/// Returns an entry with its position after `last`.
pub fn seal(last: Link, entry: &Entry) -> Sealed {
    let (sequence, body) = (last.sequence + 1, canonical(entry));
    Sealed { link: Link { sequence, hash: hash(last.hash, sequence, &body) }, body }
}

/// Returns the position and the body of an exported entry: the object of the API with `sequence`, `hash` and the fields
/// of the entry. `None` if it is none.
pub fn exported(entry: &Value) -> Option<Sealed> {
    let mut fields = entry.as_object()?.clone();
    let sequence = fields.remove("sequence")?.as_u64()?;
    let hash = fields.remove("hash")?.as_str()?.parse().ok()?;
    Some(Sealed { link: Link { sequence, hash }, body: canonical(&fields) })
}

/// Where a chain is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// Entries are missing, or in another order.
    #[error("entry {expected} is missing: entry {found} comes after entry {}", expected - 1)]
    Gap {
        /// Expected sequence number.
        expected: u64,
        /// Sequence number of the next entry.
        found: u64,
    },
    /// The hash of an entry does not match.
    #[error("entry {sequence} was changed, or is not the one that was appended after entry {}", sequence - 1)]
    Changed {
        /// Sequence number of the entry.
        sequence: u64,
    },
    /// Entries at the end are missing.
    #[error("entry {expected} is missing: the last entry is {found}")]
    Truncated {
        /// Sequence number of the last known entry.
        expected: u64,
        /// Sequence number of the last found entry.
        found: u64,
    },
}

/// Verifies a chain, entry by entry.
#[derive(Debug, Clone)]
pub struct Verifier {
    last: Link,
    verified: u64,
}

impl Verifier {
    /// Begins after a link: the cut of retention, or [`Link::default`] for a complete chain.
    pub fn after(link: Link) -> Self {
        Self { last: link, verified: 0 }
    }

    /// Begins with an exported entry, whose own hash cannot be verified without the one before it.
    pub fn from(first: &Sealed) -> Self {
        Self { last: first.link, verified: 1 }
    }

    /// Verifies the next entry.
    ///
    /// # Errors
    /// [`Broken`], at the first entry that does not continue the chain.
    pub fn check(&mut self, next: &Sealed) -> Result<(), Broken> {
        let (expected, found) = (self.last.sequence + 1, next.link.sequence);
        if found != expected {
            return Err(Broken::Gap { expected, found });
        }
        if hash(self.last.hash, found, &next.body) != next.link.hash {
            return Err(Broken::Changed { sequence: found });
        }
        self.last = next.link;
        self.verified += 1;
        Ok(())
    }

    /// Verifies that the last entry is the one that was appended last.
    ///
    /// # Errors
    /// [`Broken`] if entries at the end are missing or were replaced.
    pub fn finish(&self, last: Link) -> Result<(), Broken> {
        if self.last.sequence != last.sequence {
            let (found, expected) =
                (self.last.sequence.min(last.sequence), self.last.sequence.max(last.sequence));
            return Err(Broken::Truncated { expected, found });
        }
        if self.last.hash != last.hash {
            return Err(Broken::Changed { sequence: last.sequence });
        }
        Ok(())
    }

    /// Returns the last verified position.
    pub fn last(&self) -> Link {
        self.last
    }

    /// Returns the number of verified entries.
    pub fn verified(&self) -> u64 {
        self.verified
    }
}

#[cfg(test)]
mod tests {
    use model::Timestamp;
    use model::access::{Resource, Verb};
    use model::audit::{FieldChange, Outcome};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    fn entries() -> impl Strategy<Value = Entry> {
        let text = || "\\PC{0,12}";
        let change = (text(), option::of(text()), option::of(text()))
            .prop_map(|(path, old, new)| FieldChange { path, old, new });
        let who = (text(), option::of(text()), option::of(text()), any::<u32>());
        (who, text(), option::of(text()), vec(change, 0..3), option::of(any::<u64>())).prop_map(
            |((actor, token_id, namespace, at), action, object, changes, affected)| Entry {
                at: Timestamp::from_micros(i64::from(at) * 1_000_003),
                server: "a".into(),
                actor,
                actor_kind: "user".into(),
                token_id,
                address: None,
                user_agent: None,
                request_id: Some("req".into()),
                action,
                verb: Verb::Operate,
                resource: Resource::Jobs,
                namespace,
                object,
                outcome: Outcome::Allowed,
                code: None,
                affected,
                repeats: None,
                changes,
                changes_truncated: false,
            },
        )
    }

    fn chain(entries: &[Entry]) -> Vec<Sealed> {
        let mut last = Link::default();
        let sealed = entries.iter().map(|entry| {
            let sealed = seal(last, entry);
            last = sealed.link;
            sealed
        });
        sealed.collect()
    }

    fn verify(after: Link, chain: &[Sealed], last: Link) -> Result<(), Broken> {
        let mut verifier = Verifier::after(after);
        chain.iter().try_for_each(|entry| verifier.check(entry))?;
        verifier.finish(last)
    }

    /// Manipulation of a chain by a person who can write to the database, and computes no new chain.
    #[derive(Debug, Clone)]
    enum Manipulation {
        ChangeBody(Entry),
        ChangeHash,
        Remove,
        RemoveAndRenumber,
        Insert(Entry),
        Duplicate,
        Swap,
        RemoveEnd,
    }

    fn manipulations() -> impl Strategy<Value = Manipulation> {
        use Manipulation::*;
        prop_oneof![
            entries().prop_map(ChangeBody),
            entries().prop_map(Insert),
            Just(ChangeHash),
            Just(Remove),
            Just(RemoveAndRenumber),
            Just(Duplicate),
            Just(Swap),
            Just(RemoveEnd),
        ]
    }

    fn renumber(chain: &mut [Sealed]) {
        for (i, entry) in chain.iter_mut().enumerate() {
            entry.link.sequence = i as u64 + 1;
        }
    }

    fn manipulate(chain: &mut Vec<Sealed>, at: usize, how: Manipulation) {
        match how {
            Manipulation::ChangeBody(entry) => chain[at].body = canonical(&entry),
            Manipulation::ChangeHash => chain[at].link.hash.0[7] ^= 1,
            Manipulation::Remove => drop(chain.remove(at)),
            Manipulation::RemoveAndRenumber => {
                chain.remove(at);
                renumber(chain);
            }
            Manipulation::Insert(entry) => {
                let before = at.checked_sub(1).map_or(Link::default(), |before| chain[before].link);
                chain.insert(at, seal(before, &entry));
                renumber(chain);
            }
            Manipulation::Duplicate => {
                let copy = chain[at].clone();
                chain.insert(at, copy);
                renumber(chain);
            }
            Manipulation::Swap => {
                let other = (at + 1) % chain.len();
                let (one, other_body) = (chain[at].body.clone(), chain[other].body.clone());
                chain[at].body = other_body;
                chain[other].body = one;
            }
            Manipulation::RemoveEnd => chain.truncate(at),
        }
    }

    proptest! {
        /// H3. A chain is valid as it was appended, also from any cut on, and after a copy through JSON.
        #[test]
        fn an_untouched_chain_is_valid_from_every_cut_on(entries in vec(entries(), 1..12), cut: Index) {
            let chain = chain(&entries);
            let last = chain.last().unwrap().link;
            prop_assert_eq!(verify(Link::default(), &chain, last), Ok(()));
            let cut = cut.index(chain.len());
            prop_assert_eq!(verify(chain[cut].link, &chain[cut + 1..], last), Ok(()));
            for (entry, sealed) in entries.iter().zip(&chain) {
                let mut value = serde_json::to_value(entry).unwrap();
                value["sequence"] = sealed.link.sequence.into();
                value["hash"] = sealed.link.hash.to_string().into();
                let text = serde_json::to_string_pretty(&value).unwrap();
                let value: Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(exported(&value), Some(sealed.clone()));
            }
        }

        /// H3. Every manipulation is found, unless it changed nothing.
        #[test]
        fn every_manipulation_is_found(
            entries in vec(entries(), 1..12),
            at: Index,
            how in manipulations(),
        ) {
            let untouched = chain(&entries);
            let last = untouched.last().unwrap().link;
            let mut chain = untouched.clone();
            manipulate(&mut chain, at.index(untouched.len()), how);
            prop_assume!(chain != untouched);
            prop_assert!(verify(Link::default(), &chain, last).is_err());
        }
    }

    #[test]
    fn a_broken_chain_names_the_place() {
        let entry = |action: &str| Entry { action: action.into(), ..entry() };
        let chain = chain(&["a", "b", "c", "d"].map(entry));
        let last = chain[3].link;
        let found = |change: &dyn Fn(&mut Vec<Sealed>)| {
            let mut chain = chain.clone();
            change(&mut chain);
            verify(Link::default(), &chain, last).unwrap_err().to_string()
        };
        insta::assert_snapshot!(found(&|chain| drop(chain.remove(1))), @"entry 2 is missing: entry 3 comes after entry 1");
        insta::assert_snapshot!(found(&|chain| chain[2].body.push(' ')), @"entry 3 was changed, or is not the one that was appended after entry 2");
        insta::assert_snapshot!(found(&|chain| chain.truncate(2)), @"entry 4 is missing: the last entry is 2");
    }

    /// A change of this hash would break the chains of all stores.
    #[test]
    fn the_hash_of_an_entry_never_changes() {
        let sealed = seal(Link::default(), &entry());
        insta::assert_snapshot!(sealed.body, @r#"{"action":"put_schedule","actor":"ann@example.com","actor_kind":"user","address":"10.0.0.7","at":"2026-05-28T20:26:40.123Z","changes":[{"new":"\"0 3 * * *\"","old":"\"0 2 * * *\"","path":"timing.rules[0].cron"}],"namespace":"finance","object":"nightly","outcome":"allowed","request_id":"req_1","resource":"schedules","server":"server","token_id":"4w1kq0zj8x2m","user_agent":"belfry/0.1.0","verb":"change"}"#);
        insta::assert_snapshot!(sealed.link.hash, @"8a5d4dac4230f6de5350f393fb2565f2d0e37200ce86523a89448dcb623f4767");
        assert_eq!(sealed.link.hash.to_string().parse(), Ok(sealed.link.hash));
        assert_eq!("0g".repeat(32).parse::<Hash>(), Err(InvalidHash));
    }

    fn entry() -> Entry {
        Entry {
            at: Timestamp::from_millis(1_780_000_000_123),
            server: "server".into(),
            actor: "ann@example.com".into(),
            actor_kind: "user".into(),
            token_id: Some("4w1kq0zj8x2m".into()),
            address: Some("10.0.0.7".into()),
            user_agent: Some("belfry/0.1.0".into()),
            request_id: Some("req_1".into()),
            action: "put_schedule".into(),
            verb: Verb::Change,
            resource: Resource::Schedules,
            namespace: Some("finance".into()),
            object: Some("nightly".into()),
            outcome: Outcome::Allowed,
            code: None,
            affected: None,
            repeats: None,
            changes: vec![FieldChange {
                path: "timing.rules[0].cron".into(),
                old: Some("\"0 2 * * *\"".into()),
                new: Some("\"0 3 * * *\"".into()),
            }],
            changes_truncated: false,
        }
    }
}
