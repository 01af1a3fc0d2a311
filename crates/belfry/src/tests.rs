//! Tests of the whole command line: help texts and parsing.
//!
//! `commands` collects all commands from the definition, so the tests about help texts, defaults, arguments
//! and examples also cover commands that are added later. The help of all commands is one snapshot. The rest
//! are single examples of parsing: suggestions for typos, `belfry worker` with and without a subcommand,
//! short options.
//!
//! Tests of what a command does are in the modules of the commands.

use clap::{Command, CommandFactory as _, Parser as _};

use crate::args::Cli;

/// Collects every command with its path, without the `help` commands.
fn all(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
    found.push((path.to_owned(), command.clone()));
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        all(sub, &format!("{path} {}", sub.get_name()), found);
    }
}

fn commands() -> Vec<(String, Command)> {
    let mut root = Cli::command().term_width(100);
    root.build();
    let mut found = Vec::new();
    all(&root, "belfry", &mut found);
    found
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

/// The commands are taken from the definition, so a new command cannot be missed.
#[test]
fn the_help_of_every_command() {
    let mut text = String::new();
    for (path, mut command) in commands() {
        text.push_str(&format!("$ {path} --help\n{}\n", command.render_long_help()));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn every_command_and_argument_has_a_description() {
    for (path, command) in commands() {
        assert!(command.get_about().is_some(), "{path}");
        for argument in command.get_arguments().filter(|a| !a.is_hide_set()) {
            assert!(argument.get_help().is_some(), "{path} {}", argument.get_id());
        }
    }
}

/// The defaults in the help texts are those of the spec.
#[test]
fn the_defaults_that_the_help_names_are_those_of_the_spec() {
    let spec = serde_json::to_value(model::JobSpec::command(["true"])).unwrap();
    let schedule = model::ScheduleSpec::new("x", Default::default(), model::JobSpec::command(["true"]));
    let schedule = serde_json::to_value(schedule).unwrap();
    let create = commands().into_iter().find(|(path, _)| path == "belfry schedule create").unwrap().1;
    let said = |flag: &str| {
        let argument = create.get_arguments().find(|argument| argument.get_long() == Some(flag)).unwrap();
        let help = argument.get_help().unwrap().to_string();
        let (_, rest) = help.rsplit_once("[default: ").unwrap_or_else(|| panic!("--{flag}: {help}"));
        rest.trim_end_matches(']').to_owned()
    };
    let known = [
        ("queue", &spec["queue"]),
        ("priority", &spec["priority"]),
        ("placement", &spec["placement"]),
        ("grace", &spec["grace"]),
        ("retries", &spec["retry"]["max_retries"]),
        ("start-retries", &spec["retry"]["max_start_retries"]),
        ("backoff", &spec["retry"]["backoff"]["initial"]),
        ("backoff-factor", &spec["retry"]["backoff"]["factor"]),
        ("backoff-max", &spec["retry"]["backoff"]["max"]),
        ("backoff-jitter", &spec["retry"]["backoff"]["jitter"]),
        ("delivery", &spec["delivery"]),
        ("zone", &schedule["timing"]["zone"]),
        ("overlap", &schedule["overlap"]["policy"]),
        ("missed", &schedule["missed"]["policy"]),
    ];
    for (flag, value) in known {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert_eq!(said(flag), value.trim_end_matches(".0"), "--{flag}");
    }
}

/// Every user of a machine can read the arguments of every process.
#[test]
fn no_argument_takes_a_token() {
    for (path, command) in commands() {
        for argument in command.get_arguments() {
            let name = argument.get_id().as_str();
            assert!(!name.contains("token") || name.ends_with("token_file"), "{path} {name}");
            let secret = ["secret", "password"].iter().any(|word| name.contains(word));
            assert!(!secret || ["password_file", "password_stdin"].contains(&name), "{path} {name}");
        }
    }
}

#[test]
fn every_example_line_can_be_parsed() {
    let mut read = 0;
    for (path, command) in commands() {
        let Some(examples) = command.get_before_help() else { continue };
        for line in examples.to_string().lines().filter(|line| line.trim_start().starts_with("belfry ")) {
            // Two spaces start an explanation; `>` and `|` start shell syntax.
            let line = line.trim().split("  ").next().unwrap_or_default();
            let line = line.split(['>', '|']).next().unwrap_or_default();
            let line = line.replace("JOB", "job_01k9zq3m6c0000000000000000");
            let line = line.replace("WORKER", "wkr_01k9zq3m6c0000000000000000");
            let line = line.replace("BACKFILL", "bkf_01k9zq3m6c0000000000000000");
            let line = line.replace("RUN", "run_01k9zq3m6c0000000000000000");
            if line.contains("$(") {
                continue;
            }
            let arguments = words(&line);
            if let Err(error) = Cli::try_parse_from(&arguments) {
                panic!("{path}: {line}: {error}");
            }
            read += 1;
        }
    }
    assert!(read > 30, "only {read} examples were found");
}

/// Splits a line into words as a shell does, with single quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '\'' => (quoted, begun) = (!quoted, true),
            ' ' if !quoted => {
                if std::mem::take(&mut begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

#[test]
fn typos_get_suggestions() {
    let told = |line: &[&str]| Cli::try_parse_from(line).unwrap_err().to_string();
    assert!(told(&["belfry", "sumbit"]).contains("submit"));
    assert!(told(&["belfry", "submit", "--priorty", "3", "--", "true"]).contains("--priority"));
    assert!(told(&["belfry", "job", "lst"]).contains("list"));
    assert!(told(&["belfry", "job", "get", "job_x"]).contains("is not a job id"));
    for (line, ours) in [
        (["belfry", "job", "list", "--status", "queued"], "`waiting` (in its queue); expected one of ready"),
        (["belfry", "run", "list", "--status", "success"], "`succeeded`; expected one of waiting"),
        (["belfry", "schedule", "list", "--status", "enabled"], "`active`; expected one of active"),
        (["belfry", "worker", "list", "--status", "offline"], "`lost`; expected one of ready"),
    ] {
        let error = told(&line);
        assert!(error.contains("Belfry calls it ") && error.contains(ours), "{error}");
    }
}

#[test]
fn worker_command_runs_and_manages_workers() {
    let worker = |line: &[&str]| match Cli::try_parse_from(line).map(|cli| cli.command) {
        Ok(crate::args::Command::Worker(args)) => Ok(args.command.is_some()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    };
    assert_eq!(
        worker(&[
            "belfry",
            "worker",
            "--server",
            "http://x",
            "--token-file",
            "t",
            "--dir",
            "d",
            "--name",
            "n"
        ]),
        Ok(false)
    );
    assert_eq!(worker(&["belfry", "worker", "list", "-o", "name"]), Ok(true));
    assert_eq!(worker(&["belfry", "worker", "drain", "w1", "w2", "--url", "http://x"]), Ok(true));
    assert_eq!(worker(&["belfry", "worker", "--url", "http://x", "list"]), Ok(true));
    assert_eq!(worker(&["belfry", "--url", "http://x", "worker", "list"]), Ok(true));
}

/// In `schedule next`, `-n` is the number of firings, as in `head` and `tail`; the namespace has its long option only.
#[test]
fn the_namespace_has_a_long_option_where_its_letter_has_another_meaning() {
    for line in [
        "belfry schedule next nightly -n 20 --namespace pay",
        "belfry -n pay schedule next nightly -n 20",
        "belfry schedule --namespace pay next nightly -n 20",
    ] {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(cli.global.namespace.as_deref(), Some("pay"), "{line}");
        let crate::args::Command::Schedule(command) = cli.command else { panic!("{line}") };
        let crate::args::schedule::ScheduleCommand::Next(args) = *command else { panic!("{line}") };
        assert_eq!(args.count, 20, "{line}");
    }
}
