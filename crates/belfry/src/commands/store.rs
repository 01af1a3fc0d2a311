//! `belfry store`: copies, checks, backs up and repairs stores.
//!
//! - `copy`: copies an embedded store into a PostgreSQL database, or back, and compares every row.
//! - `check`: reads every page and row of an embedded store, or of a member of a Raft cluster.
//! - `backup`: writes a consistent backup of an embedded store, or of a member of a Raft cluster; the server may run.
//! - `restored`: marks a store as restored from an earlier state.
//! - `reset-clock`: sets the engine time of a stopped store back to the clock.
//!
//! Stores are named by a data directory, a file, `sqlite:///PATH` or `postgres://…`. Databases are opened with the
//! server's settings, so password files work as for the server. A copy needs stopped servers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use server::clock::Clock as _;
use server::config::{PostgresConfig, StoreConfig};
use server::repair::{ResetError, reset_clock};
use store::copy::{CopyError, Options, Phase, Progress, Report, Verified, copy, copy_back};
use store::postgres::{self, PostgresStore};
use store::sqlite::{self, SqliteStore};
use store::{Store, StoreError};

use super::Context;
use super::serve::system_sources;
use crate::args::serve::LogArgs;
use crate::args::store::{BackupArgs, CheckArgs, CopyArgs, ResetClockArgs, RestoredArgs, StoreCommand};
use crate::failure::{Exit, Failure};
use crate::output::table::{Cell, Column, Row, Tone, column, wide};
use crate::output::text::count;
use crate::output::{Output, OutputOptions, progress};
use crate::settings::Settings;

/// File name of the embedded store in a data directory.
const FILE: &str = "belfry.db";
/// Folder of a member of a Raft cluster in a data directory, and the file with its rows.
const MEMBER: (&str, &str) = ("raft", "state.db");
/// Size of the disk space reserve: only the server creates or removes it.
const NO_RESERVE: u64 = 0;
/// Interval of progress lines if standard error is not a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

pub(super) async fn run(context: &Context, command: StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Copy(args) => run_copy(context, &args).await,
        StoreCommand::Check(args) => run_check(context, &args).await,
        StoreCommand::Backup(args) => run_backup(context, &args).await,
        StoreCommand::Restored(args) => run_restored(context, &args).await,
        StoreCommand::ResetClock(args) => run_reset_clock(context, &args).await,
    }
}

async fn run_reset_clock(context: &Context, args: &ResetClockArgs) -> Result<(), Failure> {
    let embedded = sqlite::Options { ballast_bytes: NO_RESERVE, ..sqlite::Options::default() };
    let store = open(context, &args.store, args.password_file.as_ref(), embedded).await?;
    let now = server::clock::SystemClock.now();
    let reset = reset_clock(store.as_ref(), now).await.map_err(|error| match error {
        ResetError::Store(error) => refused(error),
        error => {
            let help = error.help();
            Failure::new(Exit::Failed, error).help(help)
        }
    })?;
    context.out.note(match reset.from > now {
        true => format!(
            "engine time was {} ahead of the clock, and is now {}; {} rows were changed\n\nNext: start the servers",
            reset.from.since(now),
            reset.to,
            reset.rows
        ),
        false => format!("nothing was changed: engine time ({}) is not ahead of the clock", reset.from),
    });
    Ok(())
}

/// Opens the store that the argument `STORE` names.
async fn open(
    context: &Context,
    text: &str,
    password_file: Option<&PathBuf>,
    embedded: sqlite::Options,
) -> Result<Box<dyn Store>, Failure> {
    if is_database(text) {
        let database = database(context, "STORE", text, password_file)?;
        let opened = PostgresStore::open(&database.url, options(&database)).await;
        return Ok(Box::new(opened.map_err(refused)?));
    }
    let path = source("STORE", text)?;
    if !path.is_file() {
        return Err(failure(CopyError::NoSource { path }));
    }
    Ok(Box::new(SqliteStore::open(&path, embedded).map_err(refused)?))
}

