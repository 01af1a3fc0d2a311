//! A database as the target of a copy from another store.
//!
//! The row of `copies` names the source and the progress of the copy. The transaction of each chunk updates the
//! progress, and only if it has the value that this copy expects. So of two copies into one database one stops; and a
//! chunk in flight when its copy was killed is either committed or not.

use super::connection::{Mode, Query, Stopped};
use super::error::{GUARD, Work};
use super::guard::clock;
use super::load::PAGE_LIMIT;
use super::param::{self, Param, big, bytes, escape, ints, text};
use super::{Options, PostgresStore, schema};
use crate::StoreError;
use crate::copy::{Cell, Column, CopyError, Kind, Obstacle, Page, TABLES, Table};
use crate::rows::Fields;

/// Maximum number of rows that are read at a time.
const PAGE: usize = 1_024;

/// Database with its tables, to be filled.
#[derive(Debug)]
pub(crate) struct Target(PostgresStore);

/// Progress of a copy.
#[derive(Debug, Clone)]
pub(crate) struct Position {
    /// Table of the last chunk.
    pub(crate) table: &'static Table,
    /// Key of the last copied row of this table; empty before the first.
    pub(crate) after: Vec<Cell>,
    /// Number of copied rows of all tables.
    pub(crate) rows: u64,
}

/// Copy that was started before.
#[derive(Debug)]
pub(crate) struct StartedCopy {
    /// Location of the source.
    pub(crate) source: String,
    pub(crate) identity: Vec<u8>,
    pub(crate) position: Position,
    pub(crate) finished: bool,
}

impl Target {
    /// Connects to the database, and creates missing tables.
    pub(crate) async fn open(url: &str, options: Options) -> Result<Self, CopyError> {
        PostgresStore::open_unchecked(url, options).await.map(Self).map_err(CopyError::Target)
    }

    /// Connects to a database that is the source of a copy; changes nothing in it.
    pub(crate) async fn open_source(url: &str, options: Options) -> Result<Self, CopyError> {
        match PostgresStore::version_at(url, &options).await.map_err(CopyError::Source)? {
            None => return Err(CopyError::EmptySource),
            Some(found) if found != schema::VERSION => {
                return Err(CopyError::OldSource { found, expected: schema::VERSION });
            }
            Some(_) => {}
        }
        let database = Self::open(url, options).await.map_err(CopyError::of_source)?;
        match unfinished(&database.0).await.map_err(CopyError::Source)? {
            Some(origin) => Err(CopyError::UnfinishedSource { origin }),
            None => Ok(database),
        }
    }

    /// Returns the epoch of each shard, which any server that worked on the database would have changed, and the engine
    /// time of the newest commit in microseconds.
    pub(crate) async fn epochs(&self) -> Result<(Vec<(i32, i64)>, i64), CopyError> {
        let look = "SELECT shard, epoch, now FROM shards ORDER BY shard";
        let answers = self.run(self.reading(), &[Query::new(look, Vec::new())]).await?;
        let epochs = answers[0].iter().map(|row| (row.get(0), row.get(1))).collect();
        let now = answers[0].iter().map(|row| row.get::<_, i64>(2)).max();
        Ok((epochs, now.unwrap_or_default()))
    }

    /// Returns the name of a server that uses the database, if there is one.
    pub(crate) async fn server(&self) -> Result<Option<String>, CopyError> {
        let answers = self.run(self.reading(), &[live_servers(), owners()]).await?;
        let first = answers.iter().find_map(|rows| rows.first());
        let name = first.map(|row| row.text(0, "name").map(|name| name.into_owned())).transpose();
        name.map_err(|damage| self.broken(&damage))
    }

    /// Returns the number of rows of a table.
    pub(crate) async fn count(&self, table: &'static Table) -> Result<u64, CopyError> {
        let look = format!("SELECT count(*) FROM {}", rows_of(table));
        let answers = self.run(self.reading(), &[Query::new(look, Vec::new())]).await?;
        Ok(answers[0].first().map_or(0, |row| row.get::<_, i64>(0).cast_unsigned()))
    }

