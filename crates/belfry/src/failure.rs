//! Why a command failed, and with which exit code.
//!
//! A failure is shown once, at the end, as `error: …` with its causes, the fields that are wrong,
//! and `help: …`. Exit codes are a contract: scripts branch on them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::api::{Code, FieldError};

use crate::output::text::clean;

/// How a command ends. Jobs that are waited for bring exit codes of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The server refused, or something went wrong.
    Failed,
    /// The command line, a file or a spec was wrong.
    Usage,
    /// There is no such thing.
    NotFound,
    /// No token, a wrong one, or one without the right.
    Refused,
    /// The server cannot be reached, or cannot be used now.
    Unreachable,
    /// A wait ran into its end.
    TimedOut,
    /// Ctrl-C ended a wait.
    Interrupted,
    /// The exit code of the job that was waited for.
    Job(u8),
}

impl Exit {
    /// The number that the process ends with.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::Unreachable => 5,
            Self::TimedOut => 124,
            Self::Interrupted => 130,
            Self::Job(code) => code,
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    /// `None` where everything was said already.
    error: Option<anyhow::Error>,
    help: Option<String>,
    fields: Vec<FieldError>,
    /// What stands at a field that is wrong, by its path: lines that point into it.
    excerpts: BTreeMap<String, Vec<String>>,
    request: Option<String>,
}

impl Failure {
    /// Something went wrong.
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit,
            error: Some(error.into()),
            help: None,
            fields: Vec::new(),
            excerpts: BTreeMap::new(),
            request: None,
        }
    }

    /// The same from a text.
    pub(crate) fn message(exit: Exit, message: impl Into<String>) -> Self {
        Self::new(exit, anyhow::Error::msg(message.into()))
    }

    /// The user wrote something that cannot be understood.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::message(Exit::Usage, message)
    }

    /// Ends with this code, without a word.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, error: None, help: None, fields: Vec::new(), excerpts: BTreeMap::new(), request: None }
    }

    /// With what the user can do next.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// With the fields that are wrong.
    #[must_use]
    pub(crate) fn fields(mut self, fields: Vec<FieldError>) -> Self {
        self.fields = fields;
        self
    }

    /// The fields that are wrong, to be told in another way.
    pub(crate) fn fields_mut(&mut self) -> &mut Vec<FieldError> {
        &mut self.fields
    }

    /// Shows these lines below the field at this path.
    pub(crate) fn excerpt(&mut self, path: &str, lines: Vec<String>) {
        self.excerpts.insert(path.to_owned(), lines);
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether a reader of our output went away; nobody is there to be told.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.error.as_ref().is_some_and(|error| {
            error.chain().any(|cause| {
                cause
                    .downcast_ref::<std::io::Error>()
                    .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
            })
        })
    }

    /// What is shown on standard error; empty for a silent one.
    pub(crate) fn render(&self, color: bool) -> String {
        let Some(error) = &self.error else { return String::new() };
        let (red, cyan, reset) = if color { ("\x1b[1;31m", "\x1b[36m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{red}error:{reset} {}\n", clean(&error.to_string()));
        for cause in causes(error) {
            let _ = writeln!(text, "  because: {}", clean(&cause));
        }
        for field in &self.fields {
            let path =
                if field.path.is_empty() { String::new() } else { format!("{}: ", clean(&field.path)) };
            let _ = writeln!(text, "  {path}{}", clean(&field.detail));
            for line in self.excerpts.get(&field.path).into_iter().flatten() {
                let _ = writeln!(text, "      {}", clean(line));
            }
        }
        if let Some(help) = &self.help {
            let _ = writeln!(text, "{cyan}help:{reset} {}", clean(help));
        }
        if let Some(request) = &self.request {
            let _ = writeln!(text, "  (request {} in the server's log)", clean(request));
        }
        text
    }
}

/// The causes below an error, without those that say again what was said.
fn causes(error: &anyhow::Error) -> Vec<String> {
    let mut said = error.to_string();
    let mut causes = Vec::new();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        if !said.contains(&text) {
            said.push_str(&text);
            causes.push(text);
        }
    }
    causes
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        let mut help = error.code().and_then(help_of).map(str::to_owned).or_else(|| error.help());
        let (exit, fields, request) = match &error {
            client::Error::Problem(problem) => {
                let request = problem.instance.clone().filter(|_| problem.status >= 500);
                (exit_of(problem.status), problem.errors.clone(), request)
            }
            client::Error::Unreachable { .. }
            | client::Error::Interrupted { .. }
            | client::Error::Timeout { .. }
            | client::Error::Protocol { .. } => (Exit::Unreachable, Vec::new(), None),
            client::Error::Address { .. } | client::Error::Token | client::Error::NoTask => {
                (Exit::Usage, Vec::new(), None)
            }
            _ => (Exit::Failed, Vec::new(), None),
        };
        let error = match error {
            // The list of the fields says more than the sentence about the first of them.
            client::Error::Problem(problem) if !problem.errors.is_empty() => {
                help = None;
                anyhow::Error::msg(problem.title.trim_end_matches('.').to_lowercase())
            }
            // What is between is how the HTTP library came to it.
            client::Error::Unreachable { ref source, .. } => {
                let root = anyhow::Error::msg(root_cause(source).to_string());
                root.context(error.to_string())
            }
            error => error.into(),
        };
        Self { exit, error: Some(error), help, fields, excerpts: BTreeMap::new(), request }
    }
}

