//! Answers to words that users of other schedulers type.
//!
//! The parser suggests commands and options with a similar spelling. [`explain`] adds those with a similar meaning:
//! `belfry ps` suggests `belfry job list`, and `--partition` suggests `--queue`. No word is an alias: the same word often
//! means something else elsewhere, so the user decides.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Words for a command, below a command.
struct Words {
    /// Command that the words follow; empty for `belfry` itself.
    below: &'static str,
    words: &'static [&'static str],
    /// Commands to suggest, in backticks.
    tip: &'static str,
}

const fn words(below: &'static str, words: &'static [&'static str], tip: &'static str) -> Words {
    Words { below, words, tip }
}

const COMMANDS: &[Words] = &[
    words("", &["ps", "ls", "list", "squeue"], "`belfry job list`"),
    words("", &["status", "stat", "info"], "`belfry job list`, `belfry job get JOB` or `belfry worker list`"),
    words("", &["get", "show", "describe", "inspect"], "`belfry job get JOB`"),
    words("", &["cancel", "kill", "stop", "rm", "delete", "scancel"], "`belfry job cancel JOB`"),
    words("", &["retry", "rerun", "restart", "requeue"], "`belfry job retry JOB`"),
    words("", &["watch"], "`belfry job watch JOB`"),
    words("", &["wait"], "`belfry job wait JOB`"),
    words("", &["log", "tail"], "`belfry logs JOB`"),
    words("", &["history"], "`belfry job events JOB`"),
    words("", &["create", "add", "exec", "enqueue", "sbatch", "srun"], "`belfry submit -- COMMAND`"),
    words(
        "",
        &["start", "trigger"],
        "`belfry workflow start WORKFLOW` or `belfry schedule trigger SCHEDULE`",
    ),
    words("", &["deployment", "deployments", "deploy", "svc", "daemon"], "`belfry service list`"),
    words("", &["scale"], "`belfry service scale SERVICE N`"),
    words("", &["rollout"], "`belfry service rollout status SERVICE`"),
    words("", &["rollback", "undo"], "`belfry service rollback SERVICE`"),
    words("", &["cron", "crontab"], "`belfry schedule create NAME --cron EXPRESSION -- COMMAND`"),
    words("", &["pause"], "`belfry queue pause QUEUE` or `belfry schedule pause SCHEDULE`"),
    words("", &["resume"], "`belfry queue resume QUEUE` or `belfry schedule resume SCHEDULE`"),
    words("", &["node", "nodes", "sinfo"], "`belfry worker list`"),
    words("", &["drain"], "`belfry worker drain WORKER`"),
    words("", &["cordon"], "`belfry worker cordon WORKER`"),
    words("", &["use", "use-context"], "`belfry context use NAME`"),
    words("", &["signin", "sign-in", "log-in"], "`belfry login`"),
    words("", &["signout", "sign-out", "log-out"], "`belfry logout`"),
    words("", &["password", "passwd", "invite"], "`belfry account invite ACCOUNT`"),
    words("", &["whoami", "me", "who"], "`belfry auth whoami`"),
    words("", &["can-i", "can", "may"], "`belfry auth can-i VERB RESOURCE`"),
    words("", &["user", "users", "serviceaccount", "serviceaccounts", "sa"], "`belfry account list`"),
    words("", &["adduser", "useradd"], "`belfry account create NAME`"),
    words("", &["permission", "permissions", "rights", "acl"], "`belfry role list` or `belfry auth whoami`"),
    words(
        "",
        &["rolebinding", "rolebindings", "binding", "bindings", "clusterrolebinding"],
        "`belfry role bindings`",
    ),
    words("", &["clusterrole", "clusterroles"], "`belfry role list`"),
    words("", &["grant", "bind", "assign"], "`belfry role bind ROLE ACCOUNT -n NAMESPACE`"),
    words(
        "",
        &["revoke", "unbind"],
        "`belfry token revoke ID` or `belfry role unbind ROLE ACCOUNT -n NAMESPACE`",
    ),
    words("", &["auditlog", "audit-log", "trail"], "`belfry audit list`"),
    words("", &["apikey", "apikeys", "api-key", "api-token", "pat"], "`belfry token create`"),
    words("account", &["add", "new", "set"], "`belfry account create NAME`"),
    words("account", &["rm", "remove"], "`belfry account delete NAME`"),
    words("account", &["show", "describe", "info"], "`belfry account get NAME`"),
    words("account", &["edit", "modify", "change"], "`belfry account update NAME`"),
    words("account", &["disable", "lock", "suspend"], "`belfry account update NAME --disable`"),
    words("account", &["enable", "unlock"], "`belfry account update NAME --enable`"),
    words(
        "role",
        &["create", "add", "update", "edit", "change"],
        "`belfry role set ROLE --rule VERBS:RESOURCES`",
    ),
    words("role", &["show", "describe", "permissions"], "`belfry role get ROLE`"),
    words("role", &["grant", "assign", "give"], "`belfry role bind ROLE ACCOUNT -n NAMESPACE`"),
    words("role", &["revoke", "remove", "take"], "`belfry role unbind ROLE ACCOUNT -n NAMESPACE`"),
    words("token", &["new", "add", "generate", "issue"], "`belfry token create`"),
    words("token", &["delete", "rm", "remove"], "`belfry token revoke ID`"),
    words("token", &["show", "describe"], "`belfry token get ID`"),
    words("token", &["rotate", "renew"], "`belfry token create`, then `belfry token revoke ID`"),
    words("auth", &["check", "can", "test"], "`belfry auth can-i VERB RESOURCE`"),
    words("auth", &["status", "me", "show"], "`belfry auth whoami`"),
    words("auth", &["login"], "`belfry context set NAME --url URL --token-file FILE --use`"),
    words("job", &["kill", "stop", "rm", "delete"], "`belfry job cancel JOB`"),
    words("job", &["show", "describe", "status", "inspect", "info"], "`belfry job get JOB`"),
    words("job", &["submit", "create", "run", "add", "start"], "`belfry submit -- COMMAND`"),
    words("job", &["rerun", "restart", "requeue"], "`belfry job retry JOB`"),
    words("job", &["edit", "set", "modify", "change"], "`belfry job update JOB`"),
    words("job", &["history"], "`belfry job events JOB`"),
    words("run", &["start", "create"], "`belfry workflow start WORKFLOW`"),
    words("run", &["kill", "stop", "rm", "delete"], "`belfry run cancel RUN`"),
    words("run", &["show", "describe", "status", "inspect", "info"], "`belfry run get RUN`"),
    words("run", &["rerun", "restart"], "`belfry run retry RUN`"),
    words("workflow", &["run", "trigger"], "`belfry workflow start WORKFLOW`"),
    words("workflow", &["create", "update", "edit", "add"], "`belfry workflow apply -f FILE`"),
    words("workflow", &["show", "describe"], "`belfry workflow get WORKFLOW`"),
    words("schedule", &["run", "start", "fire"], "`belfry schedule trigger SCHEDULE`"),
    words("schedule", &["update", "edit", "set"], "`belfry schedule apply -f FILE`"),
    words("schedule", &["history", "runs"], "`belfry schedule ledger SCHEDULE`"),
    words("schedule", &["show", "describe"], "`belfry schedule get SCHEDULE`"),
    words("service", &["update", "edit", "set"], "`belfry service apply -f FILE`"),
    words("service", &["show", "describe", "info"], "`belfry service get SERVICE`"),
    words("service", &["status", "wait", "watch"], "`belfry service rollout status SERVICE --watch`"),
    words("service", &["undo"], "`belfry service rollback SERVICE`"),
    words("service", &["history"], "`belfry service revisions SERVICE`"),
    words(
        "service",
        &["stop", "rm", "remove"],
        "`belfry service delete SERVICE` or `belfry service scale SERVICE 0`",
    ),
    words("service", &["run", "start", "add", "new"], "`belfry service create NAME -- COMMAND`"),
    words("service", &["pause", "resume", "promote"], "`belfry service rollout pause SERVICE`"),
    words("queue", &["create", "update", "edit", "limit"], "`belfry queue set QUEUE`"),
    words("worker", &["show", "describe", "status"], "`belfry worker get WORKER`"),
    words("worker", &["rm", "delete"], "`belfry worker remove WORKER`"),
];

/// Tip for a word below `belfry run` that is no command: `belfry run ./load`.
const NO_COMMAND_OF_RUN: &str = "run a command with `belfry submit -- COMMAND`";

/// Options that users type, and what to do instead. `below` is the command that the options follow.
const OPTIONS: &[Words] = &[
    words(
        "submit",
        &["--array", "-a", "--count", "--replicas"],
        "`--shards N` starts N jobs: BELFRY_INDEX is the number of each job, from 0",
    ),
    words(
        "submit",
        &["--depends-on", "--dependency", "--after-ok", "--afterok", "--after-any", "--needs"],
        "`--after JOB` starts the job after another one has succeeded, and `--after JOB:any` after it has ended",
    ),
    words(
        "submit",
        &["--user", "-u", "--uid"],
        "`--owner NAME` sets the owner of the job; a task runs as the user that its worker sets",
    ),
    words("submit", &["-N", "-J", "--job-name"], "`--name NAME` sets the name of the job"),
    words("submit", &["-p", "--partition", "--topic"], "`--queue NAME` sets the queue"),
    words("submit", &["-t", "--time", "--time-limit", "--walltime"], "`--timeout DURATION` sets the timeout"),
    words("submit", &["-c", "--cpus", "--cpus-per-task", "--ncpus"], "`--cpu CORES` requests CPU"),
    words("submit", &["-m", "--mem", "--ram"], "`--memory BYTES` requests memory"),
    words("submit", &["-G", "--gpu", "--gpus", "--gres"], "`--resource gpu=N` requests a custom resource"),
    words(
        "submit",
        &["-w", "--worker", "--node", "--nodelist", "--host"],
        "`--constraint LABEL=VALUE` selects workers",
    ),
    words("submit", &["-D", "-C", "--chdir", "--cwd"], "`--workdir DIR` sets the working directory"),
    words("submit", &["--export"], "`--env NAME=VALUE` sets an environment variable"),
    words(
        "submit",
        &["--begin", "--eta", "--start-at"],
        "`--at TIME` or `--in DURATION` sets the scheduled time",
    ),
    words("submit", &["--delay", "--countdown"], "`--in DURATION` sets the scheduled time"),
    words("submit", &["--retry", "--max-retries"], "`--retries N` sets the number of retries"),
    words("submit", &["--nice"], "`--priority N` sets the priority, from 0 (last) to 100 (first)"),
    words("submit", &["--tag", "--tags"], "`--label KEY=VALUE` sets a label"),
    words(
        "submit",
        &["--detach", "--background"],
        "`belfry submit` returns at once, unless `--wait` or `--follow` is given",
    ),
    words("submit", &["--cron", "--every"], "`belfry schedule create NAME` creates a schedule"),
    words("job list", &["-u", "--user"], "`--owner NAME` filters by owner"),
    words("job list", &["--state"], "`--status STATUS` filters by status"),
    words("job list", &["--since"], "`--after TIME` filters by submission time"),
    words("job list", &["-p", "--partition"], "`--queue NAME` filters by queue"),
    words("logs", &["--lines"], "`--tail N` shows the last N lines"),
];

/// Adds a tip to an error of the parser, if the arguments contain a word of another scheduler.
pub(crate) fn explain(mut error: Error, root: &Command, arguments: &[String]) -> Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let command = command_of(root, arguments);
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => text(ContextKind::InvalidSubcommand).and_then(|word| {
            let known = find(COMMANDS, &command, &word).map(|tip| format!("did you mean {tip}?"));
            known.or_else(|| (command == "run").then(|| NO_COMMAND_OF_RUN.to_owned()))
        }),
        ErrorKind::UnknownArgument => text(ContextKind::InvalidArg).and_then(|argument| {
            let name = argument.split(['=', ' ']).next().unwrap_or_default().to_owned();
            find(OPTIONS, &command, &name).map(str::to_owned)
        }),
        _ => None,
    };
    if let Some(tip) = tip {
        // A similar spelling would distract: `cancel` is not `calendars`.
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

fn find(table: &[Words], below: &str, word: &str) -> Option<&'static str> {
    table.iter().find(|entry| entry.below == below && entry.words.contains(&word)).map(|entry| entry.tip)
}

