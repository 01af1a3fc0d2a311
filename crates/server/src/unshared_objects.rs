//! Warns of objects that other servers cannot read: several servers share a store, and the logs and artifacts of this one are in its
//! own data folder, which is the default.

use std::time::Duration;

use crate::config::{ObjectsConfig, StoreConfig};
use crate::services::Services;

/// Interval at which the number of servers is read.
const LOOK_EVERY: Duration = Duration::from_secs(5);

const PROBLEM: &str = "logs and artifacts are in the data directory of this server, so other servers cannot read them: set \
                       `server.objects_url` (S3), or `server.objects_dir` to a folder that all servers share";

/// Returns the problem, if there is one.
pub(crate) fn problem(services: &Services) -> Option<&'static str> {
    let are_own = services.config.objects == ObjectsConfig::Local(None)
        && services.config.store != StoreConfig::Embedded;
    let has_others = || services.members.cluster_reading().cluster.members.len() > 1;
    (are_own && has_others()).then_some(PROBLEM)
}

/// Warns once, as soon as there is another server.
pub(crate) async fn report(services: Services) {
    while problem(&services).is_none() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    tracing::warn!("{PROBLEM}");
}
