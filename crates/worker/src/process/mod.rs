//! The process runtime: starts, groups, limits and kills processes.
//!
//! - [`spawn`]: starts a program in its own session, as the task user, without inherited files.
//! - [`user`]: the user that tasks run as.
//! - [`tree`]: all processes of an execution, to freeze, thaw or kill them together.
//! - [`cgroup`]: a control group per execution with its limits, on cgroup v1, v2 or both.
//! - [`clone`]: clones a child directly into its control group.
//! - [`usage`]: measures what running executions use.
//!
//! All functions are synchronous. The single thread of the supervisor or of the fuse calls them; a thread of its own
//! measures.

pub(crate) mod cgroup;
pub(crate) mod clone;
pub(crate) mod spawn;
pub(crate) mod tree;
pub(crate) mod usage;
pub(crate) mod user;