fn refused(error: StoreError) -> Failure {
    match error {
        StoreError::Unavailable { .. } => Failure::new(Exit::Unreachable, error),
        StoreError::InUse { .. } => Failure::new(Exit::Failed, error)
            .help("stop the server that uses the store, then run the command again"),
        StoreError::Replica { .. } => {
            let help = error.help();
            Failure::new(Exit::Failed, error).help(help)
        }
        _ => Failure::new(Exit::Failed, error),
    }
}

fn is_database(store: &str) -> bool {
    store.starts_with("postgres://") || store.starts_with("postgresql://")
}

/// Returns the file of an embedded store. Rejects a database with the hint `instead`.
fn existing(store: &str, instead: &str) -> Result<PathBuf, Failure> {
    if is_database(store) {
        return Err(Failure::usage(
            "the command supports embedded stores only, but `STORE` is a PostgreSQL database",
        )
        .help(instead));
    }
    let path = source("STORE", store)?;
    if path.exists() { Ok(path) } else { Err(failure(CopyError::NoSource { path })) }
}

async fn run_check(context: &Context, args: &CheckArgs) -> Result<(), Failure> {
    let path = existing(&args.store, "use `pg_amcheck` and the data checksums of PostgreSQL")?;
    let checked =
        tokio::task::spawn_blocking(move || sqlite::check(&path)).await.map_err(anyhow::Error::from)?;
    let checked = checked.map_err(|error| {
        let help = error.help();
        Failure::new(Exit::Failed, error).help(help)
    })?;
    if checked.quarantined_rows > 0 {
        context.out.warn(format!(
            "the server has quarantined {} that it could not read",
            count(checked.quarantined_rows, "row")
        ));
    }
    let problems: Vec<_> = checked.problems.into_iter().map(|problem| Problem { problem }).collect();
    context.out.list(&problems, "problems")?;
    match problems.len() {
        0 => {
            let served = if checked.is_in_use { "; a server is using the store" } else { "" };
            context.out.note(format!("checked every page and {} rows{served}", checked.rows));
            Ok(())
        }
        found => {
            let found = count(found as u64, "problem");
            Err(Failure::message(Exit::Failed, format!("the store is damaged: {found} found")).help(
                "restore a backup, or keep this store: the server quarantines rows that it cannot read; in \
                 both cases run `belfry store restored` before you start the server",
            ))
        }
    }
}

/// Problem that a check has found.
#[derive(Debug, Serialize)]
struct Problem {
    problem: String,
}

impl Row for Problem {
    const COLUMNS: &'static [Column] = &[column("PROBLEM", 160)];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![self.problem.as_str().into()]
    }

    fn name(&self) -> String {
        self.problem.clone()
    }
}

async fn run_backup(context: &Context, args: &BackupArgs) -> Result<(), Failure> {
    let path = existing(&args.store, "use `pg_dump`, or base backups with WAL archiving")?;
    let to = args.file.clone();
    let made = match member_of(&path) {
        // A member that runs has applied what it has acknowledged. For another one, its log must be applied first.
        Some(member) => match raft::store::backup_member(member, &to).await {
            Err(error) if error.is_in_use() => back_up(path, to).await?,
            made => made.map_err(|error| {
                let help = error.help();
                Failure::new(Exit::Failed, error).help(help)
            })?,
        },
        None => back_up(path, to).await?,
    };
    context.out.note(format!(
        "backed up and checked {} rows, {} bytes: {}\n\n\
         Next: also copy the folder `objects` of the data directory, which contains logs and artifacts",
        made.rows,
        made.bytes,
        args.file.display(),
    ));
    Ok(())
}

