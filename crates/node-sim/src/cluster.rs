//! Servers and machines of one simulated world, used by [`nemesis`](crate::nemesis) and [`scene`](crate::scene).

use crate::machines::Machine;
use crate::servers::StoreConnection;

/// Name of the clients' host.
pub(crate) const CLIENT: &str = "clients";

/// All servers and machines of a world.
pub(crate) struct Cluster {
    pub(crate) store_connections: Vec<StoreConnection>,
    pub(crate) machines: Vec<Machine>,
}
