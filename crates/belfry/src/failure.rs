//! Failures of commands: rendering and exit codes.
//!
//! A failure is rendered once, at the end of the command: `error: …`, its causes, the invalid fields, and `help: …`.
//! Hints of the server refer to the API; [`help_of`] replaces them with hints that name commands.
//!
//! Exit codes are a contract with scripts: 0 success, 1 failed, 2 usage, 3 not found, 4 access denied, 5 server
//! unreachable or unavailable, 124 timeout, 130 interrupted. A command that waits for a job ends with the exit code of
//! the job.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::api::{Code, FieldError};

use crate::output::text::escape;

/// Reason for which a command fails; determines its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The request was rejected, or another error occurred: 1.
    Failed,
    /// The command line, a file or a spec is invalid: 2.
    Usage,
    /// The object does not exist: 3.
    NotFound,
    /// The token is missing, invalid, or lacks the permission: 4.
    AccessDenied,
    /// The server is unreachable or temporarily unavailable: 5.
    Unreachable,
    /// A wait timed out: 124.
    TimedOut,
    /// Ctrl-C interrupted the command: 130.
    Interrupted,
    /// The job that the command waited for failed with this exit code.
    Job(u8),
}

impl Exit {
    /// Returns the exit code of the process.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::AccessDenied => 4,
            Self::Unreachable => 5,
            Self::TimedOut => 124,
            Self::Interrupted => 130,
            Self::Job(code) => code,
        }
    }
}

/// Failure of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    /// `None` if the error was already written.
    error: Option<anyhow::Error>,
    help: Option<String>,
    fields: Vec<FieldError>,
    /// Lines that are shown below an invalid field, by its path; they point at the error.
    excerpts: BTreeMap<String, Vec<String>>,
    request: Option<String>,
}

impl Failure {
    /// Creates a failure from an error; its chain of causes is rendered.
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

    /// Creates a failure from a message.
    pub(crate) fn message(exit: Exit, message: impl Into<String>) -> Self {
        Self::new(exit, anyhow::Error::msg(message.into()))
    }

    /// Creates a failure about invalid input, with [`Exit::Usage`].
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::message(Exit::Usage, message)
    }

    /// Creates a failure that renders nothing.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, error: None, help: None, fields: Vec::new(), excerpts: BTreeMap::new(), request: None }
    }

    /// Adds a hint: what the user can do next.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds the invalid fields.
    #[must_use]
    pub(crate) fn fields(mut self, fields: Vec<FieldError>) -> Self {
        self.fields = fields;
        self
    }

    /// Returns the invalid fields, so that callers can change their paths.
    pub(crate) fn fields_mut(&mut self) -> &mut Vec<FieldError> {
        &mut self.fields
    }

    /// Adds lines below the field at this path.
    pub(crate) fn excerpt(&mut self, path: &str, lines: Vec<String>) {
        self.excerpts.insert(path.to_owned(), lines);
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether the error is a closed pipe of standard output; then nothing is rendered.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.error.as_ref().is_some_and(|error| {
            error.chain().any(|cause| {
                cause
                    .downcast_ref::<std::io::Error>()
                    .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
            })
        })
    }

    /// Renders the failure for standard error; empty for a silent failure.
    pub(crate) fn render(&self, color: bool) -> String {
        let Some(error) = &self.error else { return String::new() };
        let (red, cyan, reset) = if color { ("\x1b[1;31m", "\x1b[36m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{red}error:{reset} {}\n", escape(&error.to_string()));
        for cause in causes(error) {
            let _ = writeln!(text, "  because: {}", escape(&cause));
        }
        for field in &self.fields {
            let path =
                if field.path.is_empty() { String::new() } else { format!("{}: ", escape(&field.path)) };
            let _ = writeln!(text, "  {path}{}", escape(&field.detail));
            for line in self.excerpts.get(&field.path).into_iter().flatten() {
                let _ = writeln!(text, "      {}", escape(line));
            }
        }
        if let Some(help) = &self.help {
            let _ = writeln!(text, "{cyan}help:{reset} {}", escape(help));
        }
        if let Some(request) = &self.request {
            let _ = writeln!(text, "  (request {} in the server's log)", escape(request));
        }
        text
    }
}

/// Returns the causes of an error, without those whose text was already shown.
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
            client::Error::Address { .. }
            | client::Error::Authority { .. }
            | client::Error::Token
            | client::Error::NoTask => (Exit::Usage, Vec::new(), None),
            _ => (Exit::Failed, Vec::new(), None),
        };
        let error = match error {
            // The list of fields contains more than the detail, which is about the first field.
            client::Error::Problem(problem) if !problem.errors.is_empty() => {
                help = None;
                anyhow::Error::msg(problem.title.trim_end_matches('.').to_lowercase())
            }
            // Intermediate causes are details of the HTTP library.
            client::Error::Unreachable { ref source, .. } => {
                let root = anyhow::Error::msg(root_cause(source).to_string());
                root.context(error.to_string())
            }
            error => error.into(),
        };
        Self { exit, error: Some(error), help, fields, excerpts: BTreeMap::new(), request }
    }
}

