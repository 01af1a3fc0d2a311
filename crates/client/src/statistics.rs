//! Statistics: totals by namespace, queue, job name, schedule or worker.

use model::Timestamp;
use model::api::{StatisticsOrder, StatisticsTotals};
use model::statistics::SubjectKind;

use crate::error::Error;
use crate::http::{Client, Request};

/// Range, order and number of totals.
#[derive(Debug, Clone, Default)]
pub struct TotalsQuery {
    /// Only this namespace; for namespaces and job names.
    pub namespace: Option<String>,
    /// Start of the range; `None`: 24 hours ago.
    pub from: Option<Timestamp>,
    /// Order of the totals.
    pub order: StatisticsOrder,
    /// Maximum number of totals.
    pub limit: Option<u32>,
}

impl Client {
    /// Returns what happened in a range, for each subject of a kind.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn statistics_totals(
        &self,
        by: SubjectKind,
        query: &TotalsQuery,
    ) -> Result<StatisticsTotals, Error> {
        let request = Request::get(["stats", "totals"])
            .query("by", by)
            .query("order", query.order)
            .query_opt("namespace", query.namespace.as_deref())
            .query_opt("from", query.from)
            .query_opt("limit", query.limit);
        self.json(request).await
    }
}
