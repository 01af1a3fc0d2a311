//! Implementation of the commands, one module per command or group of commands.
//!
//! [`run`] dispatches a parsed command line. A module connects through [`Context::connect`], calls the
//! client, and writes through [`Output`]. Commands that talk to a server run on a single-threaded runtime and
//! end at Ctrl-C with exit code 130; `serve` has its own runtime and signal handling. Helpers that several
//! modules share are here: for lists ([`read_items`], [`note_truncated`]) and for several objects
//! ([`for_each_item`]).
//!
//! # Invariants
//! - Data goes to standard output; notes, warnings, progress and errors go to standard error.
//! - A failure is returned, not printed: `main` renders it once, with its help, and exits with its code. The
//!   exception is [`for_each_item`], which prints the failure of each object and continues.
//! - With several objects, the exit code is that of the first failure.

mod accounts;
mod alerts;
mod apply;
mod artifacts;
mod audit;
mod auth;
mod calendars;
mod completion;
mod config;
mod contexts;
mod events;
mod failures;
mod forecast;
mod job_name;
mod jobs;
mod last;
mod login;
mod logs;
mod monitors;
mod multiple;
mod namespaces;
mod queues;
mod roles;
mod runs;
mod schedules;
mod secrets;
pub(crate) mod serve;
mod servers;
mod services;
mod statistics;
mod store;
mod submit;
mod task;
mod tls;
mod tokens;
mod top;
mod wait;
mod watch;
mod workers;
mod workflows;

use std::cell::RefCell;
use std::future::Future;
use std::io::{IsTerminal as _, Write as _};

use client::Client;
use futures::stream::TryStreamExt as _;

use crate::args::job::ListLimit;
use crate::args::schedule::ScheduleCommand;
use crate::args::serve::{ServerRunArgs, WorkerRunArgs};
use crate::args::{Cli, Command, Global};
use crate::failure::{Exit, Failure};
use crate::output::{Format, Output, value};
use crate::settings::{Settings, Sources};

/// Context of a command: global options and output.
pub(crate) struct Context {
    /// Global options of the command line.
    pub(crate) global: Global,
    /// Output of the command.
    pub(crate) out: Output,
    /// Note for a user who interrupts the command now.
    interrupted: RefCell<Option<String>>,
}

impl Context {
    /// Sets the note for a user who interrupts the command from now on: what continues, and how to see or cancel it.
    pub(crate) fn if_interrupted(&self, note: impl Into<String>) {
        *self.interrupted.borrow_mut() = Some(note.into());
    }

    /// Returns the sources of settings for a command that talks to a server.
    pub(crate) fn sources(&self) -> Result<Sources, Failure> {
        let mut sources = self.sources_without_context();
        // A context that no command would use must not fail the command.
        if self.global.context.is_some() || !sources.names_server() {
            sources.context = crate::contexts::select(&sources, self.global.context.as_deref())?;
        }
        Ok(sources)
    }

    /// Returns the sources of settings of the user, without a context.
    fn sources_without_context(&self) -> Sources {
        let sources = Sources::environment();
        let file = sources.user_file();
        let mut sources = sources.with_file(self.global.config.clone(), file.as_slice());
        sources.flag("client.url", "--url", self.global.url.as_ref());
        sources.flag(
            "client.token_file",
            "--token-file",
            self.global.token_file.as_ref().map(|p| p.display()),
        );
        sources.flag("client.ca_file", "--ca-file", self.global.ca_file.as_ref().map(|p| p.display()));
        sources.flag("client.namespace", "--namespace", self.global.namespace.as_ref());
        sources.flag("client.retry_for", "--retry-for", self.global.retry_for.as_ref());
        sources
    }

    /// Loads the settings for a command that talks to a server.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        Settings::load(&self.sources()?)
    }

    /// Creates a client from the settings, and returns the selected namespace with it.
    pub(crate) fn connect(&self) -> Result<(Client, Namespace), Failure> {
        let sources = self.sources()?;
        let settings = Settings::load(&sources)?;
        Ok((crate::connect::connect(&settings, &sources, self.out)?, self.namespace(&settings)))
    }

    /// Returns the namespace from the settings.
    fn namespace(&self, settings: &Settings) -> Namespace {
        let name = settings.text("client.namespace").unwrap_or_else(|| model::spec::DEFAULT.to_owned());
        Namespace { name, by_flag: self.global.namespace.is_some() }
    }
}

