//! `belfry store …`: about the store itself, while no server runs on it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use server::config::{PostgresConfig, StoreConfig};
use store::copy::{CopyError, Options, Phase, Progress, Report, Verified, copy};
use store::postgres::{self, PostgresStore};
use store::sqlite::{self, SqliteStore};
use store::{Store as _, StoreError};

use super::Context;
use super::serve::system_sources;
use crate::args::serve::LogArgs;
use crate::args::store::{CopyArgs, RestoredArgs, StoreCommand};
use crate::failure::{Exit, Failure};
use crate::output::table::{Cell, Column, Row, Tone, column, wide};
use crate::output::{Look, Out, progress};
use crate::settings::Settings;

/// What the database of a data directory is called.
const FILE: &str = "belfry.db";
/// How often a line tells how far the copy is, where the line cannot move.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub(super) async fn run(context: &Context, command: StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Copy(args) => run_copy(context, &args).await,
        StoreCommand::Restored(args) => run_restored(context, &args).await,
    }
}

async fn run_restored(context: &Context, args: &RestoredArgs) -> Result<(), Failure> {
    let is_database = args.store.starts_with("postgres://") || args.store.starts_with("postgresql://");
    let noted = if is_database {
        let database = database(context, "STORE", &args.store, args.password_file.as_ref())?;
        let options = options(&database);
        async { PostgresStore::open(&database.url, options).await?.note_restored().await }.await
    } else {
        let path = source("STORE", &args.store)?;
        if !path.is_file() {
            return Err(failure(CopyError::NoSource { path }));
        }
        async { SqliteStore::open(&path, sqlite::Options::default())?.note_restored().await }.await
    };
    noted.map_err(|error| match error {
        StoreError::Unavailable { .. } => Failure::new(Exit::Unreachable, error),
        StoreError::InUse { .. } => Failure::new(Exit::Failed, error)
            .help("stop the server that runs on it, bring the backup back, and say this again"),
        _ => Failure::new(Exit::Failed, error),
    })?;
    context.out.note(format!(
        "noted: {} is an earlier state. Now start the servers: the first hears every worker before it starts \
         anything that is not at_least_once",
        args.store
    ));
    Ok(())
}

async fn run_copy(context: &Context, args: &CopyArgs) -> Result<(), Failure> {
    let from = source("--from", &args.from)?;
    let database = database(context, "--to", &args.to, args.password_file.as_ref())?;
    let options = Options { target: options(&database), ..Options::default() };
    let mut teller = Teller::new(context.out);
    let copied = copy(&from, &database.url, options, &mut |progress| teller.tell(progress)).await;
    teller.end();
    match copied {
        Ok(report) => {
            context.out.list(&rows(&report.tables), "tables")?;
            context.out.note(next_steps(&report, args, &from));
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

/// The file that is meant by an argument: of a folder, the one that a server keeps there.
fn source(argument: &'static str, text: &str) -> Result<PathBuf, Failure> {
    let path = match text.split_once("://") {
        Some(("sqlite", path)) => Path::new(path),
        Some((scheme, _)) => {
            return Err(Failure::usage(format!("`{argument}` has the unknown scheme `{scheme}`"))
                .help("expected a data directory, a file, or `sqlite:///PATH`"));
        }
        None => Path::new(text),
    };
    Ok(if path.is_dir() { path.join(FILE) } else { path.to_owned() })
}

/// The database that is meant by an argument, found as by a server.
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
        StoreConfig::Embedded => Err(Failure::usage(format!("`{argument}` is no address of a database"))
            .help("expected `postgres://USER@HOST:PORT/DATABASE`")),
    }
}

/// Opened as by a server.
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
        CopyError::NoSource { .. } => Exit::NotFound,
        CopyError::Target(StoreError::Unavailable { .. }) => Exit::Unreachable,
        _ => Exit::Failed,
    };
    let help = error.help();
    Failure::new(exit, error).help(help)
}

fn next_steps(report: &Report, args: &CopyArgs, from: &Path) -> String {
    let again = match report.found {
        0 => String::new(),
        found => format!(" ({found} were there already)"),
    };
    let data = from.parent().filter(|data| !data.as_os_str().is_empty()).unwrap_or(Path::new("."));
    format!(
        "copied and verified {2} rows{again}\n\n\
         Next:\n\
         \x20 start the server as before, with `--data {0} --store {1}` beside what you said until now\n\
         \x20 share {0}/objects (logs, artifacts) with the servers that you add: server.objects_dir\n\
         \x20 never start a server without `--store` on {0} again: it would do the same work twice",
        data.display(),
        args.to,
        report.found + report.copied,
    )
}

