//! Groups of commands: the content of an entry of a log.
//!
//! ```text
//! group   := format (u8)  flags (u8)  item*
//! item    := kind (u8)  length (u32)  body
//! body    := commit | update (postcard)
//! commit  := number of rows (u32)  header  row*  events and statistics (all postcard)
//! ```
//!
//! The flags are 0; a log uses them to cut a large group into several entries. Integers are little-endian. Rows are read one by one, and their blobs stay in the bytes of the entry. The bytes have
//! no checksum of their own: the log and the connections between servers protect them, and the blobs have one each.

use model::Timestamp;
use model::record::{Batch, Lease};
use serde::{Deserialize, Serialize};

use super::rows::{Blob, RowChange};
use super::seal::{MissingHead, seal};
use super::{Command, StatisticsId, Update};
use crate::StoreError;
use crate::batch::{EVENTS_PER_ROW, first_shard_without_lease};
use crate::codec::{encode_events, seal_counted};

const FORMAT: u8 = 1;
const FLAGS: u8 = 0;
const COMMIT: u8 = 0;
const UPDATE: u8 = 1;
/// Kind and length of an item.
const ITEM_HEADER: usize = 5;

/// Encodes commands into the content of one entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupBuilder {
    bytes: Vec<u8>,
    count: usize,
}

impl Default for GroupBuilder {
    fn default() -> Self {
        Self { bytes: vec![FORMAT, FLAGS], count: 0 }
    }
}

impl GroupBuilder {
    /// Adds a command.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if a batch changes a shard without a lease, and [`StoreError::Fatal`] if it breaks an
    /// invariant that is visible in it. The group is then unchanged.
    pub fn push(&mut self, command: &Command) -> Result<(), StoreError> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; ITEM_HEADER]);
        let kind = match command {
            Command::Commit { leases, batch, statistics } => {
                if let Err(error) = self.put_commit(leases, batch, *statistics) {
                    self.bytes.truncate(start);
                    return Err(error);
                }
                COMMIT
            }
            Command::Update(update) => {
                self.put(update);
                UPDATE
            }
        };
        let Ok(len) = u32::try_from(self.bytes.len() - start - ITEM_HEADER) else {
            self.bytes.truncate(start);
            let reason = "a batch of more than 4 GiB cannot be stored".to_owned();
            return Err(StoreError::Fatal { reason });
        };
        self.bytes[start] = kind;
        self.bytes[start + 1..start + ITEM_HEADER].copy_from_slice(&len.to_le_bytes());
        self.count += 1;
        Ok(())
    }

    /// Returns the number of commands.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the size of the group in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of the group.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn put<T: Serialize>(&mut self, value: &T) {
        let bytes = std::mem::take(&mut self.bytes);
        self.bytes = postcard::to_extend(value, bytes).expect("commands are plain data");
    }

    fn put_commit(
        &mut self,
        leases: &[Lease],
        batch: &Batch,
        statistics: StatisticsId,
    ) -> Result<(), StoreError> {
        if let Some(shard) = first_shard_without_lease(leases, batch) {
            return Err(StoreError::Fenced { shard });
        }
        let (count_at, mut count) = (self.bytes.len(), 0_u32);
        self.bytes.extend_from_slice(&count.to_le_bytes());
        self.put(&CommitHeader { leases: leases.to_vec(), now: batch.now });
        let put_row = |row: RowChange<'_>| {
            self.put(&row);
            count += 1;
            Ok::<(), MissingHead>(())
        };
        seal(&batch.changes, put_row).map_err(|error| StoreError::Fatal { reason: error.to_string() })?;
        self.bytes[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
        let events = batch.events.chunks(EVENTS_PER_ROW).map(|events| EventsRow {
            count: events.len() as u32,
            newest_at: events.iter().map(|event| event.at).max().unwrap_or(batch.now),
            encoded: encode_events(events).into(),
        });
        let counted = || (statistics, Blob::from(seal_counted(batch.now, &batch.statistics)));
        let statistics = (!batch.statistics.is_empty()).then(counted);
        self.put(&CommitEnd { events: events.collect(), statistics });
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct CommitHeader {
    leases: Vec<Lease>,
    now: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct CommitEnd<'a> {
    #[serde(borrow)]
    events: Vec<EventsRow<'a>>,
    #[serde(borrow)]
    statistics: Option<(StatisticsId, Blob<'a>)>,
}

/// Events of a commit that are stored in one row.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EventsRow<'a> {
    pub(crate) count: u32,
    pub(crate) newest_at: Timestamp,
    #[serde(borrow)]
    pub(crate) encoded: Blob<'a>,
}

/// A command of a group.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    Commit(SealedCommit<'a>),
    Update(Update),
}

