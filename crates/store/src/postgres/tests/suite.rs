//! Every rule of the contract, on this store.

use super::*;
use crate::suite::{ledger, lists, rows};

store_suite!(InDatabase);

/// As behind a pooler that does not know of prepared statements.
struct Unprepared(InDatabase);

impl Unprepared {
    async fn open(database: Arc<Database>) -> Self {
        let url = format!("{}?prepared_statements=false", database.url());
        let store = PostgresStore::open(&url, options()).await.unwrap();
        Self(InDatabase { store, database })
    }
}

impl Subject for Unprepared {
    async fn make() -> Self {
        Self::open(Arc::new(Cluster::shared().database())).await
    }

    fn store(&self) -> &dyn Store {
        &self.0.store
    }

    fn advance(&self, by: Duration) {
        self.0.advance(by);
    }

    async fn reopen(self) -> Self {
        let InDatabase { store, database } = self.0;
        drop(store);
        Self::open(database).await
    }
}

/// G4.
#[tokio::test]
async fn no_prepared_statement_is_needed() {
    rows::a_load_returns_exactly_the_live_rows::<Unprepared>().await;
    rows::an_expired_key_may_be_used_again::<Unprepared>().await;
    lists::every_filter_finds_what_it_names::<Unprepared>().await;
    lists::counts_follow_every_job::<Unprepared>().await;
    ledger::every_filter_of_the_ledger_finds_what_it_names::<Unprepared>().await;
}
