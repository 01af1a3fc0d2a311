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
    lists::every_filter_finds_what_it_names::<Unprepared>().await;
    lists::counts_follow_every_job::<Unprepared>().await;
    ledger::every_filter_of_the_ledger_finds_what_it_names::<Unprepared>().await;
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
async fn sessions_that_a_pooler_lends_by_the_transaction_will_do() {
    if let Err(reason) = Pooler::start(Cluster::shared()) {
        return eprintln!("not tested: {reason}");
    }
    leases::a_lease_that_ran_out_goes_to_another_under_a_higher_epoch::<Pooled>().await;
    leases::a_commit_under_an_old_epoch_changes_nothing::<Pooled>().await;
    rows::a_load_returns_exactly_the_live_rows::<Pooled>().await;
    rows::a_batch_that_breaks_a_promise_leaves_nothing_behind::<Pooled>().await;
    rows::commits_at_the_same_time_are_each_answered_for_themselves::<Pooled>().await;
    rows::what_was_committed_is_there_after_a_reopening::<Pooled>().await;
    lists::pages_have_no_gaps_or_doubles_while_jobs_end::<Pooled>().await;
    ledger::every_filter_of_the_ledger_finds_what_it_names::<Pooled>().await;
}