/// Returns a hint that names commands, for codes whose server hint refers to the API.
fn help_of(code: &str) -> Option<&'static str> {
    Some(match Code::from_word(code)? {
        Code::Unauthenticated => crate::connect::TOKEN_HELP,
        Code::Forbidden => {
            "run `belfry auth whoami` to show your rights, and ask an administrator for a role (`belfry role bind`)"
        }
        Code::AccountNotFound => "run `belfry account list` to list all accounts",
        Code::AccountExists => "choose another name, or change the account with `belfry account update`",
        Code::RoleNotFound => "run `belfry role list` to list all roles",
        Code::AuditEntryNotFound => {
            "run `belfry audit list` to list the entries; an entry is deleted when its retention ends"
        }
        Code::SubmitRate => {
            "wait, or ask an administrator to raise the limit (`belfry account update ACCOUNT --submit-rate JOBS`)"
        }
        Code::RoleInUse => {
            "run `belfry role bindings --role ROLE`, then `belfry role unbind`; `belfry token revoke` for tokens"
        }
        Code::BindingNotFound => {
            "run `belfry role bindings` to list all role bindings; check the namespace (`-n`)"
        }
        Code::TokenNotFound => {
            "run `belfry token list --all`; a token is deleted 30 days after it expired or was revoked"
        }
        Code::LastAdmin => {
            "first run `belfry token create --kind admin`, or `belfry role bind admin ACCOUNT -n '*'` for an account \
             that has a token without limits"
        }
        Code::WorkerNotFound => "run `belfry worker list` to list all workers",
        Code::MemberNotFound => "run `belfry server members` to list all members of the cluster",
        Code::ServerNotFound => "run `belfry server list` to list all servers",
        Code::QueueNotFound => "create the queue with `belfry queue set`, or submit a job to it",
        Code::CheckpointNotFound => "a task saves a checkpoint with `belfry task checkpoint set`",
        Code::ArtifactNotFound => {
            "run `belfry artifact list` to list all artifacts; check the namespace (`-n`)"
        }
        Code::QueueInUse => {
            "wait until its jobs end, or cancel them; run `belfry job list --queue QUEUE` to list them"
        }
        Code::ArtifactInUse => "run `belfry run wait RUN` to wait for the run, or `belfry run cancel RUN`",
        Code::ScheduleNotFound => {
            "run `belfry schedule list` to list all schedules; check the namespace (`-n`)"
        }
        Code::CalendarNotFound => {
            "run `belfry calendar list` to list all calendars; check the namespace (`-n`)"
        }
        Code::BackfillNotFound => "run `belfry backfill list` to list all backfills",
        Code::WorkflowNotFound => {
            "run `belfry workflow list` to list all workflows; check the namespace (`-n`)"
        }
        Code::ServiceNotFound => "run `belfry service list` to list all services; check the namespace (`-n`)",
        Code::ServiceDeleting => {
            "wait until its replicas have stopped: run `belfry service replicas SERVICE`"
        }
        Code::RevisionUnavailable => {
            "run `belfry service revisions SERVICE` to list the revisions that are kept"
        }
        Code::RolloutStatus => "run `belfry service rollout status SERVICE`",
        Code::JobOfService => {
            "change the service, or run `belfry service restart SERVICE`; to restart one replica, cancel its job"
        }
        Code::RunNotFound => "run `belfry run list` to list all runs",
        Code::StepNotFound => "run `belfry run steps RUN` to list all steps",
        Code::RunEnded => "run `belfry run retry RUN` to run it again, once it has ended",
        Code::RunNotEnded => "run `belfry run wait RUN` to wait for its end, or `belfry run cancel RUN`",
        Code::StepEnded => {
            "run `belfry run retry RUN --from STEP` to run the step again, once the run has ended"
        }
        Code::ApprovalNotPending => "run `belfry run why RUN` for the waiting reasons of the step",
        Code::RunsWaiting => {
            "cancel these runs, or wait until they start; run `belfry run list --status waiting` to list them"
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
        401 | 403 => Exit::AccessDenied,
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
    fn causes_are_shown_once() {
        let error = anyhow::Error::from(std::io::Error::other("disk full")).context("cannot write `x`");
        insta::assert_snapshot!(Failure::new(Exit::Failed, error).render(false), @r"
        error: cannot write `x`
          because: disk full
        ");
    }

    /// The server's hint is about HTTP headers, so the command replaces it.
    #[test]
    fn a_refusal_without_a_token_says_how_to_set_one() {
        let client::Error::Problem(mut problem) = problem(401) else { return };
        (problem.code, problem.errors) = ("unauthenticated".into(), Vec::new());
        let shown = Failure::from(client::Error::Problem(problem)).render(false);
        assert!(shown.contains("--token-file FILE"), "{shown}");
    }

    /// The server's hints name routes, so the command replaces them.
    #[test]
    fn refusals_of_access_control_name_commands() {
        for code in [
            Code::Forbidden,
            Code::AccountNotFound,
            Code::AccountExists,
            Code::RoleNotFound,
            Code::AuditEntryNotFound,
            Code::SubmitRate,
            Code::RoleInUse,
            Code::BindingNotFound,
            Code::TokenNotFound,
            Code::LastAdmin,
        ] {
            let help = help_of(code.as_str()).unwrap_or_else(|| panic!("{}", code.as_str()));
            assert!(help.contains("`belfry ") && !help.contains("/api/"), "{help}");
        }
    }

    /// Exit codes are a contract with scripts.
    #[test]
    fn every_kind_of_refusal_has_its_exit_code() {
        let code = |status| Failure::from(problem(status)).exit().code();
        let codes: Vec<_> = [401, 403, 404, 409, 412, 422, 400, 429, 500, 503, 507].map(code).into();
        assert_eq!(codes, [4, 4, 3, 1, 1, 2, 2, 5, 1, 5, 1]);
        assert_eq!(Failure::from(client::Error::Token).exit().code(), 2);
        assert_eq!(Exit::TimedOut.code(), 124);
    }

    #[test]
    fn a_broken_pipe_is_recognised_below_other_errors() {
        let pipe =
            anyhow::Error::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)).context("writing");
        assert!(Failure::from(pipe).is_broken_pipe());
        assert!(!Failure::usage("x").is_broken_pipe());
    }
}
