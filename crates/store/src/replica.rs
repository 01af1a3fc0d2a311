//! The state of a server in a replicated store: a SQLite file that changes only by the entries of a log.
//!
//! The log comes first: an entry is durable on a majority of the servers before a replica applies it. So a replica need
//! not sync its own file before it answers. After a power cut it is some earlier state, and its log applies the missing
//! entries again. [`Replica::sync`] tells up to which entry the file is durable, and so which entries a log still needs.
//!
//! Every replica applies the same entries in the same order, with the same effect; see [`command`](crate::command).
//! A command that breaks an invariant is refused on every replica in the same way, and is recorded in the table
//! `refused_commands`.
//!
//! # Leases
//! The first entry of another leader voids all leases, in the same transaction. So a commit of an earlier leader, also
//! of an earlier process on the same server, is never applied later.

pub use crate::sqlite::replica::{
    AppliedState, LogBegin, Replica, ReplicaOptions, StoreGuard, begin_log, read_applied,
};