async fn back_up(from: PathBuf, to: PathBuf) -> Result<sqlite::Backup, Failure> {
    let made = tokio::task::spawn_blocking(move || sqlite::backup(&from, &to)).await;
    made.map_err(anyhow::Error::from)?.map_err(|error| {
        let help = error.help();
        Failure::new(Exit::Failed, error).help(help)
    })
}

/// Returns the folder of the member of a Raft cluster whose rows are in this file.
fn member_of(file: &Path) -> Option<&Path> {
    let folder = file.parent().filter(|_| file.file_name().is_some_and(|name| name == MEMBER.1))?;
    raft::store::is_member(folder).then_some(folder)
}

async fn run_restored(context: &Context, args: &RestoredArgs) -> Result<(), Failure> {
    let accepting =
        sqlite::Options { allow_lost_commits: true, ballast_bytes: NO_RESERVE, ..sqlite::Options::default() };
    let store = open(context, &args.store, args.password_file.as_ref(), accepting).await?;
    store.mark_restored().await.map_err(refused)?;
    context.out.note(format!(
        "marked as restored: the store {} is an earlier state\n\n\
         Next: start the servers. The first leader waits for reports from all workers before it starts an at_most_once \
         or exactly_once job",
        args.store
    ));
    Ok(())
}

async fn run_copy(context: &Context, args: &CopyArgs) -> Result<(), Failure> {
    let mut teller = CopyProgress::new(context.out);
    let tell = &mut |progress| teller.tell(progress);
    let password_file = args.password_file.as_ref();
    let (copied, next_steps) = match (is_database(&args.from), is_database(&args.to)) {
        (false, true) => {
            let from = source("--from", &args.from)?;
            let database = database(context, "--to", &args.to, password_file)?;
            let options = Options { target: options(&database), ..Options::default() };
            let copied = copy(&from, &database.url, options, tell).await;
            (copied, NextSteps::IntoDatabase { data: folder(&from).to_owned(), store: args.to.clone() })
        }
        (true, false) => {
            let to = target("--to", &args.to)?;
            let database = database(context, "--from", &args.from, password_file)?;
            // The database is only read, so unsafe settings do not matter.
            let read =
                postgres::Options { allow_unsafe: true, require_sync_standby: false, ..options(&database) };
            let options = Options { target: read, ..Options::default() };
            let copied = copy_back(&database.url, &to, options, tell).await;
            (copied, NextSteps::OutOfDatabase { data: folder(&to).to_owned(), store: args.from.clone() })
        }
        (true, true) => {
            return Err(Failure::usage("`--from` and `--to` are both databases")
                .help("copy a database with `pg_dump`, then run `belfry store restored` on the copy"));
        }
        (false, false) => {
            return Err(Failure::usage("neither `--from` nor `--to` is a database").help(
                "set one of them to `postgres://USER@HOST:PORT/DATABASE`; to copy an embedded store, use \
                 `belfry store backup`",
            ));
        }
    };
    teller.end();
    match copied {
        Ok(report) => {
            context.out.list(&rows(&report.tables), "tables")?;
            context.out.note(next_steps.after(&report));
            Ok(())
        }
        Err(error) => {
            if let CopyError::Differs { tables, .. } = &error {
                context.out.list(&rows(tables), "tables")?;
            }
            Err(failure(error))
        }
    }
}

/// Returns the file of an embedded store: for a directory, the store file in it, or that of a member of a Raft cluster.
fn source(argument: &'static str, text: &str) -> Result<PathBuf, Failure> {
    let path = match text.split_once("://") {
        Some(("sqlite", path)) => Path::new(path),
        Some((scheme, _)) => {
            return Err(Failure::usage(format!("`{argument}` has the unknown scheme `{scheme}`"))
                .help("expected a data directory, a file, or `sqlite:///PATH`"));
        }
        None => Path::new(text),
    };
    let (folder, rows) = MEMBER;
    let places = [path.join(FILE), path.join(folder).join(rows), path.join(rows)];
    Ok(match path.is_dir() {
        true => places.iter().find(|file| file.exists()).unwrap_or(&places[0]).clone(),
        false => path.to_owned(),
    })
}

