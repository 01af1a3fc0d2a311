//! The deterministic simulator of a whole cluster, and the checker of its histories.
//!
//! ```text
//! seed ──> Plan ──> World (the real engine in a modelled cluster) ──> History ──> check ──> verdict
//!                                              real processes ──────────┘
//! ```
//!
//! - [`world`] plays servers, workers, store, network, clients and a nemesis in one thread on virtual
//!   time; a seed decides everything.
//! - [`history`] is what independent recorders saw; a real cluster can write the same.
//! - [`check`] judges a history by the invariants of the reliability page.
//! - [`mutations`]: deliberate bugs, and the worlds in which they must be found.
//! - [`results`] adds verdicts up, and shows them.
//! - [`run`] plays a seed, judges it, and shrinks what it finds.
//!
//! # Always true
//! - The engine and the model are those of the product; nothing of this crate is part of it.
//! - The same seed gives the same history, in every process (I29).
//! - The checker knows nothing of the world: it reads a history and believes no one recorder alone.

pub mod check;
pub mod dice;
pub mod history;
pub mod mutations;
pub mod results;
pub mod run;
pub mod world;