/// A batch whose rows are read while they are applied.
#[derive(Debug)]
pub(crate) struct SealedCommit<'a> {
    pub(crate) leases: Vec<Lease>,
    pub(crate) now: Timestamp,
    rows: u32,
    rest: &'a [u8],
}

/// What follows the rows of a commit.
pub(crate) struct AfterRows<'a> {
    pub(crate) events: Vec<EventsRow<'a>>,
    /// Key and content of the row with the statistics.
    pub(crate) statistics: Option<(StatisticsId, Blob<'a>)>,
}

impl<'a> SealedCommit<'a> {
    fn open(body: &'a [u8]) -> Result<Self, StoreError> {
        let (rows, body) = body.split_first_chunk().ok_or_else(|| unreadable("it ends early"))?;
        let (CommitHeader { leases, now }, rest) = take(body)?;
        Ok(Self { leases, now, rows: u32::from_le_bytes(*rows), rest })
    }

    /// Passes each row to `each`, and returns what follows the rows.
    pub(crate) fn rows<E: From<StoreError>>(
        &self,
        mut each: impl FnMut(RowChange<'a>) -> Result<(), E>,
    ) -> Result<AfterRows<'a>, E> {
        let mut rest = self.rest;
        for _ in 0..self.rows {
            let (row, behind) = take(rest)?;
            each(row)?;
            rest = behind;
        }
        let (CommitEnd { events, statistics }, rest) = take(rest)?;
        match rest {
            [] => Ok(AfterRows { events, statistics }),
            _ => Err(unreadable("it has unexpected bytes at its end").into()),
        }
    }
}

/// Returns the commands of a group, in their order. After an error, there are no more.
///
/// # Errors
/// [`StoreError::Fatal`] for a command that this version does not know.
pub(crate) fn items(group: &[u8]) -> impl Iterator<Item = Result<Item<'_>, StoreError>> {
    let mut rest = match group {
        [FORMAT, FLAGS, rest @ ..] => Ok(rest),
        [format, flags, ..] => Err(unreadable(format!("its format is {format} with the flags {flags}"))),
        _ => Err(unreadable("it ends early")),
    };
    std::iter::from_fn(move || {
        let bytes = match std::mem::replace(&mut rest, Ok(&[])) {
            Ok([]) => return None,
            Ok(bytes) => bytes,
            Err(error) => return Some(Err(error)),
        };
        let (item, behind) = match split_item(bytes) {
            Ok(split) => split,
            Err(error) => return Some(Err(error)),
        };
        rest = Ok(behind);
        Some(item)
    })
}

type Split<'a> = (Result<Item<'a>, StoreError>, &'a [u8]);

fn split_item(bytes: &[u8]) -> Result<Split<'_>, StoreError> {
    let ends_early = || unreadable("it ends early");
    let ([kind, len @ ..], rest) = bytes.split_first_chunk::<ITEM_HEADER>().ok_or_else(ends_early)?;
    let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
    let (body, behind) = rest.split_at_checked(len).ok_or_else(ends_early)?;
    let item = match *kind {
        COMMIT => SealedCommit::open(body).map(Item::Commit),
        UPDATE => take(body).and_then(|(update, rest)| match rest {
            [] => Ok(Item::Update(update)),
            _ => Err(unreadable("a command has unexpected bytes at its end")),
        }),
        unknown => Err(unreadable(format!("a command has the kind {unknown}"))),
    };
    Ok((item, behind))
}

fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), StoreError> {
    postcard::take_from_bytes(bytes).map_err(unreadable)
}

/// A server never skips a command: its rows would differ from those of the others.
fn unreadable(reason: impl std::fmt::Display) -> StoreError {
    StoreError::Fatal {
        reason: format!(
            "cannot decode an entry of the log ({reason}): a newer version of Belfry probably wrote it; \
             run that version"
        ),
    }
}