/// Selected namespace: a name, or `*` for all namespaces.
pub(crate) struct Namespace {
    name: String,
    by_flag: bool,
}

impl Namespace {
    /// Returns the filter for lists; `None` for all namespaces.
    pub(crate) fn filter(&self) -> Option<String> {
        (self.name != "*").then(|| self.name.clone())
    }

    /// Returns the namespace of a single object. Fails for `*`.
    pub(crate) fn one(&self) -> Result<&str, Failure> {
        match self.name.as_str() {
            "*" => Err(Failure::usage("namespace `*` is for lists only: expected the name of one namespace")),
            name => Ok(name),
        }
    }

    /// Returns the text of the selection: the name of a namespace, or `*`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the namespace comes from `--namespace`, not from the environment or a file.
    pub(crate) fn by_flag(&self) -> bool {
        self.by_flag
    }
}

/// Runs a parsed command line.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    let Cli { global, command } = cli;
    let out = Output::new(global.output, global.no_color, global.quiet);
    let context = Context { global, out, interrupted: RefCell::default() };
    match command {
        Command::Dev(args) => serve::dev(&context, args),
        Command::Server(args) => match args.command {
            Some(_) if args.run != ServerRunArgs::default() => {
                Err(Failure::usage("options that run a server cannot be combined with a subcommand")
                    .help("use `--url` to select the server that the subcommand talks to"))
            }
            Some(command) => block_on(&context, servers::run(&context, command)),
            None => serve::server(&context, &args.run),
        },
        Command::Forecast(args) => block_on(&context, forecast::run(&context, *args)),
        Command::Worker(args) => match args.command {
            // Not `args_conflicts_with_subcommands` of clap: it would also reject global options before a subcommand.
            Some(_) if args.run != WorkerRunArgs::default() => {
                Err(Failure::usage("options that run a worker cannot be combined with a subcommand")
                    .help("use `--url` to select the server that the subcommand talks to"))
            }
            Some(command) => block_on(&context, workers::run(&context, command)),
            None => serve::worker(&context, &args.run),
        },
        Command::Submit(args) => block_on(&context, submit::run(&context, *args)),
        Command::Logs(args) => block_on(&context, logs::run(&context, args)),
        Command::Why(args) => block_on(&context, jobs::why(&context, args.id)),
        Command::Job(command) => block_on(&context, jobs::run(&context, *command)),
        Command::Schedule(command) => match *command {
            // A preview of timing options needs no server.
            ScheduleCommand::Next(args) if args.is_draft() => schedules::next_of_draft(&context, &args),
            command => block_on(&context, schedules::run(&context, command)),
        },
        Command::Backfill(command) => block_on(&context, schedules::run_backfills(&context, command)),
        Command::Calendar(command) => block_on(&context, calendars::run(&context, command)),
        Command::Workflow(command) => block_on(&context, workflows::run(&context, command)),
        Command::Run(command) => block_on(&context, runs::run(&context, *command)),
        Command::Service(command) => block_on(&context, services::run(&context, *command)),
        Command::Apply(args) => block_on(&context, apply::run(&context, args)),
        Command::Diff(args) => block_on(&context, apply::diff(&context, args)),
        Command::Namespace(command) => block_on(&context, namespaces::run(&context, command)),
        Command::Queue(command) => block_on(&context, queues::run(&context, command)),
        Command::Artifact(command) => block_on(&context, artifacts::run(&context, command)),
        Command::Task(command) => block_on(&context, task::run(&context, command)),
        Command::Events(args) => block_on(&context, events::run(&context, args)),
        Command::Top(args) => block_on(&context, top::run(&context, args)),
        Command::Stats(args) => block_on(&context, statistics::run(&context, args)),
        Command::Failure(command) => block_on(&context, failures::run(&context, command)),
        Command::Alert(command) => block_on(&context, alerts::run(&context, command)),
        Command::Monitor(command) => block_on(&context, monitors::run(&context, command)),
        Command::Ping(args) => block_on(&context, monitors::ping(&context, args)),
        Command::Secret(command) => block_on(&context, secrets::run(&context, command)),
        Command::Login(args) => block_on(&context, login::log_in(&context, args)),
        Command::Logout => block_on(&context, login::log_out(&context)),
        Command::Account(command) => block_on(&context, accounts::run(&context, command)),
        Command::Role(command) => block_on(&context, roles::run(&context, command)),
        Command::Token(command) => block_on(&context, tokens::run(&context, command)),
        Command::Auth(command) => block_on(&context, auth::run(&context, command)),
        Command::Audit(command) => block_on(&context, audit::run(&context, command)),
        Command::Store(command) => block_on(&context, store::run(&context, command)),
        Command::Tls(command) => tls::run(&context, command),
        Command::Context(command) => contexts::run(&context, command),
        Command::Config(command) => config::run(&context, command),
        Command::Completion { shell } => out.data(completion::script(shell)),
        Command::Version { server } => block_on(&context, version(&context, server)),
    }
}

