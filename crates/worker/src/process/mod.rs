//! The process runtime: what is asked of the operating system.
//!
//! - [`spawn`]: one program in a session of its own, as its own user, with nothing inherited.
//! - [`user`]: who tasks run as.
//! - [`tree`]: all processes of an execution, to freeze, thaw or kill them together.
//! - [`cgroup`]: a group for each execution, with its limits, on cgroup v1, v2 and both side by side.
//! - [`clone`]: a child that is born in its group.
//!
//! Everything here is synchronous and is called from the supervisor's (or the fuse's) one thread.

pub(crate) mod cgroup;
pub(crate) mod clone;
pub(crate) mod spawn;
pub(crate) mod tree;
pub(crate) mod user;
