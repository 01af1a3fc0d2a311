//! Some live rows by their keys, for a server that stands by.
//!
//! All of them are read in one transaction, in one state of the database, with some statements for each kind
//! of key and none for each key. They are decoded on another thread, as by a load.

use std::collections::BTreeMap;

use model::changelog::LiveKey;
use model::record::LiveRow;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Lane, Mode, Query};
use super::error::Failure;
use super::load::{self, live};
use super::rows::Sorted;
use super::{param, views};
use crate::StoreError;
use crate::rows::{self, Table};

/// Keys of one kind; in the order of the answer.
#[derive(Debug, Clone, Copy)]
enum Group {
    Workers,
    Queues,
    Calendars,
    Schedules,
    Backfills,
    Workflows,
    Runs,
    Jobs,
}

impl Group {
    const ALL: [Self; 8] = [
        Self::Workers,
        Self::Queues,
        Self::Calendars,
        Self::Schedules,
        Self::Backfills,
        Self::Workflows,
        Self::Runs,
        Self::Jobs,
    ];

    /// The id of a key of this group, if it is one; zero where a key names all rows.
    fn id(self, key: &LiveKey) -> Option<u128> {
        match (self, *key) {
            (Self::Workers, LiveKey::Workers)
            | (Self::Queues, LiveKey::Queues)
            | (Self::Calendars, LiveKey::Calendars) => Some(0),
            (Self::Schedules, LiveKey::Schedule(id)) => Some(id.to_bits()),
            (Self::Backfills, LiveKey::Backfill(id)) => Some(id.to_bits()),
            (Self::Workflows, LiveKey::Workflow(id)) => Some(id.to_bits()),
            (Self::Runs, LiveKey::Run(id)) => Some(id.to_bits()),
            (Self::Jobs, LiveKey::Job(id)) => Some(id.to_bits()),
            _ => None,
        }
    }

    fn queries(self, ids: &[Uuid]) -> Vec<Query> {
        let by_id = |sql| Query::new(sql, vec![param::ids(ids.to_vec())]);
        match self {
            Self::Workers => vec![views::workers_query()],
            Self::Queues => vec![views::queues_query()],
            Self::Calendars => vec![views::calendars_query(None)],
            Self::Schedules => vec![by_id(live!(schedules, "t.id = ANY($1) ORDER BY t.id"))],
            Self::Backfills => vec![by_id(live!(backfills, "t.id = ANY($1) ORDER BY t.id"))],
            Self::Workflows => vec![by_id(live!(workflows, "t.id = ANY($1) ORDER BY t.id"))],
            Self::Runs => vec![
                by_id(live!(runs, "t.id = ANY($1) ORDER BY t.id")),
                by_id(
                    "SELECT d.hash, d.body FROM run_definitions d WHERE d.hash IN (
                        SELECT h.definition FROM run_heads h JOIN runs r ON r.id = h.id
                        WHERE h.id = ANY($1) AND r.status < 4)",
                ),
                by_id(live!(
                    element_batches,
                    "t.run = ANY($1)
                     AND t.run IN (SELECT r.id FROM runs r WHERE r.id = ANY($1) AND r.status < 4)
                     ORDER BY t.run, t.step, t.first"
                )),
                by_id(live!(
                    steps,
                    "t.run = ANY($1)
                     AND t.run IN (SELECT r.id FROM runs r WHERE r.id = ANY($1) AND r.status < 4)
                     ORDER BY t.run, t.list, t.number"
                )),
            ],
            Self::Jobs => vec![
                by_id(live!(jobs, "t.id = ANY($1) ORDER BY t.id")),
                by_id(live!(executions, "t.job = ANY($1) ORDER BY t.id")),
            ],
        }
    }

    /// The answers to [`queries`](Self::queries).
    fn decode(self, answers: &[Vec<Row>]) -> Result<Vec<LiveRow>, Failure> {
        let found = &answers[0];
        Ok(match self {
            Self::Workers => all(load::workers(found)?)?.map(LiveRow::Worker).collect(),
            Self::Queues => all(load::queues(found)?)?.map(LiveRow::Queue).collect(),
            Self::Calendars => all(views::calendars(found)?)?.map(LiveRow::Calendar).collect(),
            Self::Schedules => all(load::sorted(Table::Schedules, found, load::schedule)?)?.collect(),
            Self::Backfills => all(load::sorted(Table::Backfills, found, load::backfill)?)?.collect(),
            Self::Workflows => all(load::sorted(Table::Workflows, found, load::workflow)?)?.collect(),
            Self::Runs => runs(answers)?,
            Self::Jobs => {
                let jobs = all(load::sorted(Table::Jobs, found, load::job)?)?;
                let executions = load::sorted(Table::Executions, &answers[1], load::execution)?;
                jobs.chain(all(executions)?).collect()
            }
        })
    }
}

/// Reads the live rows of `keys`, in the order of a load.
pub(super) async fn live_rows(lane: &Lane, mode: Mode, keys: &[LiveKey]) -> Result<Vec<LiveRow>, Failure> {
    let (mut queries, mut groups) = (Vec::new(), Vec::new());
    for group in Group::ALL {
        let mut ids: Vec<_> = keys.iter().filter_map(|key| group.id(key)).map(Uuid::from_u128).collect();
        ids.sort_unstable();
        ids.dedup();
        if !ids.is_empty() {
            let begin = queries.len();
            queries.extend(group.queries(&ids));
            groups.push((group, begin..queries.len()));
        }
    }
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    let answers = lane.run(mode, &queries).await?;
    let decoding = tokio::task::spawn_blocking(move || {
        let mut live = Vec::new();
        for (group, place) in groups {
            live.extend(group.decode(&answers[place])?);
        }
        Ok(live)
    });
    decoding.await.map_err(|_| Failure::Broken("decoding a row panicked".into()))?
}

/// All rows, or which of them cannot be read.
fn all<T>(sorted: Sorted<T>) -> Result<impl Iterator<Item = T>, Failure> {
    match sorted.damaged.first() {
        None => Ok(sorted.good.into_iter()),
        Some(damaged) => Err(Failure::Store(StoreError::Unavailable { source: damaged.to_string().into() })),
    }
}

/// Each run, what was added to its steps, and these.
fn runs(answers: &[Vec<Row>]) -> Result<Vec<LiveRow>, Failure> {
    let runs = all(views::run(&answers[..2])?)?;
    let mut live: BTreeMap<_, _> = runs.map(|run| (run.id, vec![LiveRow::from(run)])).collect();
    for row in all(load::sorted(Table::ElementBatches, &answers[2], rows::elements)?)? {
        let run = live.entry(row.key.run).or_default();
        run.push(LiveRow::ElementBatch(Box::new(row)));
    }
    for row in all(load::sorted(Table::Steps, &answers[3], rows::step)?)? {
        let run = live.entry(row.key.run).or_default();
        run.push(LiveRow::Step(Box::new(row)));
    }
    Ok(live.into_values().flatten().collect())
}
