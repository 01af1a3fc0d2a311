//! A snapshot in the memory of openraft.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::Machine;
use super::copies::MachineCopy;

/// A snapshot as openraft passes it on.
pub enum SnapshotData<M> {
    /// The machine itself; it is copied when it is sent.
    Live(Arc<M>),
    /// A copy that exists.
    Copied(Arc<MachineCopy>),
    /// A received copy.
    File(PathBuf),
}

impl<M: Machine> fmt::Debug for SnapshotData<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live(_) => f.write_str("Live"),
            Self::Copied(copy) => write!(f, "Copied({})", copy.path().display()),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}
