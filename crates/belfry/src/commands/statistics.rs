//! `belfry stats`: what happened in a range, by job name, queue, namespace, schedule or worker.

use client::TotalsQuery;
use model::Timestamp;
use model::statistics::SubjectKind;

use super::Context;
use crate::args::more::StatsArgs;
use crate::failure::Failure;

pub(super) async fn run(context: &Context, args: StatsArgs) -> Result<(), Failure> {
    let (client, namespace) = context.connect()?;
    let by = args.by.unwrap_or(SubjectKind::Job);
    let has_namespace = matches!(by, SubjectKind::Job | SubjectKind::Namespace);
    let query = TotalsQuery {
        namespace: namespace.filter().filter(|_| has_namespace),
        from: args.since.map(|since| Timestamp::from(jiff::Timestamp::now()) - since),
        order: args.order.unwrap_or_default(),
        limit: args.limit,
    };
    let totals = client.statistics_totals(by, &query).await?;
    context.out.list(&totals.items, "jobs in this range")?;
    let more = totals.subjects.saturating_sub(totals.items.len() as u64);
    if more > 0 {
        context.out.note(format!("{more} more; show them with `--limit {}`", totals.subjects.min(1_000)));
    }
    Ok(())
}