/// Runs a command that talks to a server. Ctrl-C ends it with [`Exit::Interrupted`], and with the note that the command
/// has set.
fn block_on(context: &Context, command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime
        .block_on(async {
            tokio::select! {
                result = command => result,
                _ = tokio::signal::ctrl_c() => Err(Failure::silent(Exit::Interrupted)),
            }
        })
        .inspect_err(|failure| {
            if let (Exit::Interrupted, Some(note)) = (failure.exit(), context.interrupted.take()) {
                // The terminal has printed `^C` in this line.
                let line = if std::io::stderr().is_terminal() { "\n" } else { "" };
                context.out.note(format!("{line}{note}"));
            }
        })
}

async fn version(context: &Context, server: bool) -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    let asked = if server {
        let (client, _) = context.connect()?;
        let version = client.server_version().await?.version;
        Some((crate::output::text::escape(&version).to_string(), client.url().to_owned()))
    } else {
        None
    };
    let look = &context.out.look;
    if matches!(look.format, Format::Json | Format::Yaml) {
        let server = asked.map(|(version, url)| serde_json::json!({"version": version, "url": url}));
        let shown = serde_json::json!({"name": "belfry", "version": own, "server": server});
        return context.out.data(value(look, &shown)?);
    }
    let mut text = format!("belfry {own}\n");
    if let Some((version, url)) = asked {
        text.push_str(&format!("server {version} at {url}\n"));
    }
    context.out.data(text)
}

/// Asks the user to confirm an action that cannot be undone, such as "remove worker w1". `otherwise` says what a "no"
/// means, such as "no worker was removed".
fn confirm(what: &str, otherwise: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "cannot {what} without a confirmation: standard input is not a terminal"
        ))
        .help("use `--yes` to skip the confirmation"));
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{what}? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::message(Exit::Failed, format!("not confirmed: {otherwise}"))),
    }
}

/// Reads items up to the limit of `many`, and returns whether there are more.
async fn read_items<T>(items: client::Items<T>, many: &ListLimit) -> Result<(Vec<T>, bool), Failure> {
    let wanted = if many.all { usize::MAX } else { many.limit };
    let mut items = items;
    let mut taken = Vec::new();
    while let Some(item) = items.try_next().await? {
        if taken.len() == wanted {
            return Ok((taken, true));
        }
        taken.push(item);
    }
    Ok((taken, false))
}

/// Writes a note if the list was cut at its limit.
fn note_truncated(out: Output, more: bool, many: &ListLimit) {
    if more {
        out.note(format!(
            "the list ends after {} items: use `--limit N` or `--all` to show more",
            many.limit
        ));
    }
}

/// Calls `action` for each item and returns the results. With several items, each failure is written to
/// standard error and the other items are still processed; the returned failure then only carries the first
/// exit code.
async fn for_each_item<I, T, F>(
    out: Output,
    items: Vec<I>,
    action: impl Fn(I) -> F,
) -> (Vec<T>, Result<(), Failure>)
where
    F: Future<Output = Result<T, Failure>>,
{
    let alone = items.len() == 1;
    let (mut done, mut first) = (Vec::new(), Ok(()));
    for item in items {
        match action(item).await {
            Ok(result) => done.push(result),
            Err(failure) if alone => first = Err(failure),
            Err(failure) => {
                // Also with `--quiet`: these are errors.
                let shown = out.error_data(failure.render(out.color_err));
                if first.is_ok() {
                    first = shown.and(Err(Failure::silent(failure.exit())));
                }
            }
        }
    }
    (done, first)
}
