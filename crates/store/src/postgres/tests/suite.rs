//! All rules of the contract, for this store.

use super::*;
use crate::suite::pooler::Pooler;
use crate::suite::{leases, ledger, lists, rows};

store_suite!(InDatabase);

/// As behind a pooler without support for prepared statements.
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
    lists::every_filter_of_jobs_finds_the_matching_jobs::<Unprepared>().await;
    lists::counts_follow_every_job::<Unprepared>().await;
    ledger::every_filter_of_the_ledger_finds_the_matching_entries::<Unprepared>().await;
}

/// In a database behind PgBouncer, which has fewer sessions than the store opens.
struct Pooled {
    inner: InDatabase,
    pooler: Pooler,
}

impl Pooled {
    async fn open(database: Arc<Database>, pooler: Pooler) -> Self {
        let store = PostgresStore::open(&pooler.url(database.name()), options()).await.unwrap();
        Self { inner: InDatabase { store, database }, pooler }
    }
}

impl Subject for Pooled {
    async fn make() -> Self {
        let pooler = Pooler::start(Cluster::shared()).expect("it was there a moment ago");
        Self::open(Arc::new(Cluster::shared().database()), pooler).await
    }

    fn store(&self) -> &dyn Store {
        &self.inner.store
    }

    fn advance(&self, by: Duration) {
        self.inner.advance(by);
    }

    async fn reopen(self) -> Self {
        let Self { inner: InDatabase { store, database }, pooler } = self;
        drop(store);
        Self::open(database, pooler).await
    }
}

/// G4. Leases, guards and the order of the feed do not depend on sessions.
#[tokio::test]
async fn a_pooler_in_transaction_mode_works() {
    if let Err(reason) = Pooler::start(Cluster::shared()) {
        return eprintln!("not tested: {reason}");
    }
    leases::an_expired_lease_is_acquired_with_a_higher_epoch::<Pooled>().await;
    leases::a_commit_under_an_old_epoch_changes_nothing::<Pooled>().await;
    rows::a_load_returns_exactly_the_live_rows::<Pooled>().await;
    rows::a_batch_that_breaks_an_invariant_changes_nothing::<Pooled>().await;
    rows::concurrent_commits_are_answered_separately::<Pooled>().await;
    rows::committed_rows_survive_a_reopen::<Pooled>().await;
    lists::pages_have_no_gaps_or_duplicates_while_jobs_end::<Pooled>().await;
    ledger::every_filter_of_the_ledger_finds_the_matching_entries::<Pooled>().await;
}