    /// Returns the copy into this database that was started before, if there is one.
    pub(crate) async fn started_copy(&self) -> Result<Option<StartedCopy>, CopyError> {
        // Waits for a chunk that a killed copy left in flight.
        let look = "SELECT source, identity, at_table, after, copied, finished_at IS NOT NULL
            FROM copies WHERE id = 0 FOR UPDATE";
        let answers = self.run(self.0.write(), &[Query::new(look, Vec::new())]).await?;
        let Some(row) = answers[0].first() else { return Ok(None) };
        let name = row.text(2, "at_table").map_err(|damage| self.broken(&damage))?;
        let after = row.bytes(3, "after").map_err(|damage| self.broken(&damage))?;
        let (Some(table), Ok(after)) = (Table::named(&name), postcard::from_bytes(after)) else {
            return Err(self.broken(&"the position in the row of `copies` cannot be read"));
        };
        Ok(Some(StartedCopy {
            source: row.text(0, "source").map_err(|damage| self.broken(&damage))?.into_owned(),
            identity: row.bytes(1, "identity").map_err(|damage| self.broken(&damage))?.to_vec(),
            position: Position { table, after, rows: row.get::<_, i64>(4).cast_unsigned() },
            finished: row.get(5),
        }))
    }

    /// Returns the obstacle to a new copy, if there is one.
    pub(crate) async fn obstacle(&self) -> Result<Option<Obstacle>, CopyError> {
        let queries = [live_servers(), owners(), Query::new(rows_there(), Vec::new())];
        let answers = self.run(self.reading(), &queries).await?;
        let first = |answer: usize| {
            let row = answers[answer].first();
            row.map(|row| row.text(0, "name").map(|name| name.into_owned())).transpose()
        };
        let server = first(0).and_then(|server| Ok(server.or(first(1)?)));
        let server = server.map_err(|damage| self.broken(&damage))?;
        let table = first(2).map_err(|damage| self.broken(&damage))?;
        Ok(server.map(Obstacle::Server).or(table.map(Obstacle::Rows)))
    }

    /// Starts a copy. Removes the initial rows of an empty store; until the shards are copied, no server can own one.
    pub(crate) async fn begin(&self, source: &str, identity: &[u8]) -> Result<Position, CopyError> {
        let position = Position { table: &TABLES[0], after: Vec::new(), rows: 0 };
        let queries = [
            Query::new(
                format!("SELECT 1 / (CASE WHEN EXISTS ({}) THEN 0 ELSE 1 END)", rows_there()),
                Vec::new(),
            ),
            Query::new(
                concat!(
                    "WITH put AS (
                        INSERT INTO copies (id, source, identity, at_table, after, copied, started_at)
                        SELECT 0, $1, $2, $3, $4, 0, ",
                    clock!(),
                    " ON CONFLICT (id) DO NOTHING RETURNING 1
                    )
                    SELECT 1 / (CASE WHEN count(*) = 1 THEN 1 ELSE 0 END) FROM put"
                ),
                vec![
                    text(source),
                    bytes(identity.to_vec()),
                    text(position.table.name),
                    bytes(encode(&position.after)),
                ],
            ),
            Query::new("DELETE FROM meta", Vec::new()),
            Query::new("DELETE FROM shards", Vec::new()),
            // Rows of an earlier store; the first owner starts a new changelog.
            Query::new("DELETE FROM changelog", Vec::new()),
            Query::new("INSERT INTO changelog VALUES (0, 0, 0, 1, 1, ''::BYTEA)", Vec::new()),
        ];
        self.run_guarded(&queries).await?;
        Ok(position)
    }

    /// Writes rows of a table, and advances the position of the copy to their end.
    pub(crate) async fn put(
        &self,
        from: &Position,
        table: &'static Table,
        rows: Vec<Vec<Cell>>,
    ) -> Result<Position, CopyError> {
        let after = rows.last().map(|row| row[..table.key].to_vec()).unwrap_or_default();
        let to = Position { table, after, rows: from.rows + rows.len() as u64 };
        let insert = insert(table, rows)?;
        self.run_guarded(&[advance_position(from, &to, "finished_at"), insert]).await?;
        Ok(to)
    }

    /// Marks the copy as complete.
    pub(crate) async fn finish(&self, position: &Position) -> Result<(), CopyError> {
        self.run_guarded(&[advance_position(position, position, clock!())]).await
    }

    /// Returns rows after `after` in key order.
    pub(crate) async fn page(
        &self,
        table: &'static Table,
        after: Option<&[Cell]>,
    ) -> Result<Page, CopyError> {
        let read = |column: &Column| match column.kind {
            Kind::Flag => format!("{}::INTEGER", column.name),
            // The embedded store has one engine time for all shards.
            _ if table.name == "shards" && column.name == "now" => "(SELECT max(now) FROM shards)".to_owned(),
            _ => column.name.to_owned(),
        };
        let names: Vec<_> = table.columns.iter().map(read).collect();
        let (names, key) = (names.join(", "), table.key_columns());
        let (mut behind, mut params) = (String::new(), Vec::new());
        if let Some(after) = after {
            let places: Vec<_> = (1..=table.key).map(|n| format!("${n}")).collect();
            behind = format!("WHERE ({key}) > ({})", places.join(", "));
            params = table.columns.iter().zip(after).map(|(column, cell)| value(column.kind, cell)).collect();
        }
        let sql = format!("SELECT {names} FROM {} {behind} ORDER BY {key} LIMIT {PAGE}", rows_of(table));
        let answers = self.run(self.reading(), &[Query::new(sql, params)]).await?;
        let rows: Result<Vec<_>, _> = answers[0].iter().map(|row| table.row_of_target(row)).collect();
        let rows = rows.map_err(|damage| self.broken(&damage))?;
        Ok(Page { more: rows.len() == PAGE, rows })
    }

    fn reading(&self) -> Mode {
        Mode::Read { limit: PAGE_LIMIT }
    }

    async fn run(&self, mode: Mode, queries: &[Query]) -> Result<Vec<Vec<tokio_postgres::Row>>, CopyError> {
        self.0.queries.run(mode, queries).await.map_err(|stopped| self.judge(stopped))
    }

    /// Runs a change whose guards check that no other process writes to the database.
    async fn run_guarded(&self, queries: &[Query]) -> Result<(), CopyError> {
        match self.0.queries.run(self.0.write(), queries).await {
            Ok(_) => Ok(()),
            Err(stopped) if stopped.failure.state() == Some(GUARD) => Err(CopyError::Conflict),
            Err(stopped) => Err(self.judge(stopped)),
        }
    }

    fn judge(&self, stopped: Stopped) -> CopyError {
        CopyError::Target(self.0.trust.judge(stopped.failure, Work::Change))
    }

    fn broken(&self, reason: &dyn std::fmt::Display) -> CopyError {
        CopyError::Target(StoreError::Fatal { reason: format!("PostgreSQL: {reason}") })
    }
}

