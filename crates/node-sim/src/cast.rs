//! The servers and machines of one scene, which [`nemesis`](crate::nemesis) disturbs and [`scene`](crate::scene) plays.

use crate::machines::Machine;
use crate::servers::Way;

/// What the clients' host is called.
pub(crate) const CLIENT: &str = "clients";

/// Who takes part.
pub(crate) struct Cast {
    pub(crate) ways: Vec<Way>,
    pub(crate) machines: Vec<Machine>,
}