/// Returns the file that a copy creates: a path that does not end in `.db` is a data directory.
fn target(argument: &'static str, text: &str) -> Result<PathBuf, Failure> {
    let path = source(argument, text)?;
    let is_file = text.contains("://") || path.extension().is_some_and(|extension| extension == "db");
    Ok(if is_file { path } else { path.join(FILE) })
}

/// Returns the database that an argument names, with the settings of a server.
fn database(
    context: &Context,
    argument: &'static str,
    url: &str,
    password_file: Option<&PathBuf>,
) -> Result<PostgresConfig, Failure> {
    let mut sources = system_sources(context, &LogArgs::default());
    sources.flag("server.store", argument, Some(url));
    sources.flag("server.store_password_file", "--password-file", password_file.map(|path| path.display()));
    match Settings::load(&sources)?.store()? {
        StoreConfig::Postgres(database) => Ok(database),
        StoreConfig::Embedded | StoreConfig::Raft(_) => {
            Err(Failure::usage(format!("`{argument}` is not a database URL"))
                .help("expected `postgres://USER@HOST:PORT/DATABASE`"))
        }
    }
}

/// Returns the options with which a server opens the database.
fn options(database: &PostgresConfig) -> postgres::Options {
    postgres::Options {
        allow_unsafe: database.allow_unsafe,
        require_sync_standby: database.require_sync_standby,
        password: database.password.clone(),
        ..postgres::Options::default()
    }
}

fn failure(error: CopyError) -> Failure {
    let exit = match error {
        CopyError::NoSource { .. } | CopyError::EmptySource => Exit::NotFound,
        CopyError::Source(StoreError::Unavailable { .. })
        | CopyError::Target(StoreError::Unavailable { .. }) => Exit::Unreachable,
        _ => Exit::Failed,
    };
    let help = error.help();
    Failure::new(exit, error).help(help)
}

fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Instructions after a copy. `data` is the data directory of the embedded store, `store` the URL of the database.
enum NextSteps {
    IntoDatabase { data: PathBuf, store: String },
    OutOfDatabase { data: PathBuf, store: String },
}

impl NextSteps {
    fn after(&self, report: &Report) -> String {
        let rows = report.found + report.copied;
        let again = match report.found {
            0 => String::new(),
            found => format!(" ({found} already existed)"),
        };
        let steps = match self {
            Self::IntoDatabase { data, store } => {
                let data = data.display();
                [
                    format!(
                        "start the server with `--data {data} --store {store}` in addition to its previous options"
                    ),
                    format!(
                        "share {data}/objects (logs, artifacts) with additional servers: set server.objects_dir"
                    ),
                    format!(
                        "never start a server on {data} without `--store` again: it would run the same jobs twice"
                    ),
                ]
            }
            Self::OutOfDatabase { data, store } => {
                let data = data.display();
                [
                    format!(
                        "copy to {data}: the directory server.objects_dir of the servers (logs, artifacts) \
                         as `objects`, and the files `admin-token` and `worker-token`"
                    ),
                    format!(
                        "start one server with `--data {data}` and without `--store`, and set its URL on all workers"
                    ),
                    format!(
                        "never start a server with `--store {store}` again: it would run the same jobs twice"
                    ),
                ]
            }
        };
        format!("copied and verified {rows} rows{again}\n\nNext:\n  {}", steps.join("\n  "))
    }
}

/// Comparison of a table of the source with that of the target.
#[derive(Debug, Serialize)]
struct TableRow {
    table: &'static str,
    same: bool,
    source: TableDigest,
    target: TableDigest,
}

#[derive(Debug, Serialize)]
struct TableDigest {
    rows: u64,
    sha256: String,
}