/// What to do next in terms of commands, where the server's hint is in terms of the API.
fn help_of(code: &str) -> Option<&'static str> {
    Some(match Code::from_word(code)? {
        Code::Unauthenticated => crate::connect::TOKEN_HELP,
        Code::WorkerNotFound => "run `belfry worker list` to list all workers",
        Code::ServerNotFound => "run `belfry server list` to list all servers",
        Code::QueueNotFound => "create the queue with `belfry queue set`, or submit a job to it",
        Code::CheckpointNotFound => "a task saves a checkpoint with `belfry task checkpoint set`",
        Code::ArtifactNotFound => {
            "run `belfry artifact list` to list all artifacts; check the namespace (`-n`)"
        }
        Code::QueueInUse => {
            "wait until its jobs end, or cancel them; `belfry job list --queue QUEUE` lists them"
        }
        Code::ArtifactInUse => "run `belfry run wait RUN` to wait for the run, or `belfry run cancel RUN`",
        Code::ScheduleNotFound => {
            "run `belfry schedule list` to list all schedules; check the namespace (`-n`)"
        }
        Code::CalendarNotFound => {
            "run `belfry calendar list` to list all calendars; check the namespace (`-n`)"
        }
        Code::BackfillNotFound => "run `belfry backfill list` to list all backfills that are kept",
        Code::WorkflowNotFound => {
            "run `belfry workflow list` to list all workflows; check the namespace (`-n`)"
        }
        Code::RunNotFound => "run `belfry run list` to list all runs that are kept",
        Code::StepNotFound => "run `belfry run steps RUN` to list all steps",
        Code::RunEnded => "run `belfry run retry RUN` to run it again, once it has ended",
        Code::RunNotEnded => "run `belfry run wait RUN` to wait for its end, or `belfry run cancel RUN`",
        Code::StepEnded => {
            "run `belfry run retry RUN --from STEP` to run the step again, once the run has ended"
        }
        Code::ApprovalNotPending => "run `belfry run why RUN` for what the step waits for",
        Code::RunsWaiting => {
            "cancel these runs, or wait until they have started; `belfry run list --status waiting` lists them"
        }
        Code::ScheduleExists => "run `belfry apply -f FILE` to change it, or choose another name",
        Code::JobEnded => "run `belfry job retry JOB` to run the job again",
        Code::ScheduleRunLimit => "wait until these runs end, cancel them, or use `--overlap allow_all`",
        _ => return None,
    })
}

fn root_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error)
}

fn exit_of(status: u16) -> Exit {
    match status {
        400 | 413 | 415 | 422 => Exit::Usage,
        401 | 403 => Exit::Refused,
        404 => Exit::NotFound,
        429 | 502..=504 => Exit::Unreachable,
        _ => Exit::Failed,
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failed, error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failed, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16) -> client::Error {
        client::Error::Problem(Box::new(model::api::Problem {
            kind: "/docs#x".into(),
            title: "invalid spec".into(),
            status,
            detail: "2 fields are wrong".into(),
            code: "invalid_spec".into(),
            hint: Some("correct them, and try again".into()),
            errors: vec![FieldError {
                pointer: "/priority".into(),
                path: "priority".into(),
                detail: "`101` is out of range\u{1b}[31m".into(),
            }],
            instance: Some("req-7".into()),
            retry_after: None,
        }))
    }

    #[test]
    fn a_refusal_is_shown_with_its_fields_and_without_control_characters() {
        insta::assert_snapshot!(Failure::from(problem(422)).render(false), @r"
        error: invalid spec
          priority: `101` is out of range\x1b[31m
        ");
    }

    #[test]
    fn an_error_of_the_server_names_the_request() {
        assert!(Failure::from(problem(500)).render(false).contains("(request req-7 in the server's log)"));
    }

    #[test]
    fn causes_are_told_once() {
        let error = anyhow::Error::from(std::io::Error::other("disk full")).context("cannot write `x`");
        insta::assert_snapshot!(Failure::new(Exit::Failed, error).render(false), @r"
        error: cannot write `x`
          because: disk full
        ");
    }

    /// The hint of the server speaks of headers.
    #[test]
    fn a_refusal_without_a_token_says_how_to_name_one() {
        let client::Error::Problem(mut problem) = problem(401) else { return };
        (problem.code, problem.errors) = ("unauthenticated".into(), Vec::new());
        let shown = Failure::from(client::Error::Problem(problem)).render(false);
        assert!(shown.contains("--token-file FILE"), "{shown}");
    }

    /// The contract of the command line.
    #[test]
    fn every_kind_of_refusal_has_its_exit_code() {
        let code = |status| Failure::from(problem(status)).exit().code();
        let codes: Vec<_> = [401, 403, 404, 409, 412, 422, 400, 429, 500, 503, 507].map(code).into();
        assert_eq!(codes, [4, 4, 3, 1, 1, 2, 2, 5, 1, 5, 1]);
        assert_eq!(Failure::from(client::Error::Token).exit().code(), 2);
        assert_eq!(Exit::TimedOut.code(), 124);
    }

    #[test]
    fn a_reader_that_went_away_is_recognised_below_other_errors() {
        let pipe =
            anyhow::Error::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)).context("writing");
        assert!(Failure::from(pipe).is_broken_pipe());
        assert!(!Failure::usage("x").is_broken_pipe());
    }
}
