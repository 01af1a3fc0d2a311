//! Raft for the replicated store: the parts that every server of a cluster runs.
//!
//! `docs/design/raft.md` describes the whole store and the stages in which it is built. This crate contains its first
//! part, the log. It is the only crate that knows openraft.
//!
//! - [`log`] stores the entries and the vote of a server in files, for openraft.
//! - [`types`] names the types with which openraft is used: node ids, peers, payloads.
//! - `codec` converts them to bytes. The formats are our own, so an upgrade of openraft changes no file.
//! - `disk` has the files of the log behind a trait, so that tests can cut the power at every operation.

mod codec;
mod disk;
pub mod log;
pub mod types;