/// Returns the source of which a database is an unfinished copy.
pub(super) async fn unfinished(store: &PostgresStore) -> Result<Option<String>, StoreError> {
    let look = "SELECT source FROM copies WHERE finished_at IS NULL";
    store
        .ask(&[Query::new(look, Vec::new())], |answers| {
            let source = answers[0].first().map(|row| row.text(0, "source"));
            Ok(source.transpose()?.map(|source| source.into_owned()))
        })
        .await
}

/// Returns the table to read from; a sum if this store divides the rows into parts.
fn rows_of(table: &Table) -> &'static str {
    match table.name {
        "job_counts" => {
            "(SELECT namespace, status, sum(count)::BIGINT AS count FROM job_counts GROUP BY namespace, status)
             AS job_counts"
        }
        _ => table.name,
    }
}

fn live_servers() -> Query {
    Query::new(concat!("SELECT name FROM servers WHERE expires_at > ", clock!()), Vec::new())
}

fn owners() -> Query {
    let look = concat!("SELECT owner FROM shards WHERE owner IS NOT NULL AND expires_at > ", clock!());
    Query::new(look, Vec::new())
}

/// Selects the names of tables that have rows, except tables with initial rows.
fn rows_there() -> String {
    let ours = TABLES.iter().filter(|table| !matches!(table.name, "meta" | "shards"));
    let each: Vec<_> = ours
        .map(|table| format!("SELECT '{0}' AS name WHERE EXISTS (SELECT 1 FROM {0})", table.name))
        .collect();
    each.join(" UNION ALL ")
}

/// Advances the position of the copy. Raises an error if the stored position is not `from`, or if a shard has an owner.
fn advance_position(from: &Position, to: &Position, finished: &str) -> Query {
    let sql = format!(
        "WITH moved AS (
            UPDATE copies SET at_table = $1, after = $2, copied = $3, finished_at = {finished}
            WHERE id = 0 AND finished_at IS NULL AND at_table = $4 AND after = $5 RETURNING 1
        )
        SELECT 1 / (CASE WHEN count(*) = 1
            AND NOT EXISTS (SELECT 1 FROM shards WHERE owner IS NOT NULL) THEN 1 ELSE 0 END)
        FROM moved"
    );
    let params = vec![
        text(to.table.name),
        bytes(encode(&to.after)),
        big(to.rows.cast_signed()),
        text(from.table.name),
        bytes(encode(&from.after)),
    ];
    Query::new(sql, params)
}