/// Returns the path of the innermost command that the arguments name, without `belfry`: `job list`.
fn command_of(root: &Command, arguments: &[String]) -> String {
    let (mut at, mut path) = (root, Vec::new());
    for argument in arguments {
        if let Some(found) = at.find_subcommand(argument) {
            path.push(found.get_name());
            at = found;
        }
        if !at.has_subcommands() {
            break;
        }
    }
    path.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::args::Cli;

    fn told(line: &str) -> String {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(&arguments).unwrap_err();
        explain(error, &Cli::command(), &arguments[1..]).to_string()
    }

    fn tip(line: &str) -> String {
        let told = told(line);
        let tips: Vec<_> = told.lines().filter_map(|line| line.trim().strip_prefix("tip: ")).collect();
        tips.join("; ")
    }

    #[test]
    fn words_of_other_schedulers_get_the_command() {
        assert_eq!(tip("belfry ps"), "did you mean `belfry job list`?");
        assert_eq!(tip("belfry cancel job_x"), "did you mean `belfry job cancel JOB`?");
        assert_eq!(tip("belfry --url http://x kill job_x"), "did you mean `belfry job cancel JOB`?");
        assert_eq!(tip("belfry jobs kill job_x"), "did you mean `belfry job cancel JOB`?");
        assert_eq!(tip("belfry run ./load"), NO_COMMAND_OF_RUN);
        assert_eq!(tip("belfry run start etl"), "did you mean `belfry workflow start WORKFLOW`?");
    }

    #[test]
    fn words_of_access_control_get_the_command() {
        let tips: Vec<_> =
            ["user", "users", "rolebinding", "permission", "grant", "revoke", "apikey", "signin", "whoami"]
                .map(|word| format!("{word}: {}", tip(&format!("belfry {word}"))))
                .into();
        insta::assert_snapshot!(tips.join("\n"), @r"
        user: did you mean `belfry account list`?
        users: did you mean `belfry account list`?
        rolebinding: did you mean `belfry role bindings`?
        permission: did you mean `belfry role list` or `belfry auth whoami`?
        grant: did you mean `belfry role bind ROLE ACCOUNT -n NAMESPACE`?
        revoke: did you mean `belfry token revoke ID` or `belfry role unbind ROLE ACCOUNT -n NAMESPACE`?
        apikey: did you mean `belfry token create`?
        signin: did you mean `belfry login`?
        whoami: did you mean `belfry auth whoami`?
        ");
        assert_eq!(tip("belfry account add ann"), "did you mean `belfry account create NAME`?");
        assert_eq!(tip("belfry tokens rm x"), "did you mean `belfry token revoke ID`?");
    }

    #[test]
    fn options_of_other_schedulers_get_the_option() {
        assert!(tip("belfry submit --array 10 -- ./load").starts_with("`--shards N`"));
        assert!(tip("belfry submit --array=1-10 -- ./load").starts_with("`--shards N`"));
        assert!(tip("belfry submit -N load -- ./load").starts_with("`--name NAME`"));
        assert!(tip("belfry submit --after-ok job_x -- ./load").contains("--after JOB"));
        assert!(tip("belfry -n pay job list --user ann").starts_with("`--owner NAME`"));
    }

    #[test]
    fn a_similar_spelling_is_still_suggested() {
        assert!(told("belfry sumbit").contains("submit"));
        assert!(told("belfry submit --priorty 3 -- true").contains("--priority"));
    }

    /// Otherwise the parser would accept it, and the tip would never be seen.
    #[test]
    fn no_word_is_a_command_or_an_option_and_each_is_below_a_command() {
        let mut root = Cli::command();
        root.build();
        let below = |path: &str| {
            path.split(' ').filter(|name| !name.is_empty()).fold(&root, |command, name| {
                command.find_subcommand(name).unwrap_or_else(|| panic!("{path}"))
            })
        };
        for Words { below: path, words, .. } in COMMANDS {
            for word in *words {
                assert!(below(path).find_subcommand(word).is_none(), "{path} {word}");
            }
        }
        for Words { below: path, words, .. } in OPTIONS {
            for word in *words {
                let option = word.trim_start_matches('-');
                let is_known = below(path).get_arguments().any(|known| {
                    known.get_long() == Some(option)
                        || known.get_short().is_some_and(|c| option == c.to_string())
                });
                assert!(!is_known, "{path} {word}");
            }
        }
    }
}
