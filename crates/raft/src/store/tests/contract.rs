//! All rules of the contract of a store, on one server.

use model::Duration;
use store::suite::Subject;
use store::{Store, changelog_suite, store_suite};

use super::{Servers, Start};

/// A cluster of one server.
struct OneServer(Servers);

impl Subject for OneServer {
    async fn make() -> Self {
        Self(Servers::one().await)
    }

    fn store(&self) -> &dyn Store {
        &**self.0.store(0)
    }

    fn advance(&self, by: Duration) {
        self.0.clock.advance(by);
    }

    async fn reopen(mut self) -> Self {
        self.0.stop(0).await;
        self.0.open(0, Start::Existing).await;
        self.0.wait_for_leader(0).await;
        self
    }
}

store_suite!(OneServer);

mod changelog {
    use super::*;

    changelog_suite!(OneServer);
}