fn encode(key: &[Cell]) -> Vec<u8> {
    postcard::to_stdvec(key).expect("cells are plain data")
}

/// Inserts all rows in one statement, with an array for each column.
fn insert(table: &'static Table, mut rows: Vec<Vec<Cell>>) -> Result<Query, CopyError> {
    let mut params = Vec::with_capacity(table.columns.len());
    for (index, column) in table.columns.iter().enumerate() {
        let take = |row: &mut Vec<Cell>| std::mem::replace(&mut row[index], Cell::Absent);
        params.push(array(table, column, rows.iter_mut().map(take).collect())?);
    }
    let fixed_names = table.fixed.iter().map(|(name, _)| *name);
    let fixed_values = table.fixed.iter().map(|(_, value)| (*value).to_owned());
    let names: Vec<_> = table.columns.iter().map(|column| column.name).chain(fixed_names).collect();
    let count = table.columns.len();
    let written = |(n, column): (usize, &Column)| match column.kind {
        Kind::Flag => format!("u.c{n} <> 0"),
        _ => format!("u.c{n}"),
    };
    let values: Vec<_> = table.columns.iter().enumerate().map(written).chain(fixed_values).collect();
    let places: Vec<_> = (1..=count).map(|n| format!("${n}")).collect();
    let aliases: Vec<_> = (0..count).map(|n| format!("c{n}")).collect();
    let sql = format!(
        "INSERT INTO {} ({}) SELECT {} FROM unnest({}) AS u ({})",
        table.name,
        names.join(", "),
        values.join(", "),
        places.join(", "),
        aliases.join(", "),
    );
    Ok(Query::new(sql, params))
}

/// Converts a column of rows into an array.
fn array(table: &'static Table, column: &Column, cells: Vec<Cell>) -> Result<Param, CopyError> {
    let misfit = |reason: String| CopyError::Row {
        table: table.name,
        key: String::new(),
        reason: format!("`{}` {reason}", column.name),
    };
    let absent = || misfit("is absent in one of a chunk's rows".to_owned());
    let cells = cells.into_iter();
    Ok(match column.kind {
        Kind::Id | Kind::Backfill => {
            let id = |cell| match cell {
                Cell::Id(bits) => Some(uuid::Uuid::from_u128(bits)),
                _ => None,
            };
            param::optional_ids(cells.map(id).collect())
        }
        Kind::Big => {
            let number = |cell| match cell {
                Cell::Number(number) => Some(number),
                _ => None,
            };
            param::optional_bigs(cells.map(number).collect())
        }
        Kind::Small | Kind::Flag | Kind::Shard => {
            let number = |cell| match cell {
                Cell::Number(number) => {
                    i32::try_from(number).map_err(|_| misfit(format!("is {number}, beyond its bounds")))
                }
                _ => Err(absent()),
            };
            ints(cells.map(number).collect::<Result<_, _>>()?)
        }
        Kind::Text | Kind::QuarantinedColumns => {
            let text = |cell| match cell {
                Cell::Text(text) => Some(escape(&text)),
                _ => None,
            };
            param::optional_texts(cells.map(text).collect())
        }
        Kind::Bytes | Kind::Events => {
            let bytes = |cell| match cell {
                Cell::Bytes(bytes) => Some(bytes),
                _ => None,
            };
            param::optional_blobs(cells.map(bytes).collect())
        }
    })
}

/// Converts a part of a key.
fn value(kind: Kind, cell: &Cell) -> Param {
    match (kind, cell) {
        (_, Cell::Id(bits)) => param::id(*bits),
        (_, Cell::Text(of)) => text(of),
        (_, Cell::Bytes(of)) => bytes(of.clone()),
        (Kind::Small | Kind::Shard, Cell::Number(number)) => {
            param::int(i32::try_from(*number).unwrap_or(i32::MAX))
        }
        (_, Cell::Number(number)) => big(*number),
        (_, Cell::Absent) => param::optional_big(None),
    }
}
