//! `belfry top`: load of the queues and workers, rates of the last minutes, and what executions use.

use client::{Client, TotalsQuery, UsageQuery, WorkerFilter};
use futures::TryStreamExt as _;
use model::api::{StatisticsCounts, StatisticsOrder, StatisticsTotals, UsageOrder};
use model::statistics::SubjectKind;
use model::{Duration, Timestamp};

use super::Context;
use crate::args::more::TopArgs;
use crate::failure::Failure;
use crate::output::screen::Screen;
use crate::output::top::{Activity, Load, page};
use crate::output::{Format, stream_value};

/// Range of the rates.
const RANGE: Duration = Duration::from_secs(300);
/// Maximum number of executions.
const EXECUTIONS_MAX: u32 = 20;
/// Maximum number of queues with rates.
const QUEUES_MAX: u32 = 1_000;

pub(super) async fn run(context: &Context, args: TopArgs) -> Result<(), Failure> {
    let (client, _) = context.connect()?;
    let mut screen = Screen::new(context.out).filter(|_| !args.once);
    let is_stream = matches!(context.out.look.format, Format::Json | Format::Yaml) && !args.once;
    loop {
        let load = read(&client, args.order).await?;
        let look = context.out.fresh_look();
        match &mut screen {
            Some(screen) => {
                let text = page(&look, &load, Some(screen.lines_max()));
                screen.draw(&text)?;
            }
            None => match look.format {
                Format::Json | Format::Yaml => context.out.data(stream_value(&look, &load)?)?,
                _ => context.out.data(page(&look, &load, None))?,
            },
        }
        if screen.is_none() && !is_stream {
            return Ok(());
        }
        tokio::time::sleep(args.interval.to_std()).await;
    }
}

async fn read(client: &Client, order: UsageOrder) -> Result<Load, Failure> {
    let now = Timestamp::from(jiff::Timestamp::now());
    let query = TotalsQuery {
        from: Some(now - RANGE),
        order: StatisticsOrder::Submitted,
        limit: Some(QUEUES_MAX),
        ..TotalsQuery::default()
    };
    let (queues, workers) =
        (client.queues().try_collect(), client.workers(WorkerFilter::default()).try_collect());
    let all = client.statistics_totals(SubjectKind::All, &query);
    let by_queue = client.statistics_totals(SubjectKind::Queue, &query);
    let usage_query = UsageQuery { order, limit: Some(EXECUTIONS_MAX), ..UsageQuery::default() };
    let usage = async {
        match client.usage(&usage_query).await {
            // A server of an earlier release does not have them, and a role may not read them.
            Err(error) if matches!(error.status(), Some(403 | 404)) => Ok(Vec::new()),
            found => found,
        }
    };
    let (queues, workers, all, by_queue, executions) =
        tokio::try_join!(queues, workers, all, by_queue, usage)?;
    Ok(Load { at: now, activity: activity(all, by_queue, now), queues, workers, executions })
}

/// Combines the totals. The range ends now: the last interval of the totals may end later.
fn activity(all: StatisticsTotals, by_queue: StatisticsTotals, now: Timestamp) -> Activity {
    let none = StatisticsCounts::from(&model::statistics::Tally::default());
    let queues = by_queue.items.into_iter().filter_map(|of| Some((of.subject.queue?, of.counts)));
    Activity {
        from: all.from,
        until: all.until.min(now),
        total: all.items.into_iter().next().map_or(none, |all| all.counts),
        queues: queues.collect(),
    }
}