fn rows(tables: &[Verified]) -> Vec<TableRow> {
    let side = |digest: &store::copy::Digest| TableDigest { rows: digest.rows, sha256: digest.hex() };
    let row = |verified: &Verified| TableRow {
        table: verified.table,
        same: verified.is_same(),
        source: side(&verified.source),
        target: side(&verified.target),
    };
    tables.iter().map(row).collect()
}

/// Number of digits of a hash in narrow tables.
const SHORT_HASH: usize = 16;

impl Row for TableRow {
    const COLUMNS: &'static [Column] = &[
        column("TABLE", 16),
        column("SOURCE ROWS", 11),
        column("TARGET ROWS", 11),
        column("SHA-256", SHORT_HASH).optional(1),
        column("RESULT", 7),
        wide("SOURCE SHA-256", 64),
        wide("TARGET SHA-256", 64),
    ];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.table.into(),
            self.source.rows.to_string().into(),
            self.target.rows.to_string().into(),
            self.source.sha256.chars().take(SHORT_HASH).collect::<String>().into(),
            if self.same { Cell::new("same", Tone::Good) } else { Cell::new("differs", Tone::Bad) },
            self.source.sha256.as_str().into(),
            self.target.sha256.as_str().into(),
        ]
    }

    fn name(&self) -> String {
        self.table.to_owned()
    }
}

/// Shows the progress of a copy: the table, the rows and their rate.
struct CopyProgress {
    progress: progress::Progress,
    /// Current phase, its start time, and the number of rows that were done at its start.
    since: Option<(Phase, Instant, u64)>,
    told: Option<Instant>,
}

impl CopyProgress {
    fn new(out: Output) -> Self {
        Self { progress: progress::Progress::new(out), since: None, told: None }
    }

    fn tell(&mut self, progress: Progress) {
        let now = Instant::now();
        let same_phase = self.since.filter(|(phase, ..)| *phase == progress.phase);
        let (_, began, before) =
            *self.since.insert(same_phase.unwrap_or((progress.phase, now, progress.rows)));
        let moves = self.progress.is_redrawn();
        if !moves && same_phase.is_some() && self.told.is_some_and(|told| now - told < PROGRESS_INTERVAL) {
            return;
        }
        self.told = Some(now);
        self.progress.set_message(sentence(progress, progress.rows - before, now - began));
    }

    fn end(&self) {
        self.progress.clear();
    }
}

/// Formats the progress: `copying jobs_ended: 120000 of 1000000 rows, 25000 rows/s`.
fn sentence(progress: Progress, done: u64, within: Duration) -> String {
    let verb = match progress.phase {
        Phase::Copying => "copying",
        Phase::Verifying => "verifying",
    };
    let Progress { table, rows, of, .. } = progress;
    let rate = u128::from(done) * 1_000 / within.as_millis().max(1);
    let rate = if within < Duration::from_secs(1) { String::new() } else { format!(", {rate} rows/s") };
    format!("{verb} {table}: {rows} of {of} rows{rate}")
}

#[cfg(test)]
mod tests {
    use store::copy::Digest;

    use super::*;
    use crate::output::{Format, list};

