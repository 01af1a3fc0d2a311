//! Reads of single live rows by key, for a standby.
//!
//! All rows are read in one transaction, from one snapshot, with a few statements for each type of key instead of each
//! key. They are decoded on another thread, as in a load.

use std::collections::BTreeMap;

use model::changelog::{LiveKey, ReloadedRows};
use model::record::LiveRow;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Lane, Mode, Query};
use super::error::Failure;
use super::load::{self, live};
use super::quarantine::DamagedRow;
use super::rows::Decoded;
use super::{param, views};
use crate::rows::{self, Table};

/// Types of keys, in the order of the answer.
#[derive(Debug, Clone, Copy)]
enum Group {
    Workers,
    Queues,
    Namespaces,
    Calendars,
    Schedules,
    Backfills,
    Workflows,
    Runs,
    Services,
    Jobs,
}

impl Group {
    const ALL: [Self; 10] = [
        Self::Workers,
        Self::Queues,
        Self::Namespaces,
        Self::Calendars,
        Self::Schedules,
        Self::Backfills,
        Self::Workflows,
        Self::Runs,
        Self::Services,
        Self::Jobs,
    ];

    /// Returns the ID of a key of this group, or `None` for another group; zero if a key names all rows.
    fn id(self, key: &LiveKey) -> Option<u128> {
        match (self, *key) {
            (Self::Workers, LiveKey::Workers)
            | (Self::Queues, LiveKey::Queues)
            | (Self::Namespaces, LiveKey::Namespaces)
            | (Self::Calendars, LiveKey::Calendars) => Some(0),
            (Self::Schedules, LiveKey::Schedule(id)) => Some(id.to_bits()),
            (Self::Backfills, LiveKey::Backfill(id)) => Some(id.to_bits()),
            (Self::Workflows, LiveKey::Workflow(id)) => Some(id.to_bits()),
            (Self::Runs, LiveKey::Run(id)) => Some(id.to_bits()),
            (Self::Services, LiveKey::Service(id)) => Some(id.to_bits()),
            (Self::Jobs, LiveKey::Job(id)) => Some(id.to_bits()),
            _ => None,
        }
    }

    fn queries(self, ids: &[Uuid]) -> Vec<Query> {
        let by_id = |sql| Query::new(sql, vec![param::ids(ids.to_vec())]);
        match self {
            Self::Workers => vec![views::workers_query()],
            Self::Queues => vec![views::queues_query()],
            Self::Namespaces => vec![views::namespaces_query()],
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
            Self::Services => vec![by_id(live!(services, "t.id = ANY($1) ORDER BY t.id"))],
            Self::Jobs => vec![
                by_id(live!(jobs, "t.id = ANY($1) ORDER BY t.id")),
                by_id(live!(executions, "t.job = ANY($1) ORDER BY t.id")),
            ],
        }
    }

    /// Decodes the answers to [`queries`](Self::queries), and adds them to `reread`.
    fn decode(self, answers: &[Vec<Row>], reread: &mut ReloadedRows) -> Result<(), Failure> {
        let found = &answers[0];
        match self {
            Self::Workers => add(reread, load::workers(found)?, LiveRow::Worker),
            Self::Queues => add(reread, load::queues(found)?, LiveRow::Queue),
            Self::Namespaces => add(reread, load::namespaces(found)?, LiveRow::Namespace),
            Self::Calendars => add(reread, views::calendars(found)?, LiveRow::Calendar),
            Self::Schedules => add_live(reread, load::sorted(Table::Schedules, found, load::schedule)?),
            Self::Backfills => add_live(reread, load::sorted(Table::Backfills, found, load::backfill)?),
            Self::Workflows => add_live(reread, load::sorted(Table::Workflows, found, load::workflow)?),
            Self::Runs => runs(answers, reread)?,
            Self::Services => add_live(reread, load::sorted(Table::Services, found, load::service)?),
            Self::Jobs => {
                add_live(reread, load::sorted(Table::Jobs, found, load::job)?);
                add_live(reread, load::sorted(Table::Executions, &answers[1], load::execution)?);
            }
        }
        Ok(())
    }
}

fn add_live(reread: &mut ReloadedRows, sorted: Decoded<LiveRow>) {
    add(reread, sorted, |row| row);
}

fn add<T>(reread: &mut ReloadedRows, sorted: Decoded<T>, live: impl Fn(T) -> LiveRow) {
    let good = good(reread, sorted);
    reread.rows.extend(good.into_iter().map(live));
}

/// Returns the rows that could be decoded; counts and logs the others.
fn good<T>(reread: &mut ReloadedRows, sorted: Decoded<T>) -> Vec<T> {
    reread.unreadable += sorted.damaged.len() as u64;
    sorted.damaged.iter().for_each(DamagedRow::log_damage);
    sorted.good
}

/// Reads the live rows of `keys`, in the order of a load.
pub(super) async fn live_rows(lane: &Lane, mode: Mode, keys: &[LiveKey]) -> Result<ReloadedRows, Failure> {
    let mut reread = ReloadedRows { rows: Vec::new(), unreadable: 0 };
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
        return Ok(reread);
    }
    let answers = lane.run(mode, &queries).await?;
    let decoding = tokio::task::spawn_blocking(move || {
        for (group, place) in groups {
            group.decode(&answers[place], &mut reread)?;
        }
        Ok(reread)
    });
    decoding.await.map_err(|_| Failure::Broken("decoder thread panicked".into()))?
}

/// Decodes runs, each with its added elements and its steps.
fn runs(answers: &[Vec<Row>], reread: &mut ReloadedRows) -> Result<(), Failure> {
    let runs = good(reread, views::run(&answers[..2])?);
    let mut live: BTreeMap<_, _> = runs.into_iter().map(|run| (run.id, vec![LiveRow::from(run)])).collect();
    for row in good(reread, load::sorted(Table::ElementBatches, &answers[2], rows::elements)?) {
        let run = live.entry(row.key.run).or_default();
        run.push(LiveRow::ElementBatch(Box::new(row)));
    }
    for row in good(reread, load::sorted(Table::Steps, &answers[3], rows::step)?) {
        let run = live.entry(row.key.run).or_default();
        run.push(LiveRow::Step(Box::new(row)));
    }
    reread.rows.extend(live.into_values().flatten());
    Ok(())
}
