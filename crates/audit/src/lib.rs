//! The audit log: canonical entries, the chain of their hashes, and differences of definitions.
//!
//! The server makes an [`Entry`] for each change and each denied request, [seals](seal) it, and appends it to the store.
//! The hash of an entry covers its content, its sequence number and the hash of the entry before it. So a changed,
//! removed, inserted or moved entry breaks the chain at its place, and a [`Verifier`] finds the place.
//!
//! ```text
//!   Entry ──canonical──> body ─┐
//!   hash of the entry before ──┼─SHA-256─> hash ──> hash of the next entry …
//!   sequence number ───────────┘
//! ```
//!
//! The server uses this crate to append and to verify, and the command line to verify exported entries. Like `access`,
//! it reads no clock and does no I/O.
//!
//! # Invariants
//! - Equal entries have equal canonical bytes, in every version of the program and after a copy through JSON: keys are
//!   sorted, and there are no fractions. A verifier needs no knowledge of the fields.
//! - The size of an entry is bounded, and it has no control characters.
//! - A difference shows no value of an environment variable, and of no field that is named like a secret.
//!
//! # Limits of the chain
//! The chain proves that entries were not changed *within* it. Who can write to the database can compute a new chain
//! from any entry on. To detect this, keep the hash of a newer entry elsewhere, and verify with it.
//!
//! # Files
//! - `canonical`: canonical JSON; `chain`: hashes and their verification.
//! - `difference`: changed fields of definitions; `text`: cleaned and shortened texts.

mod canonical;
mod chain;
mod difference;
mod text;

pub use canonical::canonical;
pub use chain::{Broken, Hash, InvalidHash, Link, Sealed, Verifier, exported, hash, seal};
pub use difference::{CHANGES_MAX, Difference, VALUE_CHARS_MAX, difference};
pub use model::audit::{Entry, FieldChange, Outcome};
pub use text::clean;