    #[test]
    fn a_store_is_named_by_its_folder_its_file_or_its_address() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().display().to_string(), folder.path().join(FILE));
        assert_eq!(source("--from", &path).unwrap(), file);
        assert_eq!(source("--from", &format!("sqlite://{path}")).unwrap(), file);
        assert_eq!(
            source("--from", &format!("sqlite://{path}/other.db")).unwrap(),
            folder.path().join("other.db")
        );
        assert_eq!(source("--from", "other.db").unwrap(), Path::new("other.db"));
        assert!(source("--from", "mysql://x").unwrap_err().render(false).contains("unknown scheme `mysql`"));
    }

    fn verified(table: &'static str, target_rows: u64) -> Verified {
        let digest = |rows| Digest { rows, sha256: [0xab; 32] };
        Verified { table, source: digest(120_000), target: digest(target_rows) }
    }

    #[test]
    fn comparison_shows_rows_hash_and_result() {
        let look = OutputOptions {
            format: Format::Table,
            color: false,
            now: model::Timestamp::default(),
            width: None,
        };
        let rows = rows(&[verified("jobs_ended", 120_000), verified("keys", 119_999)]);
        insta::assert_snapshot!(list(&look, &rows).unwrap(), @r"
        TABLE       SOURCE ROWS  TARGET ROWS  SHA-256           RESULT
        jobs_ended  120000       120000       abababababababab  same
        keys        120000       119999       abababababababab  differs
        ");
    }

    #[test]
    fn next_steps_follow_a_copy() {
        let data = || PathBuf::from("/var/lib/belfry");
        let store = || "postgres://belfry@db.example/belfry".to_owned();
        let report = |found| Report { found, copied: 100, tables: Vec::new() };
        insta::assert_snapshot!(NextSteps::IntoDatabase { data: data(), store: store() }.after(&report(20)), @r"
        copied and verified 120 rows (20 already existed)

        Next:
          start the server with `--data /var/lib/belfry --store postgres://belfry@db.example/belfry` in addition to its previous options
          share /var/lib/belfry/objects (logs, artifacts) with additional servers: set server.objects_dir
          never start a server on /var/lib/belfry without `--store` again: it would run the same jobs twice
        ");
        insta::assert_snapshot!(NextSteps::OutOfDatabase { data: data(), store: store() }.after(&report(0)), @r"
        copied and verified 100 rows

        Next:
          copy to /var/lib/belfry: the directory server.objects_dir of the servers (logs, artifacts) as `objects`, and the files `admin-token` and `worker-token`
          start one server with `--data /var/lib/belfry` and without `--store`, and set its URL on all workers
          never start a server with `--store postgres://belfry@db.example/belfry` again: it would run the same jobs twice
        ");
    }

    #[test]
    fn a_copy_out_of_a_database_becomes_a_file_in_the_folder_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let file = |text: &str| target("--to", text).unwrap();
        assert_eq!(file(&path), folder.path().join(FILE));
        assert_eq!(file("new/belfry-1.2"), Path::new("new/belfry-1.2/belfry.db"));
        assert_eq!(file("new/other.db"), Path::new("new/other.db"));
        assert_eq!(file("sqlite://new/store"), Path::new("new/store"));
    }

    #[test]
    fn progress_names_the_table_the_rows_and_their_rate() {
        let progress = Progress { phase: Phase::Copying, table: "jobs_ended", rows: 120_000, of: 1_000_000 };
        insta::assert_snapshot!(sentence(progress, 100_000, Duration::from_secs(4)), @"copying jobs_ended: 120000 of 1000000 rows, 25000 rows/s");
    }

    #[test]
    fn copy_errors_have_hints() {
        let told = |error: CopyError| failure(error).render(false);
        let path = || PathBuf::from("/var/lib/belfry/belfry.db");
        let all = [
            told(CopyError::NoSource { path: path() }),
            told(CopyError::Source(StoreError::InUse { path: path() })),
            told(CopyError::NotEmpty { table: "jobs".into() }),
            told(CopyError::Differs { table: "jobs", tables: Vec::new() }),
        ];
        insta::assert_snapshot!(all.concat(), @r"
        error: there is no store at `/var/lib/belfry/belfry.db`
        help: pass the data directory of the server, or its `belfry.db`
        error: the source cannot be read
          because: the store at `/var/lib/belfry/belfry.db` is in use by another server
        help: stop the server that runs on it: its rows must not change
        error: the target is not empty: `jobs` has rows
        help: use an empty database; a copy never merges into existing data
        error: `jobs` differs between source and target
        help: another process wrote to the target: copy into a new, empty database
        ");
    }
}