/// A table that was compared, as it is shown.
#[derive(Debug, Serialize)]
struct TableRow {
    table: &'static str,
    same: bool,
    source: Side,
    target: Side,
}

#[derive(Debug, Serialize)]
struct Side {
    rows: u64,
    sha256: String,
}

fn rows(tables: &[Verified]) -> Vec<TableRow> {
    let side = |digest: &store::copy::Digest| Side { rows: digest.rows, sha256: digest.hex() };
    let row = |verified: &Verified| TableRow {
        table: verified.table,
        same: verified.is_same(),
        source: side(&verified.source),
        target: side(&verified.target),
    };
    tables.iter().map(row).collect()
}

/// So much of a hash is shown where there is little room.
const SHORT_HASH: usize = 16;

impl Row for TableRow {
    const COLUMNS: &'static [Column] = &[
        column("TABLE", 16),
        column("ROWS", 10),
        column("COPIED", 10),
        column("SHA-256", SHORT_HASH),
        column("COPY", 7),
        wide("OF THE SOURCE", 64),
        wide("OF THE COPY", 64),
    ];

    fn cells(&self, _look: &Look) -> Vec<Cell> {
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

/// Tells how far a copy is.
struct Teller {
    progress: progress::Progress,
    /// When the phase began, and how many rows were done by then.
    since: Option<(Phase, Instant, u64)>,
    told: Option<Instant>,
}

impl Teller {
    fn new(out: Out) -> Self {
        Self { progress: progress::Progress::new(out), since: None, told: None }
    }

    fn tell(&mut self, progress: Progress) {
        let now = Instant::now();
        let same_phase = self.since.filter(|(phase, ..)| *phase == progress.phase);
        let (_, began, before) =
            *self.since.insert(same_phase.unwrap_or((progress.phase, now, progress.rows)));
        let moves = self.progress.moves();
        if !moves && same_phase.is_some() && self.told.is_some_and(|told| now - told < LINE_EVERY) {
            return;
        }
        self.told = Some(now);
        self.progress.say(sentence(progress, progress.rows - before, now - began));
    }

    fn end(&self) {
        self.progress.clear();
    }
}

/// `copying jobs_ended: 120000 of 1000000 rows, 25000 rows/s`.
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
    fn each_table_is_told_with_its_rows_its_hash_and_whether_it_is_the_same() {
        let look = Look { format: Format::Table, color: false, now: model::Timestamp::default() };
        let rows = rows(&[verified("jobs_ended", 120_000), verified("keys", 119_999)]);
        insta::assert_snapshot!(list(&look, &rows).unwrap(), @r"
        TABLE       ROWS    COPIED  SHA-256           COPY
        jobs_ended  120000  120000  abababababababab  same
        keys        120000  119999  abababababababab  differs
        ");
    }

    #[test]
    fn what_to_do_next_is_told_at_the_end() {
        let args = CopyArgs {
            from: "/var/lib/belfry".into(),
            to: "postgres://belfry@db.example/belfry".into(),
            password_file: None,
        };
        let report = Report { found: 20, copied: 100, tables: Vec::new() };
        insta::assert_snapshot!(next_steps(&report, &args, Path::new("/var/lib/belfry/belfry.db")), @r"
        copied and verified 120 rows (20 were there already)

        Next:
          start the server as before, with `--data /var/lib/belfry --store postgres://belfry@db.example/belfry` beside what you said until now
          share /var/lib/belfry/objects (logs, artifacts) with the servers that you add: server.objects_dir
          never start a server without `--store` on /var/lib/belfry again: it would do the same work twice
        ");
    }

    #[test]
    fn progress_names_the_table_the_rows_and_their_rate() {
        let progress = Progress { phase: Phase::Copying, table: "jobs_ended", rows: 120_000, of: 1_000_000 };
        insta::assert_snapshot!(sentence(progress, 100_000, Duration::from_secs(4)), @"copying jobs_ended: 120000 of 1000000 rows, 25000 rows/s");
    }

    #[test]
    fn what_stands_in_the_way_is_told_with_what_to_do() {
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
        help: name the data folder of the server that ran, or its `belfry.db`
        error: the source cannot be read
          because: the store at `/var/lib/belfry/belfry.db` is in use by another server
        help: stop the server that runs on it: its rows must not change
        error: the target is not empty: `jobs` has rows
        help: name an empty database; nothing is ever merged into one that is not
        error: `jobs` is not the same in the target as in the source
        help: somebody else wrote into the target: copy into a new, empty database
        ");
    }
}
