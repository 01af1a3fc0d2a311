//! Deterministic simulator of a whole cluster, and checker of its histories.
//!
//! ```text
//! seed ──> Plan ──> World (the real cores in a modelled cluster) ──> History ──> check ──> verdict
//!                                             real processes ──────────┘
//! ```
//!
//! - [`world`] simulates servers, workers, store, network, clients and fault injection in one thread on virtual time.
//!   A seed determines everything.
//! - [`history`] is the record of independent recorders; a test of a real cluster writes the same format.
//! - [`check`] judges a history by the invariants of the reliability page.
//! - [`mutations`]: deliberate bugs, and the worlds in which the checker must find them.
//! - [`results`] aggregates verdicts and renders them.
//! - [`run`] plays a seed, judges it, and shrinks a failing plan.
//!
//! # Invariants
//! - The cores and the model are the ones that ship; no code of this crate ships.
//! - The same seed gives the same history, in every process (I29).
//! - The checker does not depend on the world: it reads a history, and compares what different recorders saw.

pub mod check;
pub mod dice;
pub mod history;
pub mod mutations;
pub mod results;
pub mod run;
pub mod world;
